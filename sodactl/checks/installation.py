"""Check of the files that `make install` put here: what root can read, others may have no way to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.file_rights import first_closed
from slurm_soda.sodactl.checks.slurm_hooks import LUA_MODULE, LUA_PARTS, SPANK_PLUGIN

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
        if closed := first_closed(path):
            may = "enter" if closed.is_dir() else "read"
            which = "-R go+rX" if closed.is_relative_to(prefix) else "go+x"
            remedy = f"chmod {which} {closed}: sodad, slurmctld and users run and load what is there"
            yield CheckResult("installation", "fail", f"{closed}: users may not {may} it", remedy)
            return
