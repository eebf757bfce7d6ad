"""Check of the files that `make install` put here: what root can read, others may have no way to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.slurm_hooks import LUA_MODULE, LUA_PARTS, SPANK_PLUGIN

_OTHERS_READ, _OTHERS_ENTER = 0o004, 0o001
_FILES = (
    f"lib/{SPANK_PLUGIN}",
    *(f"lib/{name}" for name in (LUA_MODULE, *LUA_PARTS)),
    "libexec/epilogctld",
    "bin/sodactl",
)
"""Users and SlurmUser load or run them."""


def check_installation() -> Iterator[CheckResult]:
    """Whether everybody may reach the installation that this runs from; nothing in a checkout."""
    own = Path(sys.prefix)
    prefix = next((folder for folder in (own, *own.parents) if (folder / "lib" / SPANK_PLUGIN).exists()), None)
    if prefix is None:
        return
    for path in (own, *(prefix / name for name in _FILES)):
        if closed := _closed_to_others(path):
            may = "enter" if closed.is_dir() else "read"
            which = "-R go+rX" if closed.is_relative_to(prefix) else "go+x"
            remedy = f"chmod {which} {closed}: sodad, slurmctld and users run and load what is there"
            yield CheckResult("installation", "fail", f"{closed}: users may not {may} it", remedy)
            return


def _closed_to_others(path: Path) -> Path | None:
    """The first folder on the way that others may not enter, or the path itself, if it is there and they may not read it."""
    if not path.exists():
        return None
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & _OTHERS_ENTER:
            return folder
    needed = _OTHERS_ENTER if path.is_dir() else _OTHERS_READ
    return None if path.stat().st_mode & needed else path
