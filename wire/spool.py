"""The node's spool: a directory of root's where records wait until the controller has them.

One file a record, named ``JOB.START.KIND`` (START is the run's start as Slurm gives it, in whole Unix seconds): ``open``
and ``close`` are written once, ``usage`` is replaced again and again. A file appears whole or not at all (written under
another name, then renamed), so prolog, epilog and agent need no locks between them. Nothing outside the directory is ever
touched: every call goes through the directory's descriptor and follows no link.

Imported by the prolog: keep the imports few (typing alone costs 3 ms), they are paid by every job.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from slurm_soda.wire.atomic_files import write_at
from slurm_soda.wire.errors import SpoolError

SPOOL_DIRECTORY = "/var/spool/slurm-soda"
MAX_FILE_BYTES = 64 << 10
MAX_FILES = 16_384

KINDS = ("open", "close", "usage")
_NAME = re.compile(r"([1-9][0-9]{0,9})\.([0-9]{1,11})\.(open|close|usage)", re.ASCII)
_TEMPORARY = ".new-"


class Spool:
    """The opened directory. Not safe to share between threads."""

    def __init__(self, path: str = SPOOL_DIRECTORY) -> None:
        """Open the directory, making it if it is missing.

        Raises:
            SpoolError: it cannot be made or opened, is a link, belongs to somebody else, or others may enter it.
        """
        self._path = path
        try:
            os.mkdir(path, 0o700)  # noqa: PTH102  (pathlib costs every job some ms)
        except FileExistsError:
            pass
        except OSError as error:
            raise SpoolError(f"spool {path} cannot be made ({error.strerror}); make its parent directory") from error
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise SpoolError(
                f"spool {path} is no directory that can be opened ({error.strerror}); remove it"
            ) from error
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(self._fd)
            mode = stat.S_IMODE(found.st_mode)
            raise SpoolError(
                f"spool {path} belongs to uid {found.st_uid} with mode {mode:04o}; "
                f"it must belong to uid {os.geteuid()} with mode 0700"
            )

    def reopen_if_replaced(self) -> bool:
        """Open the directory that is at the path now, if that is another one than was opened; whether it is.

        Prologs and epilogs open it anew for each record, so whoever keeps it open would see none of theirs.

        Raises:
            SpoolError: as at first; the one that was opened stays.
        """
        own = os.fstat(self._fd)
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116  (pathlib costs every job some ms)
            if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
                return False
        except OSError:
            pass  # it is made anew, or the error says why not
        now = Spool(self._path)
        os.close(self._fd)
        self._fd = now._fd
        return True

    def close(self) -> None:
        """Release the directory's descriptor."""
        os.close(self._fd)

    def write(self, name: str, content: bytes, *, durable: bool = False) -> None:
        """Put a record in place, whole, over any earlier one of the same name; ``durable``: also against a power cut.

        Raises:
            SpoolError: the name is no record's, the content is too long, or the disk refuses.
        """
        if not _NAME.fullmatch(name) or len(content) > MAX_FILE_BYTES:
            raise SpoolError(f"spool {self._path}: {name[:60]!a} of {len(content)} bytes is no record")
        temporary = f"{_TEMPORARY}{os.getpid()}-{name}"
        try:
            write_at(self._fd, name, content, temporary=temporary, durable=durable)
        except OSError as error:
            raise SpoolError(f"spool {self._path}: {name} cannot be written ({error.strerror})") from error

    def read(self, name: str) -> bytes:
        """A record's content.

        Raises:
            FileNotFoundError: there is none.
            SpoolError: it is a link, no regular file, too long, or cannot be read.
        """
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SpoolError(f"spool {self._path}: {name} cannot be opened ({error.strerror})") from error
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
                raise SpoolError(f"spool {self._path}: {name} is no record ({found.st_size} bytes)")
            return os.read(fd, MAX_FILE_BYTES)
        except OSError as error:
            raise SpoolError(f"spool {self._path}: {name} cannot be read ({error.strerror})") from error
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        """Names of the records that are in place; anything else in the directory is ignored."""
        return [name for name in os.listdir(self._fd) if _NAME.fullmatch(name)]  # noqa: PTH208  (a descriptor)

    def remove(self, name: str) -> None:
        """Take a record away; no matter if it is gone."""
        if _NAME.fullmatch(name):
            self._unlink(name)

    def clear_leftovers(self) -> None:
        """Remove half-written files of writers that died. For the agent at its start."""
        for name in os.listdir(self._fd):  # noqa: PTH208  (a descriptor)
            if name.startswith(_TEMPORARY) and not _alive(name):
                self._unlink(name)

    def trim(self, most: int = MAX_FILES) -> int:
        """If there are more than ``most`` records, remove a tenth: usage before anything else, the oldest run first.

        Openings and closings go only once no usage is left; the number of records removed is returned.
        """
        names = self.names()
        if len(names) <= most:
            return 0
        surplus = len(names) - most * 9 // 10
        victims = sorted(names, key=lambda name: (not name.endswith(".usage"), split_record_name(name)[1], name))[
            :surplus
        ]
        for name in victims:
            self._unlink(name)
        return len(victims)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)


def record_name(job_id: int, start_s: int, kind: str) -> str:
    """The file name of a run's record."""
    return f"{job_id}.{start_s}.{kind}"


def split_record_name(name: str) -> tuple[int, int, str]:
    """``(job id, start, kind)`` of a record's file name.

    Raises:
        SpoolError: it is no record's name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise SpoolError(f"{name[:60]!a} is no record's name")
    return int(match[1]), int(match[2]), match[3]


def _alive(temporary: str) -> bool:
    pid = temporary[len(_TEMPORARY) :].partition("-")[0]
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110
