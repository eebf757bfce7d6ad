"""A sodad without cycles that serves metrics."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.metrics.endpoint import METRICS_LIMITS, MetricsEndpoint, bind_metrics
from slurm_soda.daemon.metrics.routes import MetricsRoutes
from slurm_soda.daemon.settings.addresses import ApiSettings, MetricsSettings
from slurm_soda.daemon.store.engine import open_store
from tests.daemon.api_server import api_server
from tests.daemon.metrics.metered import Metered
from tests.wire.fake_munged import FakeMunged


@dataclass
class Served:
    metered: Metered
    server: ApiServer
    listening: socket.socket

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    @property
    def held(self) -> int:
        """Connections at the address of the metrics."""
        return len(self.server._servers[-1].server_state.connections)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def get(self, path: str = "/metrics", **headers: str) -> httpx.Response:
        return httpx.get(f"http://{self.target}{path}", headers=headers, trust_env=False, verify=False, timeout=10)


@pytest.fixture
def serve(fresh_store: Path) -> Iterator[Callable[..., Served]]:
    with ExitStack() as stack:

        def start(limits: ConnectionLimits = METRICS_LIMITS, **settings: Any) -> Served:
            store, clock = open_store(f"sqlite:///{fresh_store}/soda.db"), SystemClock()
            stack.callback(store.close)
            metered = Metered(store, clock)
            routes = MetricsRoutes(
                metered.meter.registry, metered.meter, metered.nodes, clock, lambda: settings.get("nodes", True)
            )
            bound = bind_metrics(MetricsSettings(listen=settings.get("listen", "127.0.0.1:0")))
            assert bound is not None
            writer = ReportWriter(store, clock, on_close=lambda: None, on_report=metered.report)
            stack.callback(writer.close)
            endpoint = replace(MetricsEndpoint(bound, routes.routes()), limits=limits)
            server = stack.enter_context(
                closing(
                    api_server(store, writer, FakeMunged(), ApiSettings(host="127.0.0.1", port=0), metrics=endpoint)
                )
            )
            server.start()
            return Served(metered, server, endpoint.socket)

        yield start
