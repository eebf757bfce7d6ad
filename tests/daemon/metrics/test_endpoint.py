"""The address where metrics are shown: to whom, in which format, and what anybody there can make sodad hold."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.metrics.cycle_figures import ClusterFigures, GpuCounts
from slurm_soda.daemon.metrics.cycle_meter import CycleFigures
from slurm_soda.daemon.metrics.endpoint import METRICS_LIMITS, bind_metrics
from slurm_soda.daemon.settings.addresses import MetricsSettings
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.records import NodeReport
from tests.daemon.metrics.conftest import Served
from tests.daemon.metrics.metered import names, series

Serve = Callable[..., Served]
ON = ClusterFigures(gpus_on={"n1": GpuCounts(4, 2, 2, 0)})
FIGURES = CycleFigures(mode="observe", policy="soda", last_s=1.0, success_s=1.0, cluster=ON)


def test_the_two_formats(serve: Serve) -> None:
    site = serve()
    plain = site.get()
    assert plain.status_code == 200
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series(plain.content)["soda_services",] == 0
    assert series(plain.content)["process_resident_memory_bytes",] > 1 << 20
    accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain"
    openmetrics = site.get(accept=accept)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert {one.name for one in parse_openmetrics(openmetrics.text)} >= {"soda_services", "soda_cycles"}


def test_nodes_have_a_path_of_their_own(serve: Serve) -> None:
    site = serve()
    site.metered.meter.figures = FIGURES
    site.metered.report(NodeReport("n1", "a", 1, 1.0))
    shown = site.get("/metrics/nodes")
    assert shown.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series(shown.content)["soda_node_gpus_alloc", "node=n1"] == 2
    assert not any(name.startswith("soda_node_") for name in names(site.get().content))


def test_nodes_can_be_left_out(serve: Serve) -> None:
    site = serve(nodes=False)
    assert site.get("/metrics/nodes").status_code == 404
    assert "metrics.nodes" in site.get("/metrics/nodes").text


def test_views_and_reports_are_not_shown_there_nor_metrics_elsewhere(serve: Serve) -> None:
    site = serve()
    assert [site.get(path).status_code for path in ("/v1/status", "/v1/alive", "/v1/reports", "/", "/docs")] == [
        404
    ] * 5
    elsewhere = f"http://127.0.0.1:{site.server.port}/metrics"
    assert httpx.get(elsewhere, trust_env=False, verify=False).status_code == 404
    assert site.server.report_port == site.server.port != site.port
    posted = httpx.post(f"http://{site.target}/metrics", content=b"x" * 100, trust_env=False, verify=False)
    assert posted.status_code == 405


def test_an_answer_serves_all_who_ask_within_a_second(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked = serve(), []
    known = site.metered.services.known
    monkeypatch.setattr(type(site.metered.services), "known", lambda _: asked.append(1) or known())
    for _ in range(5):
        site.get()
    assert len(asked) <= 2


def test_what_cannot_be_made_at_all_is_said_and_the_next_scrape_tries_again(serve: Serve) -> None:
    site = serve()
    broken = replace(FIGURES, cluster=replace(ON, gpus_on={"n1": None}))  # type: ignore[dict-item]
    site.metered.meter.figures = broken
    failed = site.get("/metrics/nodes")
    assert (failed.status_code, "log" in failed.text) == (503, True)
    assert site.get().status_code == 200
    site.metered.meter.figures = FIGURES
    assert site.get("/metrics/nodes").status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: ctl\r\n"], ids=["nothing", "half a header"])
def test_who_sends_slowly_is_dropped(serve: Serve, sent: bytes) -> None:
    site = serve(replace(METRICS_LIMITS, header_s=0.1))
    with socket.create_connection(("127.0.0.1", site.port), 5) as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""
    assert site.get().status_code == 200


def test_a_scrape_that_hangs_holds_up_nobody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked, go_on = serve(), threading.Event(), threading.Event()
    site.metered.meter.figures = FIGURES

    def hang(_: object) -> dict[str, object]:
        asked.set()
        go_on.wait(30)
        return {}

    monkeypatch.setattr(type(site.metered.nodes), "signs", hang)
    scrape = threading.Thread(target=site.get, args=("/metrics/nodes",))
    scrape.start()
    try:
        assert asked.wait(10)
        alive = f"http://127.0.0.1:{site.server.port}/v1/alive"
        assert httpx.get(alive, trust_env=False, verify=False, timeout=5).status_code == 200
        site.metered.report(NodeReport("n1", "a", 1, 1.0))
        site.metered.nodes.keep({"n1"})  # as a cycle does
    finally:
        go_on.set()
        scrape.join()


def test_who_reads_slowly_is_dropped(serve: Serve) -> None:
    site = serve(replace(METRICS_LIMITS, answer_s=0.5))
    many = {f"n{number}": GpuCounts(4, 2, 2, 0) for number in range(3000)}
    site.metered.meter.figures = replace(FIGURES, cluster=ClusterFigures(gpus_on=many))
    site.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the kernel takes little, like a slow network
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", site.port))
        connection.sendall(b"GET /metrics/nodes HTTP/1.1\r\nHost: ctl\r\n\r\n")
        until_s = time.monotonic() + 30
        while site.held or time.monotonic() < until_s - 29.9:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        received = bytearray()
        with suppress(ConnectionError):
            while part := connection.recv(1 << 20):
                received += part
    assert len(received) < len(site.metered.node_text()), "the rest is not kept for a client that does not read"


def test_connections_are_bounded_and_who_asks_is_served(serve: Serve) -> None:
    limits = ConnectionLimits(connections=8, per_peer=4, header_s=60, body_s=60, answer_s=60)
    site = serve(limits)
    with ExitStack() as stack:
        for host in range(2, 12):
            connection = socket.create_connection(("127.0.0.1", site.port), 5, (f"127.0.0.{host}", 0))
            stack.enter_context(closing(connection))
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert site.get().status_code == 200


def test_an_address_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SodaError, match=rf"metrics: {listen} cannot be bound .*; change metrics.listen"):
            bind_metrics(MetricsSettings(listen=listen))
    with pytest.raises(SodaError, match="cannot be bound"):
        bind_metrics(MetricsSettings(listen="no-such-host.invalid:1"))
    assert bind_metrics(MetricsSettings()) is None
