"""Where sodactl looks for sodad without rights on the store, and one line where it is not or somebody else is."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.sodactl.conftest import Bench, record
from tests.sodactl.view_source.conftest import NO_STORE, fill, leave


@dataclass
class Scontrol:
    """Tells slurm.conf's SlurmctldHost lines, and nothing else."""

    hosts: Sequence[str]

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        assert list(argv) == ["scontrol", "show", "config"]
        lines = [f"SlurmctldHost[{at}]        = {host}\n" for at, host in enumerate(self.hosts)]
        return CompletedCommand(tuple(argv), 0, "".join(lines).encode(), b"")


@pytest.mark.parametrize("how", ["SODA_URL", "slurm.conf", "slurm.conf, second host"])
def test_where_sodad_is_found(soda: Bench, sodad: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(soda)
    port = sodad.rsplit(":", 1)[1]
    soda.config.write_text(f"{NO_STORE}[api]\nport = {port}\n")
    if how == "SODA_URL":
        monkeypatch.setenv("SODA_URL", f"{sodad}/")
    else:
        away = ["backup(127.0.0.9)"] if "second" in how else []
        soda.commands = Scontrol([*away, "ctl(127.0.0.1)"])
    assert soda("status", "--json").document["daemon"]["alive"] is True


def test_nobody_answers(soda: Bench) -> None:
    leave(soda, "http://127.0.0.1:1")
    shown = soda("status", status=1)
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    for part in ("http://127.0.0.1:1", "refused", "/nonexistent/soda.db does not exist"):
        assert part in shown.err
    soda.slurm.queue = [record(7)]
    for command in (["jobs", "--json"], ["explain", "7", "--json"]):
        (warning,) = soda(*command).document["warnings"]
        assert "http://127.0.0.1:1" in warning


@pytest.mark.parametrize(("hosts", "status"), [(["ctl"], 3), (["ctl.example.org"], 3), (["another"], 1)])
def test_a_store_that_is_not_at_home_is_nowhere(soda: Bench, hosts: list[str], status: int) -> None:
    soda.config.write_text(f"{NO_STORE}[api]\nport = 1\n")
    soda.commands = Scontrol([f"{host}(127.0.0.1)" for host in hosts])
    shown = soda("status", status=status)
    assert ("never started" in shown.out) == (status == 3)


@pytest.mark.parametrize(
    ("code", "said"),
    [(1, "slurm_load_ctl_conf error: Unable to contact slurm controller"), (None, "scontrol did not answer in 15 s")],
)
def test_where_sodad_is_cannot_be_asked(soda: Bench, code: int | None, said: str) -> None:
    """That is no proof that it was never started: MUNGE or slurmctld may be down."""

    def failing(argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str]) -> CompletedCommand:
        return CompletedCommand(tuple(argv), code, b"", b"" if code is None else said.encode() + b"\nmore\n")

    soda.config.write_text(NO_STORE)
    soda.commands = failing
    shown = soda("status", status=1)
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    for part in (said, "SODA_URL=http://HOST:6830", "/nonexistent/soda.db does not exist"):
        assert part in shown.err
    soda.slurm.queue = [record(7)]
    (warning,) = soda("jobs", "--json").document["warnings"]
    assert said in warning


HEAD = {
    "epoch": None,
    "daemon_alive": True,
    "stall": "",
    "mode": "observe",
    "policy": "fifo",
    "parameters": {},
    "private": [],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"{", "not JSON"),
        (200, b"\xff", "not JSON"),
        (200, b"[" * 100_000, "not JSON"),
        (200, b"[]", "JobDetailView is no dict"),
        (200, b"{}", "JobDetailView has no head"),
        (200, json.dumps({"head": {**HEAD, "daemon_alive": 1}}).encode(), "JobDetailView.head.daemon_alive is no bool"),
        (200, json.dumps({"head": {**HEAD, "mode": None}}).encode(), "JobDetailView.head.mode is no str"),
        (200, json.dumps({"head": HEAD, "job": {"id": "x"}}).encode(), "JobDetailView.job.id is no int"),
        (200, json.dumps({"head": HEAD, "job": None, "runs": {}}).encode(), "JobDetailView.runs is no list"),
        (404, b"\x1b[31mnothing\nhere", "404 "),
        (302, b"", "302"),
    ],
)
def test_somebody_else_answers(soda: Bench, status: int, body: bytes, said: str) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        leave(soda, f"http://127.0.0.1:{server.server_port}")
        soda.slurm.down = True
        shown = soda("explain", "7", status=1)
    finally:
        server.shutdown()
        server.server_close()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert "\x1b" not in shown.err


def test_a_url_that_is_none(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    soda.config.write_text(NO_STORE)
    monkeypatch.setenv("SODA_URL", "ctl:6830")
    shown = soda("status", status=1)
    assert "ctl:6830" in shown.err
    assert shown.err.count("\n") == 1


def test_a_wrong_url_in_the_file_is_said(soda: Bench, tmp_path: Path) -> None:
    leave(soda, "ctl:6830")
    assert "api.url = 'ctl:6830'" in soda("status", status=1).err
