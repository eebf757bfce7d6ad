"""What a killed router left in /tmp goes with the next start; nothing else does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from slurm_soda.services.router.haproxy_process import NEW_S, remove_leftovers


def test_only_what_nobody_has_locked_is_removed(tmp_path: Path) -> None:
    """Not of a router that lives, nor one that is just made, nor what a link leads to."""
    made = {name: tmp_path / f"soda-router-{name}" for name in ("left", "locked", "new", "link")}
    (tmp_path / "other").mkdir()
    for name, path in made.items():
        path.symlink_to(tmp_path / "other") if name == "link" else path.mkdir()
        if name != "new":
            os.utime(path, (0, path.stat().st_mtime - NEW_S - 1))
    lock = os.open(made["locked"], os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    remove_leftovers(tmp_path)
    os.close(lock)
    assert {path.name for path in tmp_path.iterdir()} == {
        "soda-router-locked",
        "soda-router-new",
        "soda-router-link",
        "other",
    }
