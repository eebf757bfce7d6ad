"""Reading the configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.slurm_ext.errors import SodaError

CONFIG_FILE = Path("/etc/slurm-soda/soda.toml")
"""Where the file is looked for; without one every default holds."""

_MOST_BYTES = 1024 * 1024
"""A longer file is none of ours, and a device may never end."""


class DaemonConfigError(SodaError):
    """A configuration that cannot be used; names file, key, value and what is expected there."""


def load_settings(path: Path | None = None) -> Settings:
    """Read the configuration.

    Args:
        path: the file; ``None`` means :data:`CONFIG_FILE` if it exists, else all defaults.

    Raises:
        DaemonConfigError: the file is missing though named, unreadable, not TOML, or has a wrong key, type or value.
    """
    file = path or CONFIG_FILE
    if path is None and not file.exists():
        return Settings()
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise DaemonConfigError(f"{file}: longer than {_MOST_BYTES} bytes; name the configuration with --config")
        data = tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise DaemonConfigError(f"{file}: {error.strerror}; name a readable file with --config") from error
    except (ValueError, RecursionError) as error:
        raise DaemonConfigError(f"{file}: not valid TOML: {error}; correct the file") from error
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        raise DaemonConfigError(f"{file}: {_first_mistake(error)}") from error


def _first_mistake(error: ValidationError) -> str:
    """The first mistake as ``key = value: expected …``; the others show once it is mended."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        return f"{key}: no such key; expected one of {', '.join(_keys_beside(first['loc']))}"
    found = "…" if first["loc"][:1] == ("store",) else repr(first["input"])  # it may hold the database's password
    return f"{key} = {found}: expected {_expected(first)}"


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    section: type[BaseModel] = Settings
    for part in loc[:-1]:
        inner = section.model_fields[str(part)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        section = inner
    return sorted(section.model_fields)


_TYPE_NAMES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table",
    "list_type": "a list",
    "model_type": "a table",
    "finite_number": "a finite number",
}

_TEXTS = {
    ("api", "url"): 'an address such as "http://ctl:6830"; "" for none',
    ("page", "url"): 'an address such as "https://soda.site.example/"; "" for none',
    ("sharing", "gres"): "a letter and then letters, digits and _, 32 at most",
}
"""What text with a pattern is, by key."""


def _expected(mistake: Any) -> str:
    context = mistake.get("ctx") or {}
    if "pattern" in context and mistake["loc"] in _TEXTS:
        return _TEXTS[mistake["loc"]]
    if "expected" in context:
        return f"one of {context['expected']}"
    for bound, words in (("gt", "more than"), ("ge", "at least"), ("le", "at most"), ("lt", "less than")):
        if bound in context:
            return f"{words} {context[bound]}"
    return _TYPE_NAMES.get(str(mistake["type"]), str(mistake["msg"]).removeprefix("Value error, "))
