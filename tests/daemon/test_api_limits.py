"""What anybody on the network can make sodad hold, and for how long; who is served meanwhile."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from slurm_soda.daemon.api import routes
from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.records import NodeReport
from tests.daemon.api_server import api_server, signed
from tests.wire.fake_munged import FakeMunged

MAX_BODY = 10_000
LIMITS = ConnectionLimits(connections=30, per_peer=20, header_s=60, body_s=60, answer_s=60)


@dataclass
class Site:
    server: ApiServer
    munged: FakeMunged
    stack: ExitStack

    def connect(self, sent: bytes, source: str = "127.0.0.1") -> socket.socket:
        """A connection over which so much was sent, until the test's end."""
        connection = socket.create_connection(("127.0.0.1", self.server.port), 5, (source, 0))
        self.stack.enter_context(closing(connection))
        connection.sendall(sent)
        return connection

    def held(self) -> int:
        return sum(len(server.server_state.connections) for server in self.server._servers)

    def status(self, path: str = "/v1/status") -> int:
        url, headers = f"http://127.0.0.1:{self.server.port}{path}", signed(self.munged, path)
        return httpx.get(url, headers=headers, trust_env=False, verify=False, timeout=5).status_code

    def status_request(self) -> bytes:
        """A whole GET with a credential of its own."""
        ((name, credential),) = signed(self.munged, "/v1/status").items()
        return f"GET /v1/status HTTP/1.1\r\nHost: ctl\r\n{name}: {credential}\r\n\r\n".encode()


@pytest.fixture
def serve(fresh_store: Path) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def start(limits: ConnectionLimits = LIMITS) -> Site:
            store = open_store(f"sqlite:///{fresh_store}/soda.db")
            stack.callback(store.close)
            munged, writer = FakeMunged(), ReportWriter(store, SystemClock(), on_close=lambda: None)
            stack.callback(writer.close)
            settings = ApiSettings(host="127.0.0.1", port=0, max_report_bytes=MAX_BODY)
            server = api_server(store, writer, munged, settings, limits)
            server.start()
            stack.callback(server.close)
            return Site(server, munged, stack)

        yield start


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_ended(connection: socket.socket) -> bool:
    """The other side has ended it, within a second."""
    connection.settimeout(1)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


HALF_OPEN = b"GET /v1/status HTTP/1.1\r\nHost: ctl\r\n"


def report_head(length: int, credential: str = "", path: str = "/v1/reports") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: ctl", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *([f"{CREDENTIAL_HEADER}: {credential}"] if credential else []), "", ""]).encode()


def test_connections_of_one_host_are_bounded_and_it_is_still_served(serve: Callable[..., Site]) -> None:
    site = serve()
    connections = [site.connect(HALF_OPEN) for _ in range(100)]
    until(lambda: site.held() <= LIMITS.per_peer)
    assert site.status() == 200
    assert is_ended(connections[0])  # the oldest one
    assert site.held() <= LIMITS.per_peer


def test_connections_of_all_hosts_are_bounded_and_others_are_still_served(serve: Callable[..., Site]) -> None:
    site = serve()
    for host in range(2, 12):
        for _ in range(10):
            site.connect(HALF_OPEN, f"127.0.0.{host}")
    until(lambda: site.held() <= LIMITS.connections)
    assert site.status() == 200
    assert site.held() <= LIMITS.connections


def test_a_quarter_of_the_descriptors_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    from slurm_soda.daemon.api import connection_limits  # noqa: PLC0415

    for most_files, connections in [(400, 100), (1024, 256), (-1, 256), (3, 1)]:
        monkeypatch.setattr(connection_limits.resource, "getrlimit", lambda _, most=most_files: (most, most))
        limits = ConnectionLimits().within_descriptors()
        assert (limits.connections, limits.per_peer) == (connections, min(64, connections))


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"", ConnectionLimits(header_s=0.2, body_s=0.1)),
        (HALF_OPEN, ConnectionLimits(header_s=0.1)),
        (report_head(100, "CREDENTIAL") + b"half", ConnectionLimits(body_s=0.1)),
        (b"GET /v1/status HTTP/1.1\r\nHost: ctl\r\nContent-Length: 9\r\n\r\n", ConnectionLimits(answer_s=1)),
    ],
    ids=["nothing", "half a header", "half a body", "answered before its body"],
)
def test_deadlines(serve: Callable[..., Site], sent: bytes, limits: ConnectionLimits) -> None:
    site = serve(limits)
    connection = site.connect(sent.replace(b"CREDENTIAL", Munge(run=site.munged).encode(b"other").encode()))
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    until(lambda: site.held() == 0)
    assert "asyncio" not in site.server._refusals._counts, "nothing went wrong in a deadline itself"


def test_a_connection_serves_one_request(serve: Callable[..., Site]) -> None:
    site = serve()
    connection = site.connect(site.status_request() + site.status_request())
    connection.settimeout(5)
    said = b""
    while part := connection.recv(65536):
        said += part
    assert said.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in said.lower()


@pytest.mark.parametrize("credential", ["", "MUNGE:never:made", "MUNGE:AAAA:"])
def test_without_a_credential_nothing_of_a_body_is_waited_for(serve: Callable[..., Site], credential: str) -> None:
    site = serve()
    connection = site.connect(report_head(MAX_BODY, credential))
    connection.settimeout(5)
    assert connection.recv(65536).startswith(b"HTTP/1.1 403")


