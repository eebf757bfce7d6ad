"""Metrics in a whole sodad: on, off, and where the address is taken."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.metrics.site_metrics import SiteMetrics, begin_metrics
from slurm_soda.daemon.settings.addresses import ApiSettings, MetricsSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.wire.node_use import NodeUse
from slurm_soda.wire.records import NodeReport
from tests.daemon.api_server import api_server
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.metrics.metered import series
from tests.wire.fake_munged import FakeMunged

Start = Callable[..., Daemon]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def metrics_of(sodad: Daemon, listen: str) -> SiteMetrics:
    settings = Settings(metrics=MetricsSettings(listen=listen))
    metrics = begin_metrics(sodad.cycles._context, lambda: settings)
    sodad.cycles.on_cycle = metrics.on_cycle
    return metrics


def test_off_by_default_and_then_nothing_is_counted(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon()
    metrics = metrics_of(sodad, Settings().metrics.listen)
    assert (metrics.endpoint, metrics.problems) == (None, ())
    sodad.run()
    metrics.on_report(NodeReport("n1", "a", 1, 1.0))


def test_an_address_that_is_taken_costs_the_metrics_alone(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = metrics_of(sodad, f"127.0.0.1:{taken.getsockname()[1]}")
    assert metrics.endpoint is None
    sodad.cycles.problems = lambda: metrics.problems
    assert sodad.run().error == ""
    (problem,) = sodad.last_cycle().facts["problems"]
    assert "cannot be bound (Address already in use); change metrics.listen" in problem


def test_reports_of_agents_reach_the_figures(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon()
    metrics = metrics_of(sodad, "127.0.0.1:0")
    assert metrics.endpoint is not None
    store, clock = sodad.cycles._context.store, sodad.cycles._context.clock
    with ExitStack() as stack:
        writer = ReportWriter(store, clock, on_close=lambda: None, on_report=metrics.on_report)
        stack.callback(writer.close)
        address = ApiSettings(host="127.0.0.1", port=0)
        server = api_server(store, writer, FakeMunged(), address, metrics=metrics.endpoint)
        stack.callback(server.close)
        server.start()
        writer.submit(NodeReport("n1", "a", 1, clock.now_s(), use=(NodeUse(agent_cpu_s=7.5),))).result(10)
        sodad.run()
        url = f"http://127.0.0.1:{metrics.endpoint.port}/metrics/nodes"
        shown = series(httpx.get(url, trust_env=False, verify=False, timeout=5).content)
    assert shown["soda_agent_cpu_seconds_total", "node=n1"] == 7.5
    assert shown["soda_agent_last_report_timestamp_seconds", "node=n1"] == pytest.approx(clock.now_s(), abs=0.001)


@pytest.mark.thorough
def test_a_sodad_shows_its_failing_cycles(fresh_store: Path) -> None:
    """A real process, on a machine without Slurm."""
    port, folder = free_port(), fresh_store
    (folder / "soda.toml").write_text(
        f'state_dir = "{folder}"\nwake_path = "{folder}/wake"\n[store]\nurl = "sqlite:///{folder}/soda.db"\n'
        f'[api]\nhost = "127.0.0.1"\nport = 0\n[metrics]\nlisten = "127.0.0.1:{port}"\n'
        "[cycle]\ninterval_s = 0.5\nretry_s = 0.1\n[slurm]\naccounting = false\n"
    )
    argv = [sys.executable, "-m", "slurm_soda.daemon.main", "--config", str(folder / "soda.toml")]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ, "PATH": str(folder)})
    try:
        until_s = time.monotonic() + 60
        shown: dict[tuple[str, ...], float] = {}
        while not shown.get(("soda_cycles_total", "result=failed")):
            assert time.monotonic() < until_s
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, verify=False, timeout=5)
            except httpx.ConnectError:
                time.sleep(0.05)
                continue
            shown = series(answer.content)
        assert shown["soda_mode", "mode=observe"] == 1
        assert shown["soda_cycle_last_success_timestamp_seconds",] == 0
        assert not any(key[0] == "soda_gpus" for key in shown), "nobody has seen the cluster"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
