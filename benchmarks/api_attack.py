"""What somebody on the network costs sodad: ``python -m benchmarks.api_attack``.

Two attacks on the HTTP side of sodad, which runs in a process of its own with a limit on file descriptors: requests that
never end their header, and reports whose bodies never end, with credentials that the controller believes. Meanwhile this
process asks for the status, as a user does, and sodad's process starts a program over and over, as a cycle does.
"""

from __future__ import annotations

import http.client
import itertools
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import click
import psutil

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.server import ApiServer, make_app
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.config import ApiSettings, Settings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.wire.munge import Munge

MAX_BODY = 4 * 1024 * 1024
numbers = itertools.count()


def munge_of_root(argv: tuple[str, ...], _stdin: bytes, _timeout_s: float) -> tuple[int, bytes, bytes]:
    """In place of munge and unmunge: every credential is root's, of whatever body."""
    if argv[0] == "munge":
        return 0, f"MUNGE:{next(numbers):08d}:\n".encode(), b""
    return 0, b"STATUS: Success (0)\nUID: 0\nENCODE_HOST: n1 (10.0.0.2)\n\nany", b""


def serve(descriptors: int, told: Connection) -> None:
    """sodad's HTTP side until the other end says so; tells its port, then the commands that failed and the slowest one."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with tempfile.TemporaryDirectory() as directory:
        store = open_store(f"sqlite:///{Path(directory)}/soda.db")
        writer = ReportWriter(store, SystemClock(), on_close=lambda: None)
        settings = ApiSettings(host="127.0.0.1", port=0, max_report_bytes=MAX_BODY)
        views = ViewRoutes(store, SystemClock(), Settings)
        server = ApiServer(make_app(writer, Munge(run=munge_of_root), settings, views), settings)
        server.start()
        told.send(server.port)
        run, failed, slowest_s = LocalCommandRunner(), 0, 0.0
        while not told.poll(0.1):
            began_s = time.monotonic()
            failed += run(["/bin/true"], stdin=b"", timeout_s=5, env={}).status != 0
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        told.send((failed, slowest_s))
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
    head = f"POST /v1/reports HTTP/1.1\r\nHost: ctl\r\nX-Soda-Munge: MUNGE:AA==:\r\nContent-Length: {MAX_BODY}\r\n\r\n"
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
            connection.request("GET", "/v1/status")
            json.loads(connection.getresponse().read())
    except OSError:
        return None
    return time.monotonic() - began_s


def measure(attack: str, count: int, descriptors: int) -> str:
    """One attack on a fresh sodad, as a line of figures."""
    told, own = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(descriptors, own))
    process.start()
    port: int = told.recv()
    seen = psutil.Process(process.pid)
    quiet_s, before_mib = asked_s(port), seen.memory_info().rss / 2**20
    with attacked(attack, count, port):
        answers = [asked_s(port) for _ in range(10)]
        during_mib, open_files = seen.memory_info().rss / 2**20, seen.num_fds()
    told.send(None)
    failed, slowest_s = told.recv()
    process.join(10)
    process.kill()
    answered = [taken_s for taken_s in answers if taken_s is not None]
    return (
        f"{count} {attack}: RSS {before_mib:.0f} MiB, then {during_mib:.0f} MiB; {open_files} of {descriptors} descriptors; "
        f"GET alone {1000 * (quiet_s or 0):.0f} ms, meanwhile {len(answered)} of {len(answers)} answered, slowest "
        f"{1000 * max(answered, default=0):.0f} ms; commands that failed {failed}, slowest {1000 * slowest_s:.0f} ms"
    )


@click.command(help=__doc__)
@click.option("--descriptors", default=400, show_default=True, help="sodad's limit on open files")
def main(descriptors: int) -> None:
    """Measure both."""
    click.echo(measure("half-open GET", 400, descriptors))
    click.echo(measure("unfinished POST", 100, descriptors))


if __name__ == "__main__":
    main()
