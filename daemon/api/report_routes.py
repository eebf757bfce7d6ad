"""The one way in for agents' reports. It never changes what Slurm does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import asynccontextmanager

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.report_writer import ReportNotWrittenError, ReportQueueFullError, ReportWriter
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.errors import MungeError, RecordError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from slurm_soda.wire.records import NodeReport

COMMIT_TIMEOUT_S = 8.0
"""A report that is not on disk so long after it came is answered with 503, while its agent still waits
(``upload_timeout_s``, 10 s); unless it is being written already, it is not written any more. The agent sends it again."""

MAX_REPORTS_IN_HAND = 16
"""Reports being read and written; each may have ``api.max_report_bytes``."""


class ReportRoutes:
    """Takes reports of those who may send them."""

    def __init__(self, writer: ReportWriter, munge: Munge, checks: CredentialChecks, settings: ApiSettings) -> None:
        self._writer, self._munge, self._checks, self._settings = writer, munge, checks, settings
        self._in_hand = asyncio.Semaphore(MAX_REPORTS_IN_HAND)

    def routes(self) -> APIRouter:
        """The route, under ``/v1``."""
        router = APIRouter(prefix="/v1")
        router.post("/reports")(self.take_report)
        return router

    async def take_report(self, request: Request) -> Response:
        """Write a :class:`~slurm_soda.wire.records.NodeReport`, and answer it once it is on disk."""
        # Nothing of a body is read for those who may not report.
        until_s = time.monotonic() + COMMIT_TIMEOUT_S
        message = await self._checks.sender(request, self._settings.report_uids)
        async with self._turn(until_s):
            body = await request.body()
            try:
                message.check_body(body)
            except MungeError as error:
                self._checks.count_failure(request)
                raise HTTPException(403, str(error)) from error
            answer = await run_in_threadpool(self._write, body, until_s)
        answer.headers[KNOWN_HEADER] = self._checks.token(request)
        return answer

    @asynccontextmanager
    async def _turn(self, until_s: float) -> AsyncIterator[None]:
        """One of the places for reports in hand; nothing is read of a report that found none in time."""
        try:
            await asyncio.wait_for(self._in_hand.acquire(), until_s - time.monotonic())
        except TimeoutError as error:
            raise HTTPException(503, "not taken: too many reports at once; send it again later") from error
        try:
            yield
        finally:
            self._in_hand.release()

    def _write(self, body: bytes, until_s: float) -> Response:
        try:
            written = self._written(NodeReport.from_json(body), until_s)
            answer = json.dumps(written.to_dict(), separators=(",", ":")).encode("ascii")
            headers = {CREDENTIAL_HEADER: self._munge.encode(answer, body)}
        except RecordError as error:
            raise HTTPException(422, str(error)) from error
        except (
            ReportQueueFullError,
            ReportNotWrittenError,
            SQLAlchemyError,
            StoreError,
            MungeError,
        ) as error:
            raise HTTPException(503, f"not taken: {error}; send it again later") from error
        return Response(answer, headers=headers, media_type="application/json")

    def _written(self, report: NodeReport, until_s: float) -> ReportAnswer:
        """The answer to a report, once it is on disk; raises what hindered that."""
        waiting = self._writer.submit(report)
        try:
            return waiting.result(max(until_s - time.monotonic(), 0.0))
        except FutureTimeoutError as error:
            waiting.cancel()
            raise ReportNotWrittenError(f"not on disk within {COMMIT_TIMEOUT_S:g} s") from error
