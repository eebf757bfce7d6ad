"""Queries are sent when they are due and measured from then, against real servers."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slurm_soda.services.load.__main__ import load
from slurm_soda.services.load.arrivals import PatternError
from slurm_soda.services.load.load_report import SentQuery, load_report
from slurm_soda.services.load.open_loop import run_load
from slurm_soda.services.percentile import percentile
from slurm_soda.services.slurm_soda_serve import free_port

Start = Callable[[type[socketserver.BaseRequestHandler], type[socketserver.TCPServer]], str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server; its address."""
    started: list[socketserver.TCPServer] = []

    def begin(
        handler: type[socketserver.BaseRequestHandler],
        kind: type[socketserver.TCPServer] = http.server.ThreadingHTTPServer,
    ) -> str:
        server = kind(("127.0.0.1", 0), handler, bind_and_activate=False)
        server.request_queue_size = 128
        server.server_bind()
        server.server_activate()
        started.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield begin
    for server in started:
        server.shutdown()
        server.server_close()


class Answers(http.server.BaseHTTPRequestHandler):
    """What the path asks for; the class counts connections."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
            return
        status = int(self.path[1:]) if self.path[1:].isdigit() else 200
        self.send_response(status if body == b"{}" else 400)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
        self.close_connection = self.path == "/closed"  # without a word: the next query finds the connection gone

    def log_message(self, *_: object) -> None:
        pass


def errors(queries: list[SentQuery]) -> list[str]:
    return [query.error for query in queries]


@pytest.mark.parametrize("path", ["/predict", "/chunked", "/closed"])
def test_every_query_is_answered_however_the_server_ends_its_answers(start: Start, path: str) -> None:
    queries = run_load(start(Answers) + path, [0.0, 0.05, 0.1, 0.15], body=b"{}")
    assert errors(queries) == [""] * 4
    assert [query.planned_s for query in queries] == [0.0, 0.05, 0.1, 0.15]


def test_connections_are_kept(start: Start) -> None:
    class Counted(Answers):
        connections = 0

    queries = run_load(start(Counted) + "/predict", [0.5 * number for number in range(4)], body=b"{}")
    assert errors(queries) == [""] * 4
    assert Counted.connections < 4


def test_a_slow_server_cannot_hide_behind_queries_that_wait(start: Start) -> None:
    """One query at a time, 20 ms each, and one due each 5 ms: the last waits for all, and none is sent later for it."""

    class Slow(Answers):
        def do_POST(self) -> None:
            time.sleep(0.02)
            super().do_POST()
            self.close_connection = True

    queries = run_load(start(Slow, http.server.HTTPServer) + "/x", [0.005 * number for number in range(20)], body=b"{}")
    assert errors(queries) == [""] * 20
    assert queries[-1].planned_s == pytest.approx(0.095)
    assert max(query.planned_s + query.latency_s for query in queries) >= 20 * 0.02
    assert max(query.latency_s for query in queries) >= 20 * 0.02 - 0.095


def test_errors_are_told_apart(start: Start) -> None:
    class Broken(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            time.sleep(0.5)

    server = start(Answers)
    assert errors(run_load(f"{server}/503", [0.0], body=b"{}")) == ["status 503"]
    assert errors(run_load(f"{server}/predict", [0.0], body=b"[]")) == ["status 400"]
    assert errors(run_load(f"http://127.0.0.1:{free_port()}/", [0.0])) == ["refused"]
    assert errors(run_load(start(Broken, socketserver.TCPServer), [0.0])) == ["broken answer"]
    assert errors(run_load(start(Silent, socketserver.ThreadingTCPServer), [0.0], timeout_s=0.1)) == ["timeout"]


@pytest.mark.parametrize("url", ["https://x/", "x", "http:///y", "http://x:99999/"])
def test_a_url_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(PatternError, match=url):
        run_load(url, [0.0])


def test_figures_of_a_load() -> None:
    queries = [SentQuery(float(number), 0.0, 0.01 * (number + 1)) for number in range(99)]
    report = load_report([*queries, SentQuery(99.0, 0.5, 3.0, "timeout")], target_ms=900.0)
    assert (report.queries, report.errors, report.violations, report.errors_by_kind) == (100, 1, 9, {"timeout": 1})
    assert (report.p50_ms, report.p95_ms, report.p99_ms) == pytest.approx((500.0, 950.0, 990.0))
    assert (report.max_ms, report.planned_qps, report.duration_s) == pytest.approx((990.0, 1.0, 102.0))
    assert report.within_target_ratio == 0.9
    empty = load_report([], 1.0)
    assert (empty.p99_ms, empty.within_target_ratio) == (0.0, 0.0)


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert [percentile([3.0, 1.0, 2.0], part) for part in (0.01, 0.34, 0.5, 0.67, 1.0)] == [1.0, 2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    "options",
    [
        ["--pattern", "constant"],
        ["--pattern", "poisson"],
        ["--pattern", "diurnal"],
        ["--pattern", "burst", "--every-s", "0.5", "--burst-s", "0.2"],
        ["--pattern", "replay"],
    ],
)
def test_the_command_plans_every_pattern(start: Start, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "q.json").write_text("{}")
    (tmp_path / "times").write_text("".join(f"{0.05 * number}\n" for number in range(10)))
    argv = [start(Answers) + "/predict", "--rate", "20", "--seconds", "0.5", "--times", f"{tmp_path}/times"]
    argv += ["--body", f"{tmp_path}/q.json", "--samples", f"{tmp_path}/s.csv", "--json", *options]
    done = CliRunner().invoke(load, argv)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.output)
    assert report["errors"] == 0
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 1 + report["queries"] > 1
    assert "p99" in CliRunner().invoke(load, [word for word in argv if word != "--json"]).output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--pattern", "replay"], "needs --times"),
        (["--pattern", "burst", "--every-s", "1", "--burst-s", "2"], "--burst-s is 2"),
        (["--pattern", "constant", "--rate", "0"], "--rate"),
    ],
)
def test_options_that_do_not_go_together_are_named(options: list[str], told: str) -> None:
    done = CliRunner().invoke(load, ["http://127.0.0.1:1/", *options])
    assert done.exit_code != 0
    assert told in done.output
