"""Commands inside a container through the Docker API, and files into and out of it."""

from __future__ import annotations

import io
import struct
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import docker

from slurm_soda.containers.cluster_spec import USERS, ClusterError
from slurm_soda.containers.docker_engine import describe_refusal

_HOMES = {"root": "/root", "slurm": "/var/lib/slurm-soda"} | {user: f"/home/{user}" for user in USERS}
_STDOUT = 1
_FRAME = struct.Struct(">BxxxL")
"""Before each piece of output: its stream, and its length."""
_TIMED_OUT = 124
_KILL_AFTER_S = 5
_STATUS_WITHIN_S = 30.0
_TAIL_CHARS = 400


@dataclass(frozen=True, slots=True)
class ContainerCommandResult:
    """A command that ended. Bytes that are not UTF-8 are kept as lone surrogates (``surrogateescape``)."""

    argv: tuple[str, ...]
    stdout: str
    stderr: str
    status: int
    """Exit status; 124 when it was stopped at its time limit."""

    def check(self) -> ContainerCommandResult:
        """Itself, if the command succeeded.

        Raises:
            ClusterError: it did not; the text has the command, its status and the end of what it said.
        """
        if self.status == 0:
            return self
        said = " ".join((self.stderr or self.stdout).split())[-_TAIL_CHARS:]
        how = "ran out of time" if self.status == _TIMED_OUT else f"exited with status {self.status}"
        raise ClusterError(f"in the cluster, {' '.join(self.argv[:8])} {how}: {said}")


def home_directory(user: str) -> str:
    """Home directory of one of the cluster's users.

    Raises:
        ClusterError: there is no such user.
    """
    if user not in _HOMES:
        raise ClusterError(f"the cluster has no user {user!r}; it has {', '.join(_HOMES)}")
    return _HOMES[user]


def run_in_container(
    client: docker.DockerClient,
    container: str,
    argv: Sequence[str],
    *,
    user: str = "root",
    stdin: bytes | None = None,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> ContainerCommandResult:
    """Runs ``argv`` as ``user`` in their home directory and waits for its end."""
    out, err = bytearray(), bytearray()
    running = RunningContainerCommand(
        client, container, argv, user=user, stdin=stdin, timeout_s=timeout_s, environment=environment
    )
    for stream, data in running:
        (out if stream == _STDOUT else err).extend(data)
    return ContainerCommandResult(tuple(argv), _text(out), _text(err), running.status())


class RunningContainerCommand:
    """A command under way: iterate for its output as pairs of stream (1 or 2) and bytes, then ask its status."""

    def __init__(
        self,
        client: docker.DockerClient,
        container: str,
        argv: Sequence[str],
        *,
        user: str,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._api: Any = client.api
        self._argv = tuple(argv)
        home = home_directory(user)
        # The limit is kept inside the container: closing the connection would leave the command running there.
        limit = () if timeout_s is None else ("timeout", f"--kill-after={_KILL_AFTER_S}", f"{timeout_s:.3f}")
        names = {"HOME": home, "USER": user, "LOGNAME": user, **(environment or {})}
        try:
            self._id = self._api.exec_create(
                container, [*limit, *argv], user=user, workdir=home, stdin=stdin is not None, environment=names
            )["Id"]
            started: Any = cast("Any", self._api.exec_start(self._id, socket=True))
        except docker.errors.DockerException as error:
            raise describe_refusal(error, f"run {argv[0]} in {container}") from error
        # What came together with the answer's headers is in the buffer that these were read through. docker-py reads the
        # socket below it and so loses all that a quick command said, on a loaded machine (docker/docker-py#3332).
        self._output: Any = started._response.raw._fp.fp
        self._socket: Any = getattr(started, "_sock", started)
        self._socket.settimeout(None)  # a command may be silent for long
        if stdin is not None:
            # In a thread of its own: a command that answers while it reads would block us both otherwise.
            threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while len(head := self._output.read(_FRAME.size)) == _FRAME.size:
            stream, length = _FRAME.unpack(head)
            yield stream, self._output.read(length)

    def status(self) -> int:
        """Exit status, once the output has ended.

        Raises:
            ClusterError: the command goes on although its output has ended.
        """
        self._output.close()
        self._socket.close()
        deadline_s = time.monotonic() + _STATUS_WITHIN_S
        while (code := self._api.exec_inspect(self._id)["ExitCode"]) is None:  # the engine hears of it a moment later
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"a command in the cluster closed its output and runs on: {' '.join(self._argv[:8])}"
                )
            time.sleep(0.02)
        return int(code)

    def _feed(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
            self._socket.shutdown(1)  # socket.SHUT_WR
        except OSError:
            return  # The command ended without reading everything; its status says whether that was wrong.


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """A file to be put into a container."""

    path: str
    content: bytes
    mode: int = 0o644
    uid: int = 0


def put_files(client: docker.DockerClient, container: str, files: Sequence[ContainerFile]) -> None:
    """Writes the files, making directories on the way (owned by root) where they are missing."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in files:
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(file.content), file.mode, file.uid, file.uid
            # Slurm reads job_submit.lua only if it is younger than 1970; at 0, a tar entry's default, slurmctld crashes.
            entry.mtime = int(time.time())
            tar.addfile(entry, io.BytesIO(file.content))
    api: Any = client.api
    api.put_archive(container, "/", archive.getvalue())


def get_file(client: docker.DockerClient, container: str, path: str) -> bytes:
    """Content of one file.

    Raises:
        ClusterError: there is no such file.
    """
    api: Any = client.api
    try:
        chunks, _ = api.get_archive(container, path)
    except docker.errors.NotFound as error:
        raise ClusterError(f"{container} has no file {path}") from error
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        content = tar.extractfile(tar.getmembers()[0])
        if content is None:
            raise ClusterError(f"{path} in {container} is not a plain file")
        return content.read()


def _text(data: bytearray) -> str:
    return data.decode(errors="surrogateescape")
