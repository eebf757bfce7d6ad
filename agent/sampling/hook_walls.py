"""Looks whether prolog and epilog of this node can keep others off shared GPUs (docs/design/0013): nothing is changed."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.walls import MAX_FAULT_LENGTH, MAX_RECORDED_JOBS, NodeWalls

SHARES = Path("/run/slurm-soda-node/shares")
_PARTS = {"share-start": b"exit 100", "share-end": b"exit 100"} | {
    name: f"share_whole={name}".encode() for name in ("share-records", "share-back", "share-walls", "share-guest")
}
"""What prolog and epilog read, and the last line of each: one that was cut off has it no more."""
_HOOKS = {"prolog": b"share-start", "epilog": b"share-end"}
"""What Slurm runs, and the part that each names: one of an older version names none."""
_RECORD = re.compile(r"(gpus|guest)\.([1-9][0-9]{0,9})")
_REINSTALL = "make install ROLE=agent there"


class _WallError(SodaError):
    """Something of the hooks is not as it has to be."""


def _libexec() -> Path:
    """Beside the environment that this agent runs in, which is PREFIX/lib/slurm-soda/NAME."""
    return Path(os.path.normpath(Path(sys.prefix, "..", "..", "..", "libexec")))


@dataclass(frozen=True, slots=True)
class HookWalls:
    """Hooks and records of one node."""

    libexec: Path = field(default_factory=_libexec)
    shares: Path = SHARES
    owner: int = 0
    """Who must own all of it."""

    def read(self) -> NodeWalls:
        """As it is now."""
        try:
            self._check_hooks()
            found = sorted(self._recorded())
            recorded, guests = ([job for kind, job in found if kind == wanted] for wanted in ("gpus", "guest"))
            return NodeWalls("", tuple(recorded[-MAX_RECORDED_JOBS:]), tuple(guests[-MAX_RECORDED_JOBS:]))
        except _WallError as error:
            return NodeWalls(fault=str(error)[:MAX_FAULT_LENGTH])

    def _check_hooks(self) -> None:
        for name, last in _PARTS.items():
            if self._content(name).rstrip().rpartition(b"\n")[2] != last:
                raise _WallError(f"{name} in {self.libexec} is not whole: {_REINSTALL}")
        for name, part in _HOOKS.items():
            if part not in self._content(name, stat.S_IXUSR):
                raise _WallError(f"{name} in {self.libexec} is of an older version: {_REINSTALL}")

    def _content(self, name: str, mode: int = 0) -> bytes:
        path = self.libexec / name
        try:
            content, found = path.read_bytes(), path.stat()
        except OSError as error:
            raise _WallError(f"{name} in {self.libexec}: {error.strerror}: {_REINSTALL}") from None
        if found.st_uid != self.owner or found.st_mode & 0o022 or (found.st_mode & mode) != mode:
            raise _WallError(f"{name} in {self.libexec} is not root's alone, or cannot be run: {_REINSTALL}")
        return content

    def _recorded(self) -> Iterator[tuple[str, int]]:
        """Kind of the record and job. None where no prolog has made the directory yet."""
        for path in (self.shares.parent, self.shares):
            try:
                found = path.lstat()
            except FileNotFoundError:
                return
            except OSError as error:
                raise _WallError(f"{path}: {error.strerror}") from None
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != self.owner:
                raise _WallError(f"{path} is not root's own directory: remove it; the next prolog makes it again")
        try:
            with os.scandir(self.shares) as entries:
                yield from ((named[1], int(named[2])) for entry in entries if (named := _RECORD.fullmatch(entry.name)))
        except OSError as error:
            raise _WallError(f"{self.shares}: {error.strerror}") from None
