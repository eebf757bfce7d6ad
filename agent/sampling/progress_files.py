"""Reads how far jobs say they are: a file of the owner's in a directory of his own. Nothing in it is believed unchecked.

The agent is root and the directory the user's, so a name in it may be anything: no link is followed, nothing that is no
regular file of the owner's is read, a FIFO does not block, and no more than :data:`MAX_BYTES` are read of any file.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.agent.sampling.progress_cleaning import clean_directory
from slurm_soda.wire.records import JobOpened
from slurm_soda.wire.run_fields import MAX_ITERATIONS

PROGRESS_DIRECTORY = "/run/slurm-soda-agent/progress"
MAX_BYTES = 512
"""Of a progress file: one line."""

_NUMBER = re.compile(rb"\d{1,15}(\.\d{1,9})?")
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """What a job says of itself."""

    iteration: float
    """Done so far, over all its runs."""
    seconds: float
    """When, by a clock of the job's that is not set."""
    total: float = 0.0
    """Iterations of the whole training; 0: not said."""
    saved: float = -1.0
    """Iteration of its newest checkpoint; negative: none."""
    batch: int = 0
    """Samples per iteration and GPU; 0: not said."""


def parse_progress(content: bytes) -> ProgressLine | None:
    """The first line of a progress file, as docs/progress.md describes it; ``None`` for anything else.

    Words that are not known are passed over, so that newer writers can be read.
    """
    line, end, _ = content.partition(b"\n")
    words = dict(word.partition(b"=")[::2] for word in line.split(b" "))
    if not end:
        return None
    found: dict[bytes, float] = {}
    for name in (b"iteration", b"seconds", b"of", b"saved", b"batch"):
        value = words.get(name)
        if value is not None:
            if not _NUMBER.fullmatch(value):
                return None
            found[name] = float(value)
    if b"iteration" not in found or b"seconds" not in found:
        return None
    told = ProgressLine(
        iteration=found[b"iteration"],
        seconds=found[b"seconds"],
        total=found.get(b"of", 0.0),
        saved=found.get(b"saved", -1.0),
        batch=int(found.get(b"batch", 0.0)),
    )
    return told if max(told.iteration, told.total, told.saved, told.batch) <= MAX_ITERATIONS else None


class ProgressFiles:
    """The directories of users with jobs on this node, and the files in them."""

    def __init__(self, directory: str = PROGRESS_DIRECTORY) -> None:
        self._directory = directory

    def prepare(self, opened: JobOpened) -> str:
        """Make the directory of the job's owner, if it is missing; gives the reason why not, or empty text."""
        path = Path(self._directory, str(opened.uid))
        try:
            path.parent.mkdir(0o755, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            directory = self._owners(opened)
            try:
                if os.fstat(directory).st_uid != opened.uid:
                    os.fchown(directory, opened.uid, -1)
            finally:
                os.close(directory)
        except OSError as error:
            return f"jobs of uid {opened.uid} cannot tell their progress: {path} cannot be made: {error.strerror}"
        return ""

    def read(self, opened: JobOpened) -> ProgressLine | None:
        """What the run says of itself now; ``None`` where it says nothing, or nothing that can be taken."""
        try:
            directory = self._owners(opened)
        except OSError:
            return None
        try:
            return parse_progress(_read_owners_file(directory, _file_name(opened), opened.uid))
        except OSError:
            return None
        finally:
            os.close(directory)

    def remove(self, opened: JobOpened) -> None:
        """Forget an ended run's file. Its owner's directory stays: his next job may have begun."""
        try:
            directory = self._owners(opened)
        except OSError:
            return
        for name in (_file_name(opened), f"{_file_name(opened)}.new"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
        os.close(directory)

    def clean(self, opened: Iterable[JobOpened]) -> None:
        """Remove what is no progress file of these runs, which are all that are under way; some with each call."""
        kept: dict[str, set[str]] = {}
        for run in opened:
            name = _file_name(run)
            kept.setdefault(str(run.uid), set()).update((name, f"{name}.new"))
        with contextlib.suppress(OSError):  # no job has begun yet
            for path in Path(self._directory).iterdir():
                if path.name.isdecimal():
                    self._clean_owners(int(path.name), kept.get(path.name, set()))

    def _clean_owners(self, uid: int, kept: set[str]) -> None:
        with contextlib.suppress(OSError):
            directory = os.open(f"{self._directory}/{uid}", _DIRECTORY_FLAGS)
            try:
                clean_directory(directory, uid, kept, MAX_BYTES)
            finally:
                os.close(directory)

    def _owners(self, opened: JobOpened) -> int:
        """The owner's directory, opened; the agent made it, below one that only root may write."""
        return os.open(f"{self._directory}/{opened.uid}", _DIRECTORY_FLAGS)


def _file_name(opened: JobOpened) -> str:
    return f"{opened.job_id}.{opened.restart}"


def _read_owners_file(directory: int, name: str, uid: int) -> bytes:
    """A short regular file of this owner's; empty for anything else.

    Raises:
        OSError: there is none, or a link.
    """
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=directory)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid or found.st_size > MAX_BYTES:
            return b""
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)
