"""Inference services over HTTP: routers report, owners scale and drain, users look.

Any user may report: who sent it, by MUNGE, is the service's owner, and nothing of other owners changes. A service is shown
as its tasks are: to everybody, or to its owner, operators and coordinators where Slurm's PrivateData has ``jobs``.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.report_budgets import ReportBudgets
from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.clock import Clock, Instant
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.services.known_service import ServiceKey, ServiceStatus
from slurm_soda.daemon.services.service_board import ReportRefusedError, ServiceBoard
from slurm_soda.daemon.services.service_status import service_document, unseen_status
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.services import minutes_of
from slurm_soda.wire.errors import MungeError, RecordError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.services.router_report import LONGEST_REPORT, RouterReport
from slurm_soda.wire.services.service_file import MOST_REPLICAS

DAY_S = 86_400.0
MAX_JOB_ID = 2**32 - 1

ServiceName = Annotated[str, Path(min_length=1, max_length=40, pattern="^[a-z0-9][a-z0-9-]*$")]
Owner = Annotated[str, Path(min_length=1, max_length=255)]
Least = Annotated[int, Query(ge=0, le=MOST_REPLICAS)]
Most = Annotated[int, Query(ge=1, le=MOST_REPLICAS)]
JobIdOrAll = Annotated[str, Query(pattern="^(all|[1-9][0-9]{0,9})$")]
Since = Annotated[float, Query(ge=0)]


class ServiceRoutes:
    """Takes reports and shows services."""

    def __init__(
        self,
        board: ServiceBoard,
        store: Store,
        clock: Clock,
        *,
        munge: Munge,
        checks: CredentialChecks,
        admit: Callable[[Request], Awaitable[Viewer]],
    ) -> None:
        """``admit`` tells who asks, and refuses those who may not."""
        self._board, self._store, self._clock, self._munge = board, store, clock, munge
        self._checks, self._admit = checks, admit
        self._budgets = ReportBudgets()

    def routes(self) -> APIRouter:
        """The routes, under ``/v1/services``."""
        router = APIRouter(prefix="/v1/services")
        router.post("/report")(self.take_report)
        router.post("/{name}/scale")(self.scale)
        router.post("/{name}/drain")(self.drain)
        router.get("")(self.services)
        router.get("/{owner}/{name}/day")(self.day)
        return router

    async def take_report(self, request: Request) -> Response:
        """Keep a :class:`~slurm_soda.wire.services.router_report.RouterReport`, and answer it with what is wanted."""
        message = await self._checks.sender(request, None)
        uid = message.sender.uid
        if (wait_s := self._budgets.wait_s(uid, self._clock.elapsed_s())) > 0:
            retry_s = math.ceil(wait_s)
            detail = f"user {uid} reports more than sodad reads of one user; report again in {retry_s} s"
            raise HTTPException(429, detail, {"Retry-After": str(retry_s)})
        body = await _body(request, LONGEST_REPORT)
        self._budgets.count(uid, len(body), self._clock.elapsed_s())
        try:
            message.check_body(body)
        except MungeError as error:
            self._checks.count_failure(request)
            raise HTTPException(403, str(error)) from error
        try:
            return await run_in_threadpool(self._take, uid, body)
        except HTTPException as error:
            if error.status_code == 422:
                self._budgets.count(uid, 0, self._clock.elapsed_s(), refused=True)
            raise

    def _take(self, uid: int, body: bytes) -> Response:
        try:
            report = RouterReport.from_json(body)
            wanted = self._board.take(viewers.user_name(uid), report, Instant.read(self._clock))
            answer = json.dumps(wanted.to_dict(), separators=(",", ":")).encode("ascii")
            return Response(
                answer, headers={CREDENTIAL_HEADER: self._munge.encode(answer, body)}, media_type="application/json"
            )
        except RecordError as error:
            raise HTTPException(422, str(error)) from error
        except ReportRefusedError as error:
            raise _refusal(error) from error
        except MungeError as error:
            raise HTTPException(503, f"not answered: {error}; send it again later") from error

    async def services(self, request: Request) -> Response:
        """All services that this user may see: ``{"services": […]}``."""
        viewer, statuses = await self._admit(request), self._board.statuses
        shown = []
        for known in self._board.known():
            status = statuses.get(known.key) or unseen_status(known)
            if _may_see(viewer, known.key, status):
                shown.append(service_document(known, status))
        return _json({"services": shown})

    async def day(self, request: Request, owner: Owner, name: ServiceName, since_s: Since = 0.0) -> Response:
        """Load, latency and instances of one service by minute, of the last day or since an instant within it."""
        viewer, key = await self._admit(request), ServiceKey(owner, name)
        known, status = self._board.service(key), self._board.statuses.get(key, ServiceStatus())
        if known is None or not _may_see(viewer, key, status):
            # In the same words whether there is such a service or not.
            raise HTTPException(404, f"sodad shows {viewer.user} no service {name} of {owner}")
        since_s = max(since_s, self._clock.now_s() - DAY_S)
        return await run_in_threadpool(self._day, key, since_s)

    def _day(self, key: ServiceKey, since_s: float) -> Response:
        try:
            with self._store.read() as session:
                minutes = [
                    {
                        "at_s": row.at_s,
                        "load_qps": row.load_qps,
                        "most_qps": row.most_qps,
                        "p99_ms": row.p99_ms,
                        "queries": row.queries,
                        "errors": row.errors,
                        "violations": row.violations,
                        "cpu": row.cpu,
                        "gpu": row.gpu,
                    }
                    for row in minutes_of(session, key, since_s)
                ]
        except SQLAlchemyError as error:
            log(logging.WARNING, "view-failed", error=self._store.error_of(error))
            raise HTTPException(503, "the store cannot be read; ask again later") from error
        return _json({"owner": key.owner, "name": key.name, "minutes": minutes})

    async def scale(self, request: Request, name: ServiceName, *, least: Least, most: Most) -> Response:
        """Other limits for a service of the user's own, until its file says something else."""
        viewer = await self._admit(request)
        try:
            limits = self._board.scale(ServiceKey(viewer.user, name), least, most)
        except ReportRefusedError as error:
            raise _refusal(error) from error
        return _json({"owner": viewer.user, "name": name, "least": limits.least, "most": limits.most})

    async def drain(self, request: Request, name: ServiceName, job_id: JobIdOrAll) -> Response:
        """Make one instance of the user's own service leave, or ``all``."""
        viewer = await self._admit(request)
        wanted = [] if job_id == "all" else [int(job_id)]
        if wanted and wanted[0] > MAX_JOB_ID:
            raise HTTPException(422, f"job_id is {job_id}; allowed is a job's id, up to {MAX_JOB_ID}, or all")
        try:
            self._board.drain(ServiceKey(viewer.user, name), wanted)
        except ReportRefusedError as error:
            raise _refusal(error) from error
        return _json({"owner": viewer.user, "name": name, "drain": job_id})


async def _body(request: Request, longest: int) -> bytes:
    """The body, of which no more is read than a report may have."""
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > longest:
            raise HTTPException(413, f"the report has more than {longest} bytes; fewer instances fit into one")
        parts.append(part)
    return b"".join(parts)


def _may_see(viewer: Viewer, key: ServiceKey, status: ServiceStatus) -> bool:
    return viewer.sees_all_jobs or key.owner == viewer.user or bool(viewer.accounts & status.accounts)


def _refusal(error: ReportRefusedError) -> HTTPException:
    headers = {"Retry-After": str(math.ceil(error.retry_s))} if error.retry_s else None
    return HTTPException(error.status, str(error), headers)


def _json(document: dict[str, Any]) -> Response:
    body = json.dumps(_finite(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(body.encode("ascii"), media_type="application/json")


def _finite(value: Any) -> Any:
    """What JSON does not have is ``null``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value
