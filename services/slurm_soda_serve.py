"""Runs one instance of an inference service on a node, inside its owner's batch task: one file, without dependencies.

::

    exec python3 slurm_soda_serve.py --service chat --folder ~/services --device cpu --batch 8 -- COMMAND

It starts the command on a free port, waits until its health path answers, and says what it knows in
``FOLDER/SERVICE/instances/HOST.JOBID.json`` (``wire/services/instance_file.py`` has the fields). A command that ends,
hangs, does not listen on its port or never becomes healthy is killed and started again, after pauses that double.
``HOST.JOBID.drain`` beside the file asks the instance to drain: it says so, so that its router sends it nothing more,
and goes on answering until the job is requeued. SIGTERM ends it: the command gets SIGTERM too and may answer what it
has. Nothing here needs root, sodad or a network beyond the node. Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, Iterator, Sequence

HEARTBEAT_S = 2.0
"""The file is written so often at least."""
TICK_S = 0.1
MOST_MISSED = 3
"""So many checks in a row without an answer: the command hangs."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before a command is started again; doubled each time, and 1 s again once it was ready for a minute."""
LONGEST_REASON = 300

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_SERVICE = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_HEALTH = re.compile(r"/[A-Za-z0-9._~/-]*")
_LISTENING = "0A"
"""State of a listening socket in ``/proc/net/tcp``."""


class InstanceError(Exception):
    """The instance cannot run at all: one line for its owner."""


# --- the command -------------------------------------------------------------------------------------------------------


def fill_in(command: str, values: dict[str, object]) -> str:
    """The command with ``{port}``, ``{device}`` and so on filled in; other braces stay as they are."""
    for name, value in values.items():
        command = command.replace("{%s}" % name, str(value))
    return command


def free_port() -> int:
    """A port that nothing listens on now. If something else takes it first, the command ends and gets another one."""
    with socket.socket() as chosen:
        chosen.bind(("", 0))
        return int(chosen.getsockname()[1])


def listener_uids(port: int, address: str = "") -> set[int] | None:
    """Whose sockets listen on a TCP port of this node; None where the kernel does not say.

    With an IP ``address`` those alone that take connections to it: on other addresses of the node, and by IPv6 beside IPv4,
    anybody may listen with the same port.
    """
    uids: dict[str, set[int]] = {}
    found = False
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(path) as file:
            found = True
            for line in file:
                words = line.split()
                if len(words) > 7 and words[3] == _LISTENING:
                    local, _, local_port = words[1].rpartition(":")
                    if int(local_port, 16) == port:
                        uids.setdefault(local, set()).add(int(words[7]))
    if not found:
        return None
    if not address:
        return set().union(*uids.values())
    for locals_ in _listening_places(address):
        taken = set().union(*(uids.get(local, set()) for local in locals_))
        if taken:
            return taken
    return set()


def _listening_places(address: str) -> list[list[str]]:
    """Local addresses, as ``/proc/net`` has them, of sockets that take connections to one; those that come first, alone."""
    mapped = address[7:] if address.lower().startswith("::ffff:") and "." in address else address
    any_of_6 = 32 * "0"
    if ":" in mapped:
        return [[_kernel_words(socket.inet_pton(socket.AF_INET6, mapped.partition("%")[0])), any_of_6]]
    packed = socket.inet_pton(socket.AF_INET, mapped)
    # a socket for both families cannot be beside one of IPv4 with this port: the one on [::] is then for IPv6 alone
    return [[_kernel_words(packed), 8 * "0"], [_kernel_words(10 * b"\0" + 2 * b"\xff" + packed), any_of_6]]