def test_without_the_right_user_nothing_of_a_body_is_waited_for(serve: Callable[..., Site]) -> None:
    site = serve()
    site.munged.uid = 1000
    connection = site.connect(report_head(MAX_BODY, Munge(run=site.munged).encode(b"x")))
    connection.settimeout(5)
    assert connection.recv(65536).startswith(b"HTTP/1.1 403")


def test_unfinished_reports_that_are_read_are_bounded(serve: Callable[..., Site], monkeypatch: Any) -> None:
    from slurm_soda.daemon.api import report_routes  # noqa: PLC0415

    monkeypatch.setattr(report_routes, "MAX_REPORTS_IN_HAND", 2)
    site = serve(ConnectionLimits(body_s=0.5))
    munge = Munge(run=site.munged)
    for _ in range(2):
        site.connect(report_head(MAX_BODY, munge.encode(b"x")) + b"half")
    body = json.dumps(NodeReport("n1", "a", 1, 1.0).to_dict()).encode()
    until(lambda: all(value is None for value in site.munged.sealed.values()))
    began_s = time.monotonic()
    answer = httpx.post(
        f"http://127.0.0.1:{site.server.port}/v1/reports", content=body,
        headers={CREDENTIAL_HEADER: munge.encode(body)}, trust_env=False, verify=False,
    )  # fmt: skip
    assert answer.status_code == 200  # once the two are given up
    assert time.monotonic() - began_s > 0.1


def test_requests_of_one_host_that_nobody_waits_for_are_bounded(
    serve: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that goes away does not end what it asked for."""
    begun = []

    def slow(*_: Any, **__: Any) -> dict[str, str]:
        begun.append(1)
        time.sleep(0.05)
        return {}

    monkeypatch.setattr(routes.views, "status_view", slow)
    site = serve(ConnectionLimits(per_peer=6))
    for _ in range(60):
        site.connect(site.status_request()).close()
    with closing(
        http.client.HTTPConnection("127.0.0.1", site.server.port, 5, source_address=("127.0.0.2", 0))
    ) as other:
        other.request("GET", "/v1/status", headers=signed(site.munged, "/v1/status"))
        assert other.getresponse().status == 200
    assert len(begun) < 30


def test_an_agent_is_served_while_users_of_its_node_look_as_often_as_they_can(
    serve: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def slow(*_: Any, **__: Any) -> dict[str, str]:
        over.wait(20)
        return {}

    monkeypatch.setattr(routes.views, "status_view", slow)
    site = serve(ConnectionLimits(per_peer=12))
    looking = [site.connect(site.status_request()) for _ in range(12)]
    refused = [connection.recv(100) for connection in looking[9:]]
    body = json.dumps(NodeReport("n1", "a", 1, 1.0).to_dict()).encode()
    try:
        answer = httpx.post(
            f"http://127.0.0.1:{site.server.port}/v1/reports", content=body,
            headers={CREDENTIAL_HEADER: Munge(run=site.munged).encode(body)}, trust_env=False, verify=False,
        )  # fmt: skip
    finally:
        over.set()
    assert answer.status_code == 200
    assert {said.split()[1] for said in refused} == {b"503"}


def test_refusals_are_counted_and_not_logged_one_by_one(serve: Callable[..., Site], capfd: Any) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    try:
        site = serve()
        for _ in range(5):
            assert site.connect(b"nonsense\r\n\r\n").recv(100).startswith(b"HTTP/1.1 400")
            assert site.connect(report_head(0)).recv(100).startswith(b"HTTP/1.1 403")
            assert site.connect(report_head(9, Munge(run=site.munged).encode(b"x")) + b"half").close() is None
            assert site.status("/v1/jobs/0") == 422
        until(lambda: site.held() == 0)
        site.server.close()
    finally:
        LOGGER.removeHandler(handler)
    (line,) = records
    assert line.startswith("requests-refused ")
    assert {"status_403=5", "status_422=5"} <= set(line.split())
    assert "latest=" in line
    assert capfd.readouterr().err == ""


def test_cpu_fits_are_read_once_a_cycle(serve: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = routes.read_cpu_fit_report

    def counted(*arguments: Any) -> Any:
        reads.append(arguments[1:])
        return read(*arguments)

    monkeypatch.setattr(routes, "read_cpu_fit_report", counted)
    site = serve()
    for path in ["/v1/fit?limit=10", "/v1/fit?limit=10", "/v1/fit?limit=10&user=alice", "/v1/fit?limit=10"]:
        assert site.status(path) == 200
    assert len(reads) == 2


def test_junk_from_one_host_is_hardly_checked_and_others_are_served(serve: Callable[..., Site]) -> None:
    site = serve(ConnectionLimits())
    junk = f"GET /v1/status HTTP/1.1\r\nHost: ctl\r\n{CREDENTIAL_HEADER}: MUNGE:AAAA:\r\n\r\n".encode()
    answers = []
    for _ in range(3):
        flood = [site.connect(junk, "127.0.0.2") for _ in range(40)]
        assert site.status() == 200
        answers += [connection.recv(100).split()[1] for connection in flood]
    assert {b"403", b"429"} == set(answers)
    assert site.munged.decoded < 60  # of 123: 20 at once and one a second, and those that were on their way
