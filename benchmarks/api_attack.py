"""What somebody on the network costs sodad: ``python -m benchmarks.api_attack``.

Three attacks on the HTTP side of sodad, which runs in a process of its own with a limit on file descriptors: requests that
never end their header; reports whose bodies never end, with credentials that the controller believes; and requests from
another address with false credentials, as many as it answers in ten seconds, with sodad's limit on them and without.
Meanwhile this process asks for the status, as a user does, and sodad's process starts a program over and over, as a cycle
does. In place of unmunge, which checks a credential, an empty program is started.
"""

from __future__ import annotations

import base64
import http.client
import json
import multiprocessing
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import click
import psutil

from slurm_soda.daemon.api.credential_checks import CheckLimits, CredentialChecks
from slurm_soda.daemon.api.report_routes import ReportRoutes
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.api.viewers import ViewerRights
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge, run_program

MAX_BODY = 4 * 1024 * 1024
FLOOD_S = 10.0
FLOOD_THREADS = 8
NO_LIMIT = CheckLimits(failures_of_host=10**9, failures=10**9)


class MungeOfRoot:
    """In place of munge and unmunge: what the first made is root's, and the second refuses everything else."""

    def __init__(self) -> None:
        self.checked = 0

    def __call__(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run one of the two."""
        if argv[0] == "munge":
            return 0, b"MUNGE:" + base64.b64encode(stdin) + b":\n", b""
        self.checked += 1
        run_program(("true",), b"", timeout_s)
        payload = base64.b64decode(stdin[len("MUNGE:") : -1])
        if not payload.startswith(b"slurm-soda"):
            return 14, b"", b"unmunge: Error: Invalid credential"
        return 0, b"STATUS: Success (0)\nUID: 0\nENCODE_HOST: n1 (10.0.0.2)\n\n" + payload, b""


def serve(descriptors: int, limits: CheckLimits, told: Connection) -> None:
    """sodad's HTTP side until the other end says so; tells its port, then the commands that failed, the slowest one, and
    the credentials that were checked.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with tempfile.TemporaryDirectory() as directory:
        store, clock, run = open_store(f"sqlite:///{Path(directory)}/soda.db"), SystemClock(), LocalCommandRunner()
        writer = ReportWriter(store, clock, on_close=lambda: None)
        settings = ApiSettings(host="127.0.0.1", port=0, max_report_bytes=MAX_BODY)
        programs = MungeOfRoot()
        checks = CredentialChecks(Munge(run=programs), clock, limits)
        views = ViewRoutes(store, clock, ViewAccess(checks, ViewerRights(run, clock)), Settings)
        reports = ReportRoutes(writer, Munge(run=programs), checks, settings)
        server = ApiServer(reports.routes(), views.routes(), settings)
        server.start()
        told.send(server.port)
        failed, slowest_s = 0, 0.0
        while not told.poll(0.1):
            began_s = time.monotonic()
            failed += run(["/bin/true"], stdin=b"", timeout_s=5, env={}).status != 0
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        told.send((failed, slowest_s, programs.checked))
        server.close()
        writer.close()
        store.close()


def half_open(port: int) -> socket.socket:
    """A connection with the beginning of a header."""
    connection = socket.create_connection(("127.0.0.1", port), 5)
    connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: ctl\r\n")
    return connection


def unfinished(port: int) -> socket.socket:
    """A connection with a report of the largest size, of which the last byte is missing."""
    connection = socket.create_connection(("127.0.0.1", port), 5)
    connection.settimeout(0.5)
    credential = f"{CREDENTIAL_HEADER}: {Munge(run=MungeOfRoot()).encode(b'another')}"
    head = f"POST /v1/reports HTTP/1.1\r\nHost: ctl\r\n{credential}\r\nContent-Length: {MAX_BODY}\r\n\r\n"
    with suppress(OSError):  # sodad takes no more
        connection.sendall(head.encode() + bytes(MAX_BODY - 1))
    return connection


@contextmanager
def attacked(attack: str, count: int, port: int) -> Iterator[None]:
    """All the attack's connections are open meanwhile."""
    connections = []
    try:
        for _ in range(count):
            with suppress(OSError):
                connections.append(half_open(port) if attack == "half-open GET" else unfinished(port))
        yield
    finally:
        for connection in connections:
            connection.close()


def asked_s(port: int) -> float | None:
    """Seconds to an answer with the status; ``None``: none within 2 s, which is how long sodactl waits."""
    began_s = time.monotonic()
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
            credential = Munge(run=MungeOfRoot()).encode_request(b"GET /v1/status?")
            connection.request("GET", "/v1/status", headers={CREDENTIAL_HEADER: credential})
            json.loads(connection.getresponse().read())
    except OSError:
        return None
    return time.monotonic() - began_s


class Flood(threading.Thread):
    """Requests with false credentials from 127.0.0.2, one after the other."""

    def __init__(self, port: int, until_s: float) -> None:
        super().__init__()
        self.port, self.until_s, self.sent = port, until_s, 0

    def run(self) -> None:
        """Ask until then."""
        head = f"GET /v1/status HTTP/1.1\r\nHost: ctl\r\n{CREDENTIAL_HEADER}: MUNGE:AAAA:\r\n\r\n".encode()
        while time.monotonic() < self.until_s:
            with (
                suppress(OSError),
                closing(socket.create_connection(("127.0.0.1", self.port), 5, ("127.0.0.2", 0))) as connection,
            ):
                connection.sendall(head)
                self.sent += connection.recv(1000).startswith(b"HTTP/1.1 4")


class ServedProcess:
    """A fresh sodad's HTTP side."""

    def __init__(self, descriptors: int, limits: CheckLimits | None = None) -> None:
        self._told, own = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=serve, args=(descriptors, limits or CheckLimits(), own))
        self._process.start()
        self.port: int = self._told.recv()
        self.seen = psutil.Process(self._process.pid)

    def end(self) -> tuple[int, float, int]:
        """Stop it; what it told last."""
        self._told.send(None)
        told: tuple[int, float, int] = self._told.recv()
        self._process.join(10)
        self._process.kill()
        return told


