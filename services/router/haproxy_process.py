"""HAProxy as a child in master-worker mode: checked, started, reloaded, ended (HAProxy 2.6 management guide, 4)."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from slurm_soda.services.router.errors import HaproxyError
from slurm_soda.services.router.haproxy_config import HaproxySettings
from slurm_soda.services.router.runtime_socket import RuntimeSocket, healthy_servers
from slurm_soda.services.router.waiting_queries import SCRIPT, SCRIPT_TEXT
from slurm_soda.wire.atomic_files import write_at

PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
CHECK_S = 30.0
"""For ``haproxy -c``."""
BEGIN_S = 15.0
"""Until a new process must serve."""

STOP_AGAIN_S = 1.0
NEW_S = 60.0
"""So long a directory may be without a lock."""

_PREFIX = "soda-router-"
_PIPE_BYTES = 1 << 20
_MESSAGES = 40
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def find_haproxy() -> str:
    """Path of the program.

    Raises:
        HaproxyError: it is not installed.
    """
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:{PATH}")
    if found is None:
        raise HaproxyError("haproxy is not installed here; install the package haproxy (apt-get install haproxy)")
    return found


def has_lua(program: str) -> bool:
    """Whether it was built with Lua, as those of Debian and Ubuntu are; false if it does not tell."""
    try:
        said = subprocess.run(
            [program, "-vv"], capture_output=True, timeout=CHECK_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return re.search(rb"(?:\s\+|\bUSE_)LUA(?:=1)?\b", said.stdout) is not None


class HaproxyProcess:
    """One HAProxy, of which nothing is left when this process ends: the kernel then asks it to end softly."""

    def __init__(self, program: str, settings: HaproxySettings, take_line: Callable[[bytes], None]) -> None:
        """``take_line`` gets each line of HAProxy's log, in a thread."""
        self._program, self._take_line = program, take_line
        self.settings = settings
        self.worker = RuntimeSocket(settings.worker_socket)
        self.master = RuntimeSocket(settings.master_socket)
        self._child: subprocess.Popen[bytes] | None = None
        self._messages: deque[str] = deque(maxlen=_MESSAGES)
        self._config = settings.directory / "haproxy.cfg"

    @property
    def pid(self) -> int:
        """Of the master; 0: none was started."""
        return 0 if self._child is None else self._child.pid

    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def check(self, text: str) -> None:
        """Let HAProxy check a configuration.

        Raises:
            HaproxyError: it is not accepted; HAProxy's own words.
        """
        self._write(SCRIPT, SCRIPT_TEXT)
        self._write("checked.cfg", text)
        argv = [self._program, "-c", "-f", str(self.settings.directory / "checked.cfg")]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=CHECK_S, check=False, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HaproxyError(f"haproxy -c cannot be run: {error}") from error
        if done.returncode:
            said = (done.stderr + done.stdout).decode("utf-8", "replace").splitlines()
            raise HaproxyError(f"HAProxy refuses its configuration: {_alerts(said)}")

    def start(self, text: str, state: str = "") -> None:
        """Start with a configuration, and with the servers' health as ``show servers state`` gave it.

        Raises:
            HaproxyError: it does not begin to serve; HAProxy's own words.
        """
        self.check(text)
        self._write(self._config.name, text)
        self._write(self.settings.state_file.name, state)
        self._messages.clear()
        for path in (self.settings.worker_socket, self.settings.master_socket):
            path.unlink(missing_ok=True)
        argv = [self._program, "-W", "-S", f"{self.settings.master_socket},mode,600", "-f", str(self._config)]
        try:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,  # Ctrl-C is the router's, which ends it softly
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no lock
            )
        except OSError as error:
            raise HaproxyError(f"{self._program} cannot be started: {error}") from error
        for stream, take in ((self._child.stdout, self._take_line), (self._child.stderr, self._take_message)):
            assert stream is not None
            with suppress(OSError):
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            threading.Thread(target=_read_lines, args=(stream, take), daemon=True).start()
        self._wait_for_worker(0)

    def reload(self, settings: HaproxySettings, text: str) -> None:
        """Serve by another configuration; queries in flight are answered by the process before.

        Raises:
            HaproxyError: HAProxy refuses it, and the process and configuration before go on.
        """
        self.check(text)
        before, worker = self._config.read_text(), self._worker_pid()
        self._write(self.settings.state_file.name, self.state())
        self._write(self._config.name, text)
        self._messages.clear()
        assert self._child is not None
        self._child.send_signal(signal.SIGUSR2)
        try:
            self._wait_for_worker(worker)
        except HaproxyError:
            self._write(self._config.name, before)
            raise
        self.settings = settings

    def state(self) -> str:
        """The servers that are up, for the next process.

        Raises:
            HaproxyError: there is no answer.
        """
        return healthy_servers(self.worker.ask("show servers state"))

    def stop(self, wait_s: float) -> None:
        """Take no new queries, answer those in flight, and end; at once after ``wait_s``."""
        child = self._child
        if child is None:
            return
        until_s = time.monotonic() + wait_s
        while child.poll() is None and time.monotonic() < until_s:
            child.send_signal(signal.SIGUSR1)  # again: a master that has just begun or reloaded loses signals
            with suppress(subprocess.TimeoutExpired):
                child.wait(min(STOP_AGAIN_S, wait_s))
        if child.poll() is None:
            child.terminate()  # the master ends its workers
            try:
                child.wait(BEGIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def why_ended(self) -> str:
        """What it said before it ended."""
        status = None if self._child is None else self._child.poll()
        return f"status {status}: {_alerts(self._messages)}"

    def _wait_for_worker(self, before: int) -> None:
        """Until a worker other than ``before`` answers.

        Raises:
            HaproxyError: none does.
        """
        until_s = time.monotonic() + BEGIN_S
        while time.monotonic() < until_s:
            with suppress(HaproxyError):
                if self._worker_pid() != before and self.master.ask("show proc"):
                    return
            if not self.runs():
                time.sleep(0.1)  # its last words
                raise HaproxyError(f"HAProxy ended with {self.why_ended()}")
            if before and any("Loading failure" in line for line in self._messages):
                raise HaproxyError(f"HAProxy did not reload, and serves as before: {_alerts(self._messages)}")
            time.sleep(0.05)
        raise HaproxyError(f"no new HAProxy process serves after {BEGIN_S:g} s: {_alerts(self._messages)}")

    def _worker_pid(self) -> int:
        for line in self.worker.ask("show info").splitlines():
            if line.startswith("Pid: "):
                return int(line[5:])
        raise HaproxyError("HAProxy does not tell its process id")

    def _take_message(self, line: bytes) -> None:
        self._messages.append(line.decode("utf-8", "replace").strip())

    def _write(self, name: str, text: str) -> None:
        directory = os.open(self.settings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            write_at(directory, name, text.encode(), temporary=f"{name}.new", durable=False)
        except OSError as error:
            raise HaproxyError(f"{self.settings.directory}/{name} cannot be written: {error.strerror}") from error
        finally:
            os.close(directory)


def _end_with_parent() -> None:
    """In the child, before HAProxy: SIGUSR1 once the parent's main thread is gone. Its workers end with their master."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)


def _read_lines(stream: IO[bytes], take: Callable[[bytes], None]) -> None:
    with stream:
        for line in stream:
            take(line)


def _alerts(lines: Iterable[str]) -> str:
    """What HAProxy says is wrong, on one line."""
    said = list(lines)
    alerts = [line.partition(" : ")[2] or line for line in said if line.startswith("[ALERT]")]
    return " / ".join(alerts or said[-3:])[:600] or "it says nothing"


def private_directory() -> Path:
    """A new directory that only this user can enter, with a name that nobody knows before, and that is short enough for a
    socket's path.

    Raises:
        HaproxyError: there is no place for it.
    """
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - a directory of its own is made there
        if len(os.fsencode(parent)) <= 60:
            with suppress(OSError):
                remove_leftovers(Path(parent))
                path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                # systemd-tmpfiles leaves a directory alone that is locked (tmpfiles.d(5)).
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(lock, fcntl.LOCK_SH)
                return path
    raise HaproxyError("no directory for HAProxy's sockets can be made in TMPDIR, /tmp or /var/tmp; make room there")


def remove_leftovers(parent: Path) -> None:
    """Remove what this user's killed routers left: directories that nobody has locked, and that are not just made."""
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                if found.st_uid == os.geteuid() and found.st_mtime < time.time() - NEW_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
