"""Whether Slurm guards guests (docs/design/0013): it runs our prolog and epilog, and our part of job_submit.lua."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slurm_soda.slurm_ext.read.hook_calls import calls
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values

_CALLS = tuple(re.compile(rf"\bsoda\.{name}[ \t]*\(") for name in ("submit", "modify"))
_LUA_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|--\[(=*)\[.*?(?:\]\2\]|\Z)|--[^\n]*""", re.S)
"""A comment of lua, of a line or of several; or a string, which is none."""
_OURS = {
    "Prolog": re.compile(rb"([^\s\"'=]*)/libexec/prolog(?![\w.-])|slurm_soda\.prolog\.main"),
    "Epilog": re.compile(rb"([^\s\"'=]*)/libexec/epilog(?![\w.-])|slurm_soda\.epilog\.main"),
    "EpilogSlurmctld": re.compile(rb"([^\s\"'=]*)/libexec/epilogctld(?![\w.-])|/run/slurm-soda\}/wake"),
}
"""By key of slurm.conf: a call of our hook, with the folder that it is installed in; or what only our own does."""
_OUR_NAME = b"slurm-soda's"
"""Stands in a comment of each."""
_WRONG_FLAGS = {
    "RunInJob": "an epilog in its job's own control group cannot tell when that is empty",
    "Serial": "a prolog that waits for a guest to go keeps the guest's epilog from running",
}
_MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class MissingGuard:
    """Something without which a guest could meet others on its GPUs."""

    check: str
    found: str
    remedy: str

    @property
    def sentence(self) -> str:
        """All of it, in a clause."""
        return f"nobody can be one now: {self.found}: {self.remedy}"


def list_missing_guards(config: SlurmConfig) -> Iterator[MissingGuard]:
    """Nothing where all is there, as far as it can be seen on this machine."""
    for key, script in (("Prolog", "prolog"), ("Epilog", "epilog")):
        if not our_scripts(config, key):
            told = f"{key}={', '.join(list_config_values(config, key)) or '(null)'} does not run slurm-soda's {script}"
            remedy = (
                f"set {key}=/opt/slurm-soda/libexec/{script}, or a script that calls it by its path and lies on this "
                "machine too"
            )
            yield MissingGuard("prolog/epilog", told, remedy)
    for flag in config.get("PrologFlags", "").split(","):
        if flag in _WRONG_FLAGS:
            remedy = f"take it out, or share nothing: {_WRONG_FLAGS[flag]}"
            yield MissingGuard("prolog/epilog", f"PrologFlags has {flag}", remedy)
    if "extra_constraints" in config.get("SchedulerParameters", "").split(","):
        remedy = "take it out, or share nothing: a guest's record is in Extra"
        yield MissingGuard("Extra", "SchedulerParameters has extra_constraints", remedy)
    plugins = config.get("JobSubmitPlugins", "(null)")
    remedy = (
        "set JobSubmitPlugins=lua, with the lines of docs/site-lua.md in job_submit.lua: else anybody may ask to be one"
    )
    if "lua" not in plugins.split(","):
        yield MissingGuard("guard", f"JobSubmitPlugins={plugins}", remedy)
        return
    script_path = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf")).with_name("job_submit.lua")
    text = lua_code(beginning(script_path).decode("utf-8", "surrogateescape"))
    # One that cannot be read here is on another machine: only doctor, there, can tell.
    if text and not all(call.search(text) for call in _CALLS):
        yield MissingGuard("guard", f"{script_path} does not call soda.submit and soda.modify", remedy)


def our_scripts(config: SlurmConfig, key: str) -> Sequence[str]:
    """Values of this key that run ours: our script, a link to it or a copy, and a site's own, or one of a directory, that
    calls it. What cannot be read here is judged by its name.
    """
    return [path for path in list_config_values(config, key) if _runs_ours(path, key)]


def _runs_ours(path: str, key: str) -> bool:
    texts = [beginning(file) for file in files_of(Path(path))]
    return any(calls(text, partial(_names_ours, key)) for text in texts) if any(texts) else "soda" in path


def _names_ours(key: str, text: bytes) -> bool:
    """By its folder: our name is in it, a variable tells it, or what lies there is ours."""
    return any(
        not folder or b"soda" in folder or b"$" in folder or _OUR_NAME in beginning(Path(os.fsdecode(found[0])))
        for found in _OURS[key].finditer(text)
        for folder in (found[1],)
    )


def lua_code(text: str) -> str:
    """A script of lua without its comments."""
    return _LUA_COMMENT.sub(lambda found: found[1] or "", text)


def files_of(path: Path) -> list[Path]:
    """What a value of slurm.conf names of this machine: a file, or those of a glob."""
    try:
        return [
            file for file in (sorted(path.parent.glob(path.name)) if "*" in path.name else [path]) if file.is_file()
        ]
    except OSError:
        return []


def beginning(file: Path) -> bytes:
    """Its first bytes; none where it cannot be read."""
    try:
        with file.open("rb") as text:
            return text.read(_MOST_BYTES)
    except OSError:
        return b""
