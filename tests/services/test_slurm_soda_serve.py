"""The owner's instance on a node, with real commands: it becomes ready, drains, ends, and starts again what failed."""

from __future__ import annotations

import ast
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_soda.services import slurm_soda_serve
from slurm_soda.wire.services.instance_file import InstanceFile
from tests.services.patience import PATIENCE_S, wait_for

PROGRAM = Path(slurm_soda_serve.__file__)

SERVER = """
import http.server, os, signal, socketserver, sys, threading, time
port = int(sys.argv[1])
marks = sys.argv[2]
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sick = os.path.exists(marks + "/sick")
        if self.path == "/slow":
            open(marks + "/slow-began", "w").close()
            time.sleep(1.5)
        self.send_response(500 if sick else 200)
        self.end_headers()
        self.wfile.write(b"answered")
    def log_message(self, *_): pass
server = Server(("0.0.0.0", port), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
print(os.getpid(), file=open(marks + "/pid", "w"), flush=True)
server.serve_forever()
server.server_close()
"""


class StartedInstance:
    """``slurm_soda_serve.py`` as its own process, with a folder of its own."""

    def __init__(self, folder: Path, command: str, *options: str) -> None:
        self.folder = folder
        self.file = folder / "chat" / "instances" / "n1.42.json"
        argv = [sys.executable, str(PROGRAM), "--service", "chat", "--folder", str(folder), "--device", "cpu"]
        argv += ["--check-every-s", "0.1", "--notice-s", "0", "--host", "n1", "--batch", "8", "--cores", "2", *options]
        env = {**os.environ, "SLURM_JOB_ID": "42", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "2"}
        self.process = subprocess.Popen([*argv, "--", command], env=env, stderr=subprocess.PIPE, text=True)

    def read(self) -> InstanceFile | None:
        with suppress(FileNotFoundError):
            return InstanceFile.from_dict(json.loads(self.file.read_text()), str(self.file))
        return None

    def wait_for(self, state: str, restarts: int = 0) -> InstanceFile:
        def found() -> InstanceFile | None:
            now = self.read()
            return now if now is not None and now.state == state and now.restarts >= restarts else None

        return wait_for(found)


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


@pytest.fixture
def server(tmp_path: Path) -> str:
    """A command that serves, and leaves its process id in ``pid``."""
    (tmp_path / "server.py").write_text(SERVER)
    return f"{sys.executable} -S {tmp_path}/server.py {{port}} {tmp_path}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StartedInstance]]:
    started: list[StartedInstance] = []

    def begin(command: str, *options: str) -> StartedInstance:
        started.append(StartedInstance(tmp_path / "services", command, *options))
        return started[-1]

    yield begin
    for one in started:
        one.process.terminate()
        one.process.communicate(timeout=PATIENCE_S)