def measure(attack: str, count: int, descriptors: int) -> str:
    """One attack on a fresh sodad, as a line of figures."""
    sodad = ServedProcess(descriptors)
    quiet_s, before_mib = asked_s(sodad.port), sodad.seen.memory_info().rss / 2**20
    with attacked(attack, count, sodad.port):
        answers = [asked_s(sodad.port) for _ in range(10)]
        during_mib, open_files = sodad.seen.memory_info().rss / 2**20, sodad.seen.num_fds()
    failed, slowest_s, _ = sodad.end()
    return (
        f"{count} {attack}: RSS {before_mib:.0f} MiB, then {during_mib:.0f} MiB; {open_files} of {descriptors} descriptors; "
        f"GET alone {1000 * (quiet_s or 0):.0f} ms, meanwhile {answers_text(answers)}; "
        f"commands that failed {failed}, slowest {1000 * slowest_s:.0f} ms"
    )


def measure_flood(descriptors: int, limits: CheckLimits, what: str) -> str:
    """False credentials from one address, as a line of figures."""
    sodad = ServedProcess(descriptors, limits)
    asked_s(sodad.port)
    floods = [Flood(sodad.port, time.monotonic() + FLOOD_S) for _ in range(FLOOD_THREADS)]
    for flood in floods:
        flood.start()
    answers = []
    while any(flood.is_alive() for flood in floods):
        answers.append(asked_s(sodad.port))
        time.sleep(0.5)
    failed, slowest_s, checked = sodad.end()
    false = checked - 1 - len(answers)
    return (
        f"false credentials {what}: {sum(flood.sent for flood in floods)} requests in {FLOOD_S:.0f} s, {false} checked; "
        f"meanwhile {answers_text(answers)}; commands that failed {failed}, slowest {1000 * slowest_s:.0f} ms"
    )


def answers_text(answers: list[float | None]) -> str:
    """How a user fared."""
    answered = [taken_s for taken_s in answers if taken_s is not None]
    return f"{len(answered)} of {len(answers)} answered, slowest {1000 * max(answered, default=0):.0f} ms"


@click.command(help=__doc__)
@click.option("--descriptors", default=400, show_default=True, help="sodad's limit on open files")
def main(descriptors: int) -> None:
    """Measure all three."""
    click.echo(measure("half-open GET", 400, descriptors))
    click.echo(measure("unfinished POST", 100, descriptors))
    click.echo(measure_flood(descriptors, CheckLimits(), "with sodad's limit"))
    click.echo(measure_flood(descriptors, NO_LIMIT, "without a limit"))


if __name__ == "__main__":
    main()
