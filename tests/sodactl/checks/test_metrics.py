"""``sodactl doctor`` on metrics: sodad answers where an address is configured."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import HostLock
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm
from tests.sodactl.conftest import Bench

GOOD = b'# HELP x\nx 1\nsoda_build_info{version="1"} 1.0\nsoda_metrics_section_failed{section="jobs"} 0.0\n'
BROKEN = GOOD + b'soda_metrics_section_failed{section="services"} 1.0\n'


@pytest.fixture
def answering() -> Iterator[Callable[[bytes, int], int]]:
    """Something listens; gives its port."""
    with ExitStack() as stack:

        def start(text: bytes, status: int) -> int:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    assert self.path == "/metrics"
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

                def log_message(self, *_: object) -> None:
                    pass

            server = HTTPServer(("127.0.0.1", 0), Handler)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            return int(server.server_port)

        yield start


def found(soda: Bench, listen: str, more: str = "") -> list[tuple[str, str]]:
    soda.config.write_text(f'{soda.config.read_text().partition("[metrics]")[0]}[metrics]\nlisten = "{listen}"\n{more}')
    findings = soda("doctor", "--json", status=None).document["findings"]
    return [(one["state"], f"{one['found']}; {one['remedy']}") for one in findings if one["check"] == "metrics"]


@pytest.fixture
def lives(soda: Bench, recorded: RecordedSlurm, tmp_path: Path) -> Iterator[None]:
    """A sodad runs here."""
    soda.config.write_text(f'state_dir = "{tmp_path}"\n{soda.config.read_text()}')
    soda.pids.add(os.getpid())
    with HostLock(tmp_path):
        yield


def test_nothing_is_said_where_none_are_wanted(soda: Bench, lives: None) -> None:
    assert found(soda, "") == []


def test_nothing_is_said_where_no_sodad_runs(soda: Bench, recorded: RecordedSlurm) -> None:
    assert found(soda, "127.0.0.1:1") == []


@pytest.mark.parametrize(
    ("text", "status", "state", "words"),
    [
        (GOOD, 200, "ok", "answers with 3 series"),
        (BROKEN, 200, "warn", "lacks services"),
        (b"<html>another program's</html>", 200, "fail", "not with sodad's metrics"),
        (GOOD, 503, "fail", "status 503"),
    ],
)
def test_what_answers(
    soda: Bench, lives: None, answering: Callable[[bytes, int], int], text: bytes, status: int, state: str, words: str
) -> None:
    ((told, said),) = found(soda, f"127.0.0.1:{answering(text, status)}")
    assert (told, words in said) == (state, True), said


def test_nobody_answers(soda: Bench, lives: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ((state, said),) = found(soda, f"127.0.0.1:{port}")
    assert state == "fail"
    assert f"http://127.0.0.1:{port}/metrics does not answer (Connection refused)" in said
    assert "restart sodad if metrics.listen is new" in said


def test_an_address_for_all_shows_what_private_data_keeps_private(
    soda: Bench, lives: None, recorded: RecordedSlurm, answering: Callable[[bytes, int], int]
) -> None:
    port = answering(GOOD, 200)
    recorded.change(CONFIG, "PrivateData             = none", "PrivateData             = jobs,nodes")
    assert [state for state, _ in found(soda, f"0.0.0.0:{port}")] == ["warn"]
    assert [state for state, _ in found(soda, f"0.0.0.0:{port}", "nodes = false\n")] == ["ok"]
    assert [state for state, _ in found(soda, f"127.0.0.1:{port}")] == ["ok"]
