"""Whether Slurm guards guests (docs/design/0013): it runs our prolog and epilog, and our part of job_submit.lua."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values

_CALLS = tuple(re.compile(rf"^(?![ \t]*--).*\bsoda\.{name}[ \t]*\(", re.M) for name in ("submit", "modify"))
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
                f"set {key}=/opt/slurm-soda/libexec/{script}, or a script that calls it and lies on this machine too"
            )
            yield MissingGuard("prolog/epilog", told, remedy)
    plugins = config.get("JobSubmitPlugins", "(null)")
    remedy = (
        "set JobSubmitPlugins=lua, with the lines of docs/site-lua.md in job_submit.lua: else anybody may ask to be one"
    )
    if "lua" not in plugins.split(","):
        yield MissingGuard("guard", f"JobSubmitPlugins={plugins}", remedy)
        return
    script_path = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf")).with_name("job_submit.lua")
    text = beginning(script_path).decode("utf-8", "surrogateescape")
    # One that cannot be read here is on another machine: only doctor, there, can tell.
    if text and not all(call.search(text) for call in _CALLS):
        yield MissingGuard("guard", f"{script_path} does not call soda.submit and soda.modify", remedy)


def our_scripts(config: SlurmConfig, key: str) -> Sequence[str]:
    """Values of this key that run ours. A site's own script, or a directory of them, may call it: its name says nothing."""
    paths = list_config_values(config, key)
    return [
        path for path in paths if "soda" in path or any(b"soda" in beginning(file) for file in files_of(Path(path)))
    ]


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
