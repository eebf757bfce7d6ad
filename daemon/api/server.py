"""The HTTP side of sodad: agents report here; :mod:`~slurm_soda.daemon.api.routes` shows people and tools what is known.

It never changes what Slurm does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import cast

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api.connection_limits import ConnectionLimits, LimitedApp, OpenConnections, RefusalCounts
from slurm_soda.daemon.api.report_writer import ReportNotWrittenError, ReportQueueFullError, ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.config import ApiSettings
from slurm_soda.daemon.store.engine import StoreError
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.errors import MungeError, RecordError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge, MungeMessage
from slurm_soda.wire.records import NodeReport

COMMIT_TIMEOUT_S = 10.0
"""A report that is not on disk after this long is answered with 503; the agent sends it again."""

MAX_CREDENTIAL_CHECKS = 16
"""Credentials being checked; each costs a process for unmunge."""

MAX_REPORTS_IN_HAND = 16
"""Reports being read and written; each may have ``api.max_report_bytes``."""

ACCEPT_BACKLOG = 32
"""Connections that are accepted at once, before limits are looked at."""

REFUSALS_LOGGED_EVERY_S = 60

DEFAULT_LIMITS = ConnectionLimits()


def make_app(writer: ReportWriter, munge: Munge, settings: ApiSettings, views: ViewRoutes) -> FastAPI:
    """The application: one way in for reports, and what may be looked at."""
    app = FastAPI(
        title="slurm-soda", docs_url=None, redoc_url=None, openapi_url=None, max_body_size=settings.max_report_bytes
    )
    checks, in_hand = asyncio.Semaphore(MAX_CREDENTIAL_CHECKS), asyncio.Semaphore(MAX_REPORTS_IN_HAND)

    async def take_report(request: Request) -> Response:
        # Nothing of a body is read for those who may not report.
        async with checks:
            message = await run_in_threadpool(_check, request.headers.get(CREDENTIAL_HEADER, ""))
        async with in_hand:
            return await run_in_threadpool(_take, await request.body(), message)

    def _check(credential: str) -> MungeMessage:
        try:
            return munge.decode(credential, settings.report_uids)
        except MungeError as error:
            raise HTTPException(403, str(error)) from error

    def _take(body: bytes, message: MungeMessage) -> Response:
        try:
            message.check_body(body)
        except MungeError as error:
            raise HTTPException(403, str(error)) from error
        try:
            written = writer.submit(NodeReport.from_json(body)).result(COMMIT_TIMEOUT_S)
            answer = json.dumps(written.to_dict(), separators=(",", ":")).encode("ascii")
            headers = {CREDENTIAL_HEADER: munge.encode(answer, body)}
        except RecordError as error:
            raise HTTPException(422, str(error)) from error
        except (
            ReportQueueFullError,
            ReportNotWrittenError,
            FutureTimeoutError,
            SQLAlchemyError,
            StoreError,
            MungeError,
        ) as error:
            raise HTTPException(503, f"not taken: {error}; send it again later") from error
        return Response(answer, headers=headers, media_type="application/json")

    app.post("/v1/reports")(take_report)
    app.include_router(views.routes())
    return app


def check_address(settings: ApiSettings) -> None:
    """For a sodad that serves later.

    Raises:
        SodaError: the address cannot be bound.
    """
    _bind(settings).close()


def _bind(settings: ApiSettings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.port), backlog=256)
    except OSError as error:
        raise SodaError(
            f"api: {settings.host}:{settings.port} cannot be bound ({error.strerror}); change api.host or api.port"
        ) from error


class ApiServer:
    """Serves the application in a thread of its own."""

    def __init__(self, app: FastAPI, settings: ApiSettings, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        """Bind the address, so that a port in use is said at start.

        Raises:
            SodaError: the address cannot be bound.
        """
        self._socket = _bind(settings)
        limits, self._refusals = limits.within_descriptors(), RefusalCounts()
        for name in ("uvicorn.error", "asyncio"):
            server_log = logging.getLogger(name)
            server_log.handlers[:], server_log.propagate = [self._refusals], False
        config = uvicorn.Config(
            LimitedApp(app, limits.per_peer, self._refusals),
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
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="api", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()
        self._refusals.log_counts()

    async def _log_refusals(self) -> None:
        self._refusals.log_counts()
