"""Serves sodad's HTTP side: agents report (:mod:`~slurm_soda.daemon.api.report_routes`), people and tools are shown what is
known (:mod:`~slurm_soda.daemon.api.routes`); each at an address of its own where the configuration says so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import cast

import uvicorn
from fastapi import APIRouter, FastAPI

from slurm_soda.daemon.api.connection_limits import (
    Application,
    ConnectionLimits,
    LimitedApp,
    OpenConnections,
    RefusalCounts,
)
from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.report_routes import ReportRoutes
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.service_routes import ServiceRoutes
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.api.viewers import ViewerRights
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.metrics.endpoint import MetricsEndpoint
from slurm_soda.daemon.page.endpoint import PageEndpoint
from slurm_soda.daemon.page.link_route import PageLinkRoute
from slurm_soda.daemon.page.served_page import ServedPage
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.munge import Munge

ACCEPT_BACKLOG = 32
"""Connections that are accepted at once, before limits are looked at."""

REFUSALS_LOGGED_EVERY_S = 60

DEFAULT_LIMITS = ConnectionLimits()


def check_address(settings: ApiSettings) -> None:
    """For a sodad that serves later.

    Raises:
        SodaError: an address cannot be bound.
    """
    for bound in _bind_all(settings):
        bound.close()


class ApiServer:
    """Serves one to four addresses, in one thread of its own."""

    def __init__(
        self,
        reports: APIRouter,
        views: APIRouter,
        settings: ApiSettings,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        *,
        metrics: MetricsEndpoint | None = None,
        page: PageEndpoint | None = None,
    ) -> None:
        """Bind the addresses, so that a port in use is said at start; those of ``metrics`` and ``page`` are bound already.

        Raises:
            SodaError: an address cannot be bound.
        """
        self._refusals = RefusalCounts()
        for name in ("uvicorn.error", "asyncio"):
            server_log = logging.getLogger(name)
            server_log.handlers[:], server_log.propagate = [self._refusals], False
        self._sockets = _bind_all(settings)
        routers: list[Sequence[APIRouter]] = (
            [(views,), (reports,)] if settings.has_report_address else [(reports, views)]
        )
        self._report_socket = self._sockets[-1]
        limits = limits.within_descriptors(len(self._sockets))
        self._servers = [self._make_server(served, settings, limits) for served in routers]
        if metrics is not None:
            self._sockets.append(metrics.socket)
            self._servers.append(self._make_server((metrics.router,), settings, metrics.limits.within_descriptors()))
        if page is not None:
            self._sockets.append(page.socket)
            limits = page.limits.within_descriptors()
            self._servers.append(self._make_server((page.router,), settings, limits, guard=page.guard))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="api", daemon=True)

    @property
    def port(self) -> int:
        """Where it shows views."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def report_port(self) -> int:
        """Where it takes reports."""
        return int(self._report_socket.getsockname()[1])

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the ports."""
        for server in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        for bound in self._sockets:
            bound.close()
        self._refusals.log_counts()

    def _make_server(
        self,
        routers: Sequence[APIRouter],
        settings: ApiSettings,
        limits: ConnectionLimits,
        *,
        guard: Callable[[Application], Application] = lambda app: app,
    ) -> uvicorn.Server:
        app = FastAPI(
            title="slurm-soda",
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            max_body_size=settings.max_report_bytes,
        )
        for router in routers:
            app.include_router(router)
        config = uvicorn.Config(
            LimitedApp(guard(app), limits.per_peer, self._refusals),
            http=cast("type[asyncio.Protocol]", OpenConnections(limits, self._refusals).make_protocol),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            headers=[("Connection", "close")],
            backlog=ACCEPT_BACKLOG,
            callback_notify=self._log_refusals,
            timeout_notify=REFUSALS_LOGGED_EVERY_S,
            timeout_graceful_shutdown=2,
        )
        return uvicorn.Server(config)

    async def _serve(self) -> None:
        await asyncio.gather(
            *(server.serve([bound]) for server, bound in zip(self._servers, self._sockets, strict=True))
        )

    async def _log_refusals(self) -> None:
        self._refusals.log_counts()


def make_api_server(
    store: Store,
    clock: Clock,
    writer: ReportWriter,
    settings: Callable[[], Settings],
    cycle_error: Callable[[], str],
    *,
    services: ServiceBoard,
    metrics: MetricsEndpoint | None = None,
    page: socket.socket | None = None,
) -> ApiServer:
    """The server of a sodad.

    Args:
        store: what views are read from.
        clock: sodad's.
        writer: takes reports.
        settings: the configuration now; where the server is to be found stays as it is at first.
        cycle_error: why the last cycle failed; empty if it did not.
        services: keeps what routers of services report.
        metrics: shown at an address of their own.
        page: bound for users' browsers; ``None``: no page is served.

    Raises:
        SodaError: an address cannot be bound.
    """
    munge, at_first = Munge(), settings()
    checks = CredentialChecks(munge, clock)
    rights = ViewerRights(LocalCommandRunner(), clock)
    # Whoever asks first shall not wait for it: sodactl waits for 2 s only.
    threading.Thread(target=rights.read_privacy, args=(at_first.slurm.read_timeout_s,), daemon=True).start()
    access = ViewAccess(checks, rights)
    views = ViewRoutes(store, clock, access, settings, cycle_error)
    reports = ReportRoutes(writer, munge, checks, at_first.api)
    shown = APIRouter()
    shown.include_router(views.routes())
    shown.include_router(ServiceRoutes(services, store, clock, munge=munge, checks=checks, admit=views.admit).routes())
    served = None if page is None else ServedPage(page, views, access, clock, lambda: settings().page)
    shown.include_router(PageLinkRoute(views.admit, munge, served).routes())
    endpoint = None if served is None else served.endpoint()
    return ApiServer(reports.routes(), shown, at_first.api, metrics=metrics, page=endpoint)


def _bind_all(settings: ApiSettings) -> list[socket.socket]:
    """Where views are shown, and where reports are taken if that is another address."""
    sockets = [_bind(settings.host, settings.port, "api.host or api.port")]
    if settings.has_report_address:
        try:
            sockets.append(_bind(*settings.report_address, "api.report_host or api.report_port"))
        except SodaError:
            sockets[0].close()
            raise
    return sockets


def _bind(host: str, port: int, keys: str) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=256)
    except OSError as error:
        raise SodaError(f"api: {host}:{port} cannot be bound ({error.strerror}); change {keys}") from error
