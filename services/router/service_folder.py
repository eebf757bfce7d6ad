"""The folder of a service, in which its instances say where they are and the router asks them to drain.

The folder may be on a file system that others use too, so a name in it may be anything: no link is followed, nothing is read
but plain files of the router's own user, a FIFO does not block, and no more than what such a file may have is read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.services.router.errors import FolderError
from slurm_soda.wire.atomic_files import write_at
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.json_fields import decode_json
from slurm_soda.wire.lock_file import open_lock_file
from slurm_soda.wire.services.instance_file import INSTANCES, LONGEST_FILE, InstanceFile
from slurm_soda.wire.services.router_report import MOST_INSTANCES
from slurm_soda.wire.services.service_file import ServiceFile
from slurm_soda.wire.services.service_profile import ServiceProfile

PROFILE = "profile.json"
DEFAULT_FOLDER = "services"
LOCK = "router.lock"
PORT = "router.port"
"""Port that the router chose by itself, for its next start."""
MOST_NAMES = 4 * MOST_INSTANCES
"""Names that are looked at in the folder; more are no service's."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class FolderContent:
    """What the instances say, by the names of their files without ``.json``."""

    instances: dict[str, InstanceFile] = field(default_factory=dict)
    drains: frozenset[str] = frozenset()
    """Those that are asked to drain."""
    problems: tuple[str, ...] = ()
    """Files that are not believed, and why."""


def refuse_root(file: Path) -> None:
    """Let root run nothing of a service that is somebody else's: the file says where directories are made, and what is run.

    Raises:
        FolderError: this is root, and the service's file belongs to another user.
    """
    with suppress(OSError):  # one that is not there is somebody else's complaint
        owner = file.stat().st_uid
        if owner and not os.geteuid():
            raise FolderError(
                f"{file} belongs to uid {owner}, and this is root: run it as that user (sudo -u '#{owner}' sodactl …)"
            )


