"""The HTTP side of sodad: agents report here; :mod:`~slurm_soda.daemon.api.routes` shows people and tools what is known.

It never changes what Slurm does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api.report_writer import ReportNotWrittenError, ReportQueueFullError, ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.config import ApiSettings
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.engine import StoreError
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.errors import MungeError, RecordError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.records import NodeReport

COMMIT_TIMEOUT_S = 10.0
"""A report that is not on disk after this long is answered with 503; the agent sends it again."""

MAX_REPORT_CHECKS = 64
"""Reports being checked; each costs a process for unmunge."""


def make_app(writer: ReportWriter, munge: Munge, settings: ApiSettings, views: ViewRoutes) -> FastAPI:
    """The application: one way in for reports, and what may be looked at."""
    app = FastAPI(title="slurm-soda", docs_url=None, redoc_url=None, openapi_url=None)
    places = asyncio.Semaphore(MAX_REPORT_CHECKS)

    async def take_report(request: Request) -> dict[str, Any]:
        body = await _bounded_body(request, settings.max_report_bytes)
        async with places:
            return await run_in_threadpool(_take, body, request.headers.get(CREDENTIAL_HEADER, ""))

    def _take(body: bytes, credential: str) -> dict[str, Any]:
        try:
            munge.check(body, credential, settings.report_uids)
            report = NodeReport.from_json(body)
            answer = writer.submit(report).result(COMMIT_TIMEOUT_S)
        except MungeError as error:
            log(logging.WARNING, "report-refused", error=error)
            raise HTTPException(403, str(error)) from error
        except RecordError as error:
            log(logging.WARNING, "report-unreadable", error=error)
            raise HTTPException(422, str(error)) from error
        except (ReportQueueFullError, ReportNotWrittenError, FutureTimeoutError, SQLAlchemyError, StoreError) as error:
            raise HTTPException(503, f"not written: {error}; send it again later") from error
        return answer.to_dict()

    app.post("/v1/reports")(take_report)
    app.include_router(views.routes())
    return app


async def _bounded_body(request: Request, most_bytes: int) -> bytes:
    """The body, never more of it in memory than allowed."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise HTTPException(413, f"a report may have {most_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


class ApiServer:
    """Serves the application in a thread of its own."""

    def __init__(self, app: FastAPI, settings: ApiSettings) -> None:
        """Bind the address, so that a port in use is said at start.

        Raises:
            SodaError: the address cannot be bound.
        """
        try:
            self._socket = socket.create_server((settings.host, settings.port), backlog=256)
        except OSError as error:
            raise SodaError(
                f"api: {settings.host}:{settings.port} cannot be bound ({error.strerror}); change api.host or api.port"
            ) from error
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2)
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