def test_a_ready_instance_says_where_it_is_and_on_sigterm_answers_what_it_had(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instance = start(server)
    ready = instance.wait_for("ready")
    assert (ready.service, ready.job_id, ready.array_job_id, ready.task, ready.host) == ("chat", 42, 40, 2, "n1")
    assert (ready.device, ready.batch, ready.cores, ready.restarts, ready.reason) == ("cpu", 8, 2, 0, "")
    assert get(ready.port, "/health") == b"answered"
    answers: list[bytes] = []
    query = threading.Thread(target=lambda: answers.append(get(ready.port, "/slow")))
    query.start()
    wait_for((tmp_path / "slow-began").exists)
    instance.process.terminate()
    assert instance.wait_for("draining").since_s >= ready.since_s
    query.join(PATIENCE_S)
    assert answers == [b"answered"]
    assert instance.process.wait(PATIENCE_S) == 0
    assert list(instance.file.parent.iterdir()) == []


def test_the_heartbeat_goes_on(server: str, start: Callable[..., StartedInstance]) -> None:
    instance = start(server)
    first = instance.wait_for("ready")
    later = wait_for(lambda: (now := instance.read()) and now.heartbeat_s > first.heartbeat_s and now)
    assert (later.state, later.since_s) == ("ready", first.since_s)


def test_a_command_that_ends_is_started_again_on_another_port(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instance = start(f"test -e {tmp_path}/second || {{ touch {tmp_path}/second; exit 7; }}; exec {server}")
    failed = instance.wait_for("failed")
    assert "ended with status 7" in failed.reason
    ready = instance.wait_for("ready", restarts=1)
    assert (ready.restarts, ready.reason) == (1, "")


def test_pauses_between_starts_double(start: Callable[..., StartedInstance]) -> None:
    instance = start("exit 3 # {port}")
    instance.wait_for("failed", restarts=1)
    instance.process.terminate()
    told = instance.process.communicate(timeout=PATIENCE_S)[1]
    assert told.index("next start in 1 s") < told.index("next start in 2 s")
    assert not instance.file.exists()


def test_a_command_that_ignores_its_port_is_killed_with_its_children(
    tmp_path: Path, start: Callable[..., StartedInstance]
) -> None:
    instance = start(f"sleep 600 & echo $! >{tmp_path}/child; wait # {{port}}", "--start-limit-s", "1")
    failed = instance.wait_for("failed")
    assert "nothing listens there" in failed.reason
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not alive(child))


def test_a_command_that_becomes_sick_is_started_again(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instance = start(server)
    instance.wait_for("ready")
    first = int((tmp_path / "pid").read_text())
    (tmp_path / "sick").touch()
    assert "hangs" in instance.wait_for("failed").reason
    assert not alive(first)
    (tmp_path / "sick").unlink()
    instance.wait_for("ready", restarts=1)


def test_a_command_that_hangs_is_started_again(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instance = start(server, "--check-timeout-s", "0.5")
    instance.wait_for("ready")
    stopped = int((tmp_path / "pid").read_text())
    os.kill(stopped, signal.SIGSTOP)
    instance.wait_for("ready", restarts=1)
    assert not alive(stopped)


def test_asked_to_drain_it_says_so_and_goes_on_answering(server: str, start: Callable[..., StartedInstance]) -> None:
    instance = start(server)
    ready = instance.wait_for("ready")
    drain = instance.file.with_suffix(".drain")
    drain.touch()
    draining = instance.wait_for("draining")
    assert get(draining.port, "/health") == b"answered"
    drain.unlink()
    assert instance.wait_for("ready").port == ready.port
    drain.touch()
    instance.wait_for("draining")
    instance.process.terminate()
    assert instance.process.wait(PATIENCE_S) == 0
    assert list(instance.file.parent.iterdir()) == []


def test_a_requeued_job_does_not_drain_for_the_request_to_its_last_run(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instances = tmp_path / "services" / "chat" / "instances"
    instances.mkdir(parents=True, mode=0o700)
    (tmp_path / "services" / "chat").chmod(0o700)
    (instances / "n1.42.drain").touch()
    instance = start(server)
    instance.wait_for("ready")
    assert not (instances / "n1.42.drain").exists()


def test_a_folder_that_is_away_for_a_while_ends_no_service(
    tmp_path: Path, server: str, start: Callable[..., StartedInstance]
) -> None:
    instance = start(server)
    ready = instance.wait_for("ready")
    (tmp_path / "services").rename(tmp_path / "away")
    told = ""
    assert instance.process.stderr is not None
    while "cannot be written" not in told:
        told = instance.process.stderr.readline()
    assert get(ready.port, "/health") == b"answered"
    (tmp_path / "away").rename(tmp_path / "services")
    later = wait_for(lambda: (now := instance.read()) and now.heartbeat_s > ready.heartbeat_s and now)
    assert (later.state, later.port) == ("ready", ready.port)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(start: Callable[..., StartedInstance]) -> None:
    instance = start("trap '' TERM; sleep 600 & wait; wait # {port}", "--grace-s", "0.5")
    instance.wait_for("starting")
    instance.process.terminate()
    told = instance.process.communicate(timeout=PATIENCE_S)[1]
    assert "still runs after 0.5 s, and is killed" in told
    assert not instance.file.exists()


@pytest.mark.parametrize("part", ["chat", "chat/instances"])
def test_no_link_is_followed(tmp_path: Path, part: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "services" / part
    link.parent.mkdir(parents=True)
    link.parent.chmod(0o700)
    link.symlink_to(elsewhere)
    directory = slurm_soda_serve.InstanceDirectory(str(tmp_path / "services"), "chat", "n1.42")
    with pytest.raises(slurm_soda_serve.InstanceError, match=f"{part} is a link"):
        directory.prepare()
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_the_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    directory = slurm_soda_serve.InstanceDirectory(str(tmp_path / "services"), "chat", "n1.42")
    directory.prepare()
    target = tmp_path / "target"
    target.write_text("as it was")
    file = tmp_path / "services" / "chat" / "instances" / "n1.42.json"
    file.symlink_to(target)
    directory.write({"a": 1})
    assert target.read_text() == "as it was"
    assert not file.is_symlink()
    assert json.loads(file.read_text()) == {"a": 1}
    file.with_suffix(".drain").symlink_to(target)
    assert not directory.asked_to_drain()


def test_a_directory_that_others_can_write_is_closed_at_the_start_and_refused_later(tmp_path: Path) -> None:
    directory = slurm_soda_serve.InstanceDirectory(str(tmp_path / "services"), "chat", "n1.42")
    directory.prepare()
    (tmp_path / "services" / "chat").chmod(0o770)
    with pytest.raises(slurm_soda_serve.InstanceError, match="can be written by others"):
        directory.write({})
    directory.prepare()
    directory.write({})
    assert (tmp_path / "services" / "chat").stat().st_mode & 0o777 == 0o750
    (tmp_path / "services").chmod(0o777)
    with pytest.raises(slurm_soda_serve.InstanceError, match="can be written by others"):
        directory.prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server of another user")
def test_another_users_server_on_the_port_is_not_healthy() -> None:
    "".encode("idna")  # what the server imports while it is another user, who may not read it
    os.seteuid(65534)
    try:
        other = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    finally:
        os.seteuid(0)
    port = other.server_port
    with ThreadPoolExecutor() as pool:
        pool.submit(other.serve_forever)
        assert get(port, "/")
        assert slurm_soda_serve.listener_uids(port) == {65534}
        assert not slurm_soda_serve.is_healthy("127.0.0.1", port, "/")
        other.shutdown()
    other.server_close()
    assert slurm_soda_serve.listener_uids(port) == set()


@pytest.mark.skipif(os.geteuid() != 0 or not socket.has_ipv6, reason="only root can listen as another user")
def test_another_users_socket_that_takes_no_connection_of_this_one_is_no_matter() -> None:
    """Anybody on the node may listen on [::] or another address with the port of an instance, which must not fail for it."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    port = server.server_port
    os.seteuid(65534)
    try:
        foreign = [socket.socket(socket.AF_INET6), socket.socket()]
        foreign[0].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        foreign[0].bind(("::", port))
        foreign[1].bind(("127.0.0.2", port))
        for one in foreign:
            one.listen()
    finally:
        os.seteuid(0)
    with ThreadPoolExecutor() as pool:
        pool.submit(server.serve_forever)
        assert slurm_soda_serve.listener_uids(port) == {0, 65534}
        assert slurm_soda_serve.listener_uids(port, "127.0.0.1") == {0}
        assert slurm_soda_serve.listener_uids(port, "127.0.0.2") == {65534}
        assert slurm_soda_serve.listener_uids(port, "::1") == {65534}
        assert slurm_soda_serve.is_healthy("127.0.0.1", port, "/")
        server.shutdown()
    for each in (*foreign, server):
        each.close() if isinstance(each, socket.socket) else each.server_close()


def test_a_socket_for_both_families_takes_connections_of_either() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        for address in ("127.0.0.1", "::ffff:127.0.0.1", "::1"):
            assert slurm_soda_serve.listener_uids(server.getsockname()[1], address) == {os.geteuid()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--service", "Chat", "--", "x {port}"], "--service is 'Chat'"),
        (["--service", "chat", "--host", "a/b", "--", "x {port}"], "--host is 'a/b'"),
        (["--service", "chat", "--health", "health", "--", "x {port}"], "--health is 'health'"),
        (["--service", "chat", "--batch", "0", "--", "x {port}"], "--batch and --cores must be 1 or more"),
        (["--service", "chat", "--window-ms", "-1", "--", "x {port}"], "--window-ms"),
        (["--service", "chat", "--", "serve"], "does not name {port}"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        slurm_soda_serve.parse_options(["--folder", "/tmp/x", "--device", "cpu", *arguments])
    assert told in capsys.readouterr().err


def test_placeholders_are_filled_in_and_other_braces_stay() -> None:
    values = {"port": 8000, "device": "gpu", "window_ms": "12.5"}
    assert (
        slurm_soda_serve.fill_in("x {port} {device} {window_ms} ${HOME} {port}", values)
        == "x 8000 gpu 12.5 ${HOME} 8000"
    )


def test_it_is_one_file_for_python_3_8() -> None:
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