class ServiceFolder:
    """``FOLDER/NAME`` of one service."""

    def __init__(self, file: Path, service: ServiceFile) -> None:
        """``file`` is the service's file; its folder, if not named absolutely, is beside it."""
        whole = Path(os.path.abspath(file)).parent  # noqa: PTH100 - a link to the file stays one, as for `start`
        folder = whole / Path(service.folder or DEFAULT_FOLDER).expanduser()
        self.path = Path(os.path.normpath(folder)) / service.name
        self._service = service.name
        self._uid = os.geteuid()
        self._lock = -1

    def prepare(self) -> None:
        """Make the folder where it is missing.

        Raises:
            FolderError: it cannot be made, or is not this user's alone.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for each in (
                self.path,
                self.path / INSTANCES,
            ):  # whatever the umask: where others may write nothing is read
                each.mkdir(mode=0o700, exist_ok=True)
            with self._opened():
                pass
        except OSError as error:
            raise FolderError(f"{error.filename or self.path}: {error.strerror}; name a folder of your own") from error

    def refuse_another(self, other: ServiceFolder) -> None:
        """Raise FolderError if ``other`` is not this one."""
        if other.path != self.path:
            raise FolderError("name and folder cannot change while the router runs; end it and start it again")

    def lock(self) -> bool:
        """Let no second router serve from this folder, until this process ends; False: the file system has no locks.

        Raises:
            FolderError: another router does.
        """
        path = self.path / LOCK
        try:
            self._lock = open_lock_file(path)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 300, 0).decode("utf-8", "replace").strip()
            self.unlock()
            raise FolderError(
                f"{self.path}: another router of a service {self._service!r} serves from here ({holder or 'just begun'});"
                " end that one, or give this service another name or folder"
            ) from None
        except OSError as error:
            if error.errno in _NO_LOCKS and self._lock >= 0:
                return False
            raise FolderError(f"{path}: {error.strerror}; remove what is there") from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return True

    def unlock(self) -> None:
        """Let another router serve."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> FolderContent:
        """What the instances say now.

        Raises:
            OSError, FolderError: the folder cannot be read.
        """
        instances: dict[str, InstanceFile] = {}
        drains: set[str] = set()
        problems: list[str] = []
        with self._opened() as directory:
            for name in _names(directory):
                stem, _, kind = name.rpartition(".")
                if stem.startswith(".") or not stem or kind not in ("json", "drain"):
                    continue
                try:
                    if kind == "json":
                        instances[stem] = self._read_instance(directory, name)
                    elif self._is_own(os.stat(name, dir_fd=directory, follow_symlinks=False)):
                        drains.add(stem)
                except FileNotFoundError:
                    continue  # gone meanwhile
                except OSError as error:
                    problems.append(f"{name!a} is not read: {error.strerror}")
                except RecordError as error:
                    problems.append(f"{error}"[:300])
        kept = dict(list(instances.items())[:MOST_INSTANCES])
        return FolderContent(kept, frozenset(drains), tuple(problems[:MOST_INSTANCES]))

    def profile(self) -> ServiceProfile | None:
        """What was measured of the service; None: nothing that could be read."""
        with suppress(OSError, RecordError):
            directory = os.open(self.path, _DIRECTORY)
            try:
                content = self._content(directory, PROFILE, 1 << 20)
            finally:
                os.close(directory)
            return ServiceProfile.from_dict(decode_json(content, 1 << 20, PROFILE), PROFILE)
        return None

    def chosen_port(self) -> int:
        """The port that the router before this one chose; 0: none."""
        with suppress(OSError, RecordError, ValueError):
            directory = os.open(self.path, _DIRECTORY)
            try:
                port = int(self._content(directory, PORT, 16))
            finally:
                os.close(directory)
            return port if 0 < port < 65536 else 0
        return 0

    def keep_port(self, port: int) -> None:
        """Let the next router have the same port."""
        with suppress(OSError):
            directory = os.open(self.path, _DIRECTORY)
            try:
                write_at(directory, PORT, f"{port}\n".encode(), temporary=f".{PORT}.new", durable=False)
            finally:
                os.close(directory)

    def ask_to_drain(self, stem: str) -> None:
        """Put ``STEM.drain`` beside the instance's file.

        Raises:
            OSError: it cannot be written.
        """
        with self._opened() as directory:
            write_at(directory, f"{stem}.drain", b"", temporary=f".{stem}.drain.new", durable=False)

    def take_back_drain(self, stem: str) -> None:
        """Remove that file."""
        with self._opened() as directory, suppress(FileNotFoundError):
            os.unlink(f"{stem}.drain", dir_fd=directory)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The directory of the instances' files; in one of others they could take a file's name away."""
        path = self.path / INSTANCES
        for each in (self.path, path):
            descriptor = os.open(each, _DIRECTORY)
            found = os.fstat(descriptor)
            if found.st_uid != self._uid or found.st_mode & 0o022:
                os.close(descriptor)
                raise FolderError(
                    f"{each} belongs to uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}, and others may"
                    " write there; name a folder of your own, or chmod go-w it"
                )
            if each != path:
                os.close(descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _read_instance(self, directory: int, name: str) -> InstanceFile:
        instance = InstanceFile.from_dict(
            decode_json(self._content(directory, name, LONGEST_FILE), LONGEST_FILE, repr(name)), repr(name)
        )
        if instance.service != self._service:
            raise RecordError(f"{name!r}: service is {instance.service!r}; this is the folder of {self._service!r}")
        return instance

    def _content(self, directory: int, name: str, longest: int) -> bytes:
        descriptor = os.open(name, _FILE, dir_fd=directory)
        try:
            found = os.fstat(descriptor)
            if not self._is_own(found):
                raise RecordError(f"{name!r} is no plain file of uid {self._uid}; it is not believed")
            if found.st_size > longest:
                raise RecordError(f"{name!r} has {found.st_size} bytes; at most {longest} are read")
            return os.read(descriptor, longest)
        finally:
            os.close(descriptor)

    def _is_own(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_uid == self._uid


def _names(directory: int) -> list[str]:
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) == MOST_NAMES:
                break
    return sorted(names)