def _kernel_words(packed: bytes) -> str:
    return "".join("%08X" % word for word in struct.unpack("=%dI" % (len(packed) // 4), packed))


def is_healthy(host: str, port: int, path: str, timeout_s: float = 5.0) -> bool:
    """Whether ``GET path`` is answered with 200, by a process of this user."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.connect()
        uids = listener_uids(port, connection.sock.getpeername()[0])
        if uids is not None and uids != {os.geteuid()}:
            return False  # it is somebody else's socket, who shall not get the queries
        connection.request("GET", path)
        response = connection.getresponse()
        response.read(64 * 1024)
    except (OSError, http.client.HTTPException):
        return False
    else:
        return response.status == 200
    finally:
        connection.close()


def health_address(host: str) -> str:
    """The address to check: that at which the router reaches this node, so that a command on 127.0.0.1 only is noticed."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return "127.0.0.1"
    return host


class RunningCommand:
    """One start of the owner's shell command, in a process group of its own."""

    def __init__(
        self, command: str, values: dict[str, object], output: int | None = None, directory: str | None = None
    ) -> None:
        """``output`` takes what it prints, and it runs in ``directory``; None: as this process."""
        self.port = free_port()
        self.started_s = time.monotonic()
        line = fill_in(command, dict(values, port=self.port))
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Of the shell, which is the id of its group and session too."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """Exit status of the shell, negative for a signal; None: it runs. It is not waited for: its id stays its own."""
        if self._process.returncode is not None:
            return int(self._process.returncode)
        told = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if told is None:
            return None
        return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status

    def runs(self) -> bool:
        """Whether any process of it is left, the shell or what it started."""
        return self.exit_status() is None or any(True for _ in _processes_of_session(self.pid))

    def ask_to_end(self) -> None:
        """SIGTERM to the whole group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group, and to whatever of its session is in another one; its end is waited for."""
        self._signal(signal.SIGKILL)
        for pid in list(_processes_of_session(self.pid)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:  # not waited for yet: the group's id cannot be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def _processes_of_session(session: int) -> Iterator[int]:
    """Processes of a session that have not ended."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open("/proc/%s/stat" % name, errors="replace") as file:
                state, _, _, found = file.read().rpartition(")")[2].split()[:4]
                if int(found) == session and state not in "ZX":
                    yield int(name)


class HealthCheck:
    """Checks in a thread, one at a time, so that a command that hangs delays no heartbeat."""

    def __init__(self, check: Callable[[], bool], every_s: float) -> None:
        self._check, self._every_s = check, every_s
        self._thread: threading.Thread | None = None
        self._due_s = 0.0
        self._answers: list[bool] = []

    def poll(self) -> bool | None:
        """The next answer; None: there is none yet."""
        now_s = time.monotonic()
        if self._thread is None and now_s >= self._due_s:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread, self._due_s = None, now_s + self._every_s
        return self._answers.pop()

    def _run(self) -> None:
        answer = False
        try:
            answer = self._check()
        finally:
            self._answers.append(answer)


# --- the file ----------------------------------------------------------------------------------------------------------


class InstanceDirectory:
    """``FOLDER/SERVICE/instances``, through which nobody else can make this instance write or believe anything."""

    def __init__(self, folder: str, service: str, name: str) -> None:
        self._folder, self._service, self.name = folder, service, name

    def write(self, fields: dict[str, Any]) -> None:
        """Replace the instance's file: readers see the one before or this one, never a part.

        Raises:
            InstanceError: a directory is not the owner's own.
            OSError: it cannot be written.
        """
        with self._opened() as directory:
            fresh = ".%s.%s" % (self.name, secrets.token_hex(8))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(fresh, flags, 0o600, dir_fd=directory)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(fields, file)
                os.rename(fresh, self.name + ".json", src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh, dir_fd=directory)
                raise

    def asked_to_drain(self) -> bool:
        """Whether the owner's router has put a ``.drain`` file beside the instance's own."""
        with self._opened() as directory:
            try:
                found = os.stat(self.name + ".drain", dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return False
            return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()

    def prepare(self) -> None:
        """Make the directories, the owner's alone; and remove what the run before of a requeued job left."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with self._opened(create=True):
            pass
        self.remove()

    def remove(self) -> None:
        """Remove the instance's file and the request to drain."""
        with self._opened() as directory:
            for suffix in (".json", ".drain"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.name + suffix, dir_fd=directory)

    @contextlib.contextmanager
    def _opened(self, create: bool = False) -> Iterator[int]:
        opened: list[int] = []
        try:
            # Of the folder itself links are followed: its owner named it, and home directories may be links.
            opened.append(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._refuse_foreign(opened[-1], self._folder, stat.S_IWOTH)
            path = self._folder
            for part in (self._service, "instances"):
                path = os.path.join(path, part)
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=opened[-1])
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    opened.append(os.open(part, flags, dir_fd=opened[-1]))
                except NotADirectoryError:  # what a link is called here
                    raise InstanceError("%s is a link or no directory; remove it" % path) from None
                if create and os.fstat(opened[-1]).st_uid == os.geteuid():  # made with an umask such as 002
                    os.fchmod(opened[-1], stat.S_IMODE(os.fstat(opened[-1]).st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
                self._refuse_foreign(opened[-1], path, stat.S_IWGRP | stat.S_IWOTH)
            yield opened[-1]
        finally:
            for descriptor in opened:
                os.close(descriptor)

    @staticmethod
    def _refuse_foreign(descriptor: int, path: str, writable: int) -> None:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise InstanceError("%s belongs to user %d, not to you; name a folder of your own" % (path, found.st_uid))
        if found.st_mode & writable:
            raise InstanceError("%s can be written by others (mode %o); chmod go-w it" % (path, found.st_mode & 0o7777))


# --- the instance ------------------------------------------------------------------------------------------------------


class InstanceProcess:
    """Keeps one command running and its file true, until SIGTERM."""

    def __init__(self, options: argparse.Namespace, directory: InstanceDirectory) -> None:
        self._options, self._directory = options, directory
        self._address = health_address(options.host)
        self._command: RunningCommand | None = None
        self._check: HealthCheck | None = None
        self._state, self._since_s, self._reason, self._restarts, self._port = "starting", time.time(), "", 0, 1
        self._pause_s, self._start_at_s, self._ready_s, self._missed = FIRST_PAUSE_S, 0.0, 0.0, 0
        self._written_s = float("-inf")
        self._drains = False
        self._troubles: set[str] = set()
        self.ending = False
        """Set by SIGTERM."""

    def take_signal(self, number: int, frame: FrameType | None) -> None:
        """Of SIGTERM: end."""
        self.ending = True

    def run(self) -> None:
        """Serve until :attr:`ending`; then let the command answer what it has, and remove the file."""
        self._directory.prepare()
        try:
            while not self.ending:
                self.step(time.monotonic())
                time.sleep(TICK_S)
            self._end()
        finally:
            if self._command is not None:
                self._command.kill()
            with contextlib.suppress(OSError, InstanceError):
                self._directory.remove()

    def step(self, now_s: float) -> None:
        """What is to do at this moment: start the command, judge it, write the file."""
        if self._command is None and not self._drains and now_s >= self._start_at_s:
            self._start()
        elif self._command is not None:
            self._judge(self._command, now_s)
        if now_s - self._written_s >= HEARTBEAT_S:
            self._look_for_drain()
            self._write()

    def _start(self) -> None:
        options = self._options
        self._restarts += self._state == "failed"
        values = {name: getattr(options, name) for name in ("device", "batch", "window_ms", "cores")}
        command = RunningCommand(options.command, values)
        self._command, self._port, self._ready_s, self._missed = command, command.port, 0.0, 0
        self._check = self._new_check(command, options.check_every_s / 10)
        _tell("starting on port %d: %s" % (command.port, options.command))
        self._say("starting", self._reason)

    def _new_check(self, command: RunningCommand, every_s: float) -> HealthCheck:
        options = self._options
        return HealthCheck(
            lambda: is_healthy(self._address, command.port, options.health, options.check_timeout_s), every_s
        )

    def _judge(self, command: RunningCommand, now_s: float) -> None:
        status = command.exit_status()
        if status is not None:
            told = "signal %d" % -status if status < 0 else "status %d" % status
            stay = "; it must stay in the foreground" if status == 0 else ""
            self._fail("its command ended with %s after %.1f s%s" % (told, now_s - command.started_s, stay), now_s)
            return
        answer = self._check.poll() if self._check is not None else None
        if answer:
            self._missed = 0
            if not self._ready_s:
                self._become_ready(command, now_s)
            elif now_s - self._ready_s > LONGEST_PAUSE_S:
                self._pause_s = FIRST_PAUSE_S
        elif not self._ready_s:
            if now_s - command.started_s > self._options.start_limit_s:
                self._fail(self._unhealthy(command), now_s)
        elif answer is not None:
            self._missed += 1
            if self._missed >= MOST_MISSED:
                self._fail("its command hangs: %d checks of %s failed" % (self._missed, self._options.health), now_s)

    def _become_ready(self, command: RunningCommand, now_s: float) -> None:
        self._ready_s = now_s
        self._check = self._new_check(command, self._options.check_every_s)
        self._say("draining" if self._drains else "ready", "")

    def _unhealthy(self, command: RunningCommand) -> str:
        uids = listener_uids(command.port)
        where = "GET %s on %s:%d" % (self._options.health, self._options.host, command.port)
        why = "nothing listens there; the command must use {port}" if uids == set() else "no answer with status 200"
        if uids and os.geteuid() not in uids:
            why = "another user's process listens there"
        return "%s: %s within %g s" % (where, why, self._options.start_limit_s)

    def _fail(self, reason: str, now_s: float) -> None:
        if self._command is not None:
            self._command.kill()
        self._command = self._check = None
        self._start_at_s, pause_s = now_s + self._pause_s, self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        _tell("%s; %s" % (reason, "draining" if self._drains else "next start in %g s" % pause_s))
        self._say("draining" if self._drains else "failed", reason)

    def _look_for_drain(self) -> None:
        try:
            asked = self._directory.asked_to_drain()
        except (OSError, InstanceError) as error:
            self._complain("cannot be read", error)
            return
        if asked and not self._drains:
            self._drains = True
            self._say("draining", self._reason)
        elif self._drains and not asked:  # taken back
            self._drains = False
            self._say("ready" if self._ready_s and self._command is not None else "starting", self._reason)

    def _say(self, state: str, reason: str) -> None:
        if state != self._state:
            self._state, self._since_s = state, time.time()
            _tell(state)
        self._reason = reason[:LONGEST_REASON]
        self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        options = self._options
        fields = {
            "service": options.service,
            "job_id": options.job_id,
            "array_job_id": _number_of("SLURM_ARRAY_JOB_ID"),
            "task": _number_of("SLURM_ARRAY_TASK_ID"),
            "host": options.host,
            "port": self._port,
            "device": options.device,
            "gpu_type": options.gpu_type,
            "batch": options.batch,
            "cores": options.cores,
            "state": self._state,
            "since_s": self._since_s,
            "heartbeat_s": time.time(),
            "restarts": self._restarts,
            "reason": self._reason,
        }
        try:
            self._directory.write(fields)
        except (OSError, InstanceError) as error:
            self._complain("cannot be written", error)

    def _complain(self, what: str, error: Exception) -> None:
        """A file system that is full or away comes back, and the command serves on: once a line is enough."""
        # without the file's name, which is a new one each time
        why = error.strerror if isinstance(error, OSError) else error
        trouble = "%s %s: %s" % (self._options.folder, what, why)
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            _tell(trouble)

    def _end(self) -> None:
        """Say so first, and let the router see it, before the command hears of it."""
        told_s = time.monotonic()
        notice_s = 0.0 if self._state != "ready" else self._options.notice_s
        self._say("draining", self._reason)
        asked = False
        while self._command is not None and self._command.runs():
            now_s = time.monotonic()
            if not asked and now_s - told_s >= notice_s:
                self._command.ask_to_end()
                asked = True
            if now_s - told_s > self._options.grace_s:
                _tell("its command still runs after %g s, and is killed" % self._options.grace_s)
                return
            if now_s - self._written_s >= HEARTBEAT_S:
                self._write()
            time.sleep(TICK_S)


def _tell(line: str) -> None:
    print("slurm_soda_serve: %s" % line, file=sys.stderr, flush=True)


def _number_of(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0


def _usable_cores() -> int:
    return _number_of("SLURM_CPUS_PER_TASK") or len(os.sched_getaffinity(0))


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of one instance; wrong ones end the program with a line that names them."""
    parser = argparse.ArgumentParser(
        prog="slurm_soda_serve.py",
        description="Runs one instance of an inference service, and says in a file where it is and how it does.",
    )
    add = parser.add_argument
    add("--service", required=True, help="name of the service")
    add("--folder", required=True, help="folder of the services, on a file system that nodes and router share")
    add("--device", choices=("cpu", "gpu"), required=True, help="what it computes on")
    add("--gpu-type", default="", help="type of the GPU, as Slurm's GRES names it")
    add("--health", default="/health", help="path that answers 200 once the command can serve (default: %(default)s)")
    add("--batch", type=int, default=1, help="largest number of queries at once (default: %(default)s)")
    add("--window-ms", type=_plain_number, default="50", help="how long queries are collected (default: %(default)s)")
    add("--cores", type=int, default=0, help="CPU cores (default: those of the task)")
    add("--host", default="", help="name at which the router reaches this node (default: Slurm's name of it)")
    add("--job-id", type=int, default=0, help="default: SLURM_JOB_ID")
    add("--start-limit-s", type=float, default=120.0, help="until it must be healthy (default: %(default)g)")
    add("--check-every-s", type=float, default=2.0, help="between two checks of its health (default: %(default)g)")
    add("--check-timeout-s", type=float, default=5.0, help="for the answer to a check (default: %(default)g)")
    add(
        "--notice-s",
        type=float,
        default=2.0,
        help="from saying that it drains to SIGTERM for the command (default: %(default)g)",
    )
    add("--grace-s", type=float, default=25.0, help="for all of the end; below Slurm's KillWait (default: %(default)g)")
    add("command", help="shell command with {port}, {device}, {batch}, {window_ms}, {cores} filled in")
    options = parser.parse_args(arguments)
    options.host = options.host or os.environ.get("SLURMD_NODENAME", "") or socket.gethostname()
    options.job_id = options.job_id or _number_of("SLURM_JOB_ID") or os.getpid()
    options.cores = options.cores or _usable_cores()
    for name, pattern, allowed in (
        ("service", _SERVICE, "up to 40 small letters, digits and hyphens"),
        ("host", _HOST, "a host name or address"),
        ("health", _HEALTH, "a path such as /health"),
    ):
        if not pattern.fullmatch(getattr(options, name)):
            parser.error("--%s is %r; allowed: %s" % (name, getattr(options, name), allowed))
    if options.batch < 1 or options.cores < 1:
        parser.error("--batch and --cores must be 1 or more")
    if "{port}" not in options.command:
        parser.error("the command does not name {port}, on which it is to listen")
    return options


def _plain_number(text: str) -> str:
    """A number as it was written, for it goes into the owner's command."""
    if float(text) < 0:
        raise ValueError(text)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the instance until SIGTERM or SIGINT; the exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    name = "%s.%d" % (options.host, options.job_id)
    instance = InstanceProcess(options, InstanceDirectory(os.path.expanduser(options.folder), options.service, name))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, instance.take_signal)
    try:
        instance.run()
    except (InstanceError, OSError) as error:
        _tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
