"""What users may read over HTTP; nothing here changes anything.

Each request carries a MUNGE credential of its user, who is shown what Slurm's PrivateData allows; without one a request
learns only that sodad lives. Answers are bounded, and so is what they cost sodad: a few at a time. The list of all jobs
serves all who ask within a second or, where it is long, a few, and so does a status all who ask the same; the list of cores
serves all who ask the same within a cycle. A user has one question answered at a time and waits between them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import views
from slurm_soda.daemon.api.job_report_routes import JobReportRoutes
from slurm_soda.daemon.api.kept_answers import KeptAnswers, UserTurns, detail_turns
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.api.view_json import encode_view
from slurm_soda.daemon.api.viewers import PRIVATE_WITH_USE, Viewer
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.learning.stored_profiles import read_pair_view
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.cpu_fit_report import MAX_FITS, CpuFitFilters, read_cpu_fit_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.slurm_ext.hints.flags import COUNT_MAX_DIGITS, MODEL_MAX_BYTES

T = TypeVar("T")

MAX_CONCURRENT_VIEWS = 4
"""Views that are made at the same time, in threads that take reports as well."""

MAX_JOBS = 20_000
MAX_CYCLES = 100
MAX_JOB_ID = 2**32 - 1
MAX_GPUS = 1_000_000
ANSWER_MAX_AGE_S = 1.0
"""A kept list of all jobs, or status, serves for so long, and for longer if it took long to make:"""
ANSWER_MAX_AGE_RATIO = 10
"""as many times longer than that took, so that making answers takes a tenth of sodad's time at most."""
MAX_STATUS_WAIT_S = 1.0
"""Longest time between two answers on the status that are made for one user."""
STATUS_SINCE_STEP_S = 60.0
"""Instants from which a status counts changes are rounded down to this: all who ask of the last hour ask the same."""
MAX_KEPT_STATUSES = 16
"""Answers on the status that are kept: 160 kB each at 2000 nodes."""
MAX_KEPT_JOB_LISTS = 2
"""Lists of all jobs: for operators, and for users where PrivateData names other things than jobs."""
MAX_KEPT_FITS = 8
"""Lists of cores that are kept; each may have :data:`MAX_FITS` jobs, 2 MB."""

JobId = Annotated[int, Path(ge=1, le=MAX_JOB_ID)]
CycleCount = Annotated[int, Query(ge=0, le=MAX_CYCLES)]
FitLimit = Annotated[int, Query(ge=1, le=MAX_FITS)]
AnyJobId = Annotated[int | None, Query(ge=1, le=MAX_JOB_ID)]
Name = Annotated[str | None, Query(max_length=255)]
Model = Annotated[str, Query(min_length=1, max_length=MODEL_MAX_BYTES)]
Batch = Annotated[int, Query(ge=0, lt=10 ** COUNT_MAX_DIGITS["batch_size"])]
Gpus = Annotated[int, Query(ge=1, le=MAX_GPUS)]
GpuType = Annotated[str, Query(max_length=64)]


class ViewRoutes:
    """API views of the store, as JSON."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: ViewAccess,
        settings: Callable[[], Settings],
        cycle_error: Callable[[], str] = str,
    ) -> None:
        """``settings`` gives the configuration in force, which may be read anew while sodad runs; ``cycle_error`` why the
        last cycle did nothing, which the store does not say where it cannot be written.
        """
        self._store, self._clock, self._access = store, clock, access
        self._settings, self._cycle_error = settings, cycle_error
        self._places, self._pairing = asyncio.Semaphore(MAX_CONCURRENT_VIEWS), asyncio.Lock()
        self._statuses, self._turns = KeptAnswers(clock, MAX_KEPT_STATUSES), UserTurns(clock, _rest_s)
        self._details = detail_turns(clock)
        self._job_lists, self._fits = KeptAnswers(clock, MAX_KEPT_JOB_LISTS), KeptAnswers(clock, MAX_KEPT_FITS)

    def routes(self) -> APIRouter:
        """The routes, under ``/v1``."""
        router = APIRouter(prefix="/v1")
        router.get("/alive")(self.alive)
        private = APIRouter(dependencies=[Depends(self.admit)])
        private.get("/status")(self.status)
        private.get("/jobs")(self.jobs)
        private.get("/jobs/{job_id}")(self.job)
        private.get("/fit")(self.fit)
        private.get("/pair")(self.pair)
        private.include_router(JobReportRoutes(self.answer, self._clock, self._turns, self._details).routes())
        router.include_router(private)
        return router

    async def alive(self) -> Response:
        """For monitoring, and for anybody: that sodad answers."""
        return _json(b'{"alive":true}')

    async def status(self, request: Request, cycles: CycleCount = 1, since_s: float = 0.0) -> Response:
        """How sodad fares: an :class:`~slurm_soda.daemon.api.views.StatusView`."""
        viewer = _viewer(request)
        if math.isfinite(since_s):
            since_s -= since_s % STATUS_SINCE_STEP_S
        who = viewer.private if viewer.sees_all_jobs else viewer
        asked = who, cycles, repr(since_s), self._store_loss()  # a loss is told at once

        def read_status(session: Session) -> views.StatusView:
            head = self.head(session, viewer)
            return views.status_view(session, head, cycles=cycles, since_s=since_s, viewer=viewer)

        turn = nullcontext() if self._statuses.has(asked) else self._turns.of(viewer.user)
        async with turn:
            return await self._statuses.get(asked, lambda: self.answer(read_status), _max_age_s)

    async def jobs(self, request: Request) -> Response:
        """The live jobs that this user may see: :class:`~slurm_soda.daemon.api.views.JobListView`, up to
        :data:`MAX_JOBS`.
        """
        viewer = _viewer(request)

        def read_list(session: Session) -> views.JobListView:
            return views.job_list_view(session, self.head(session, viewer), most=MAX_JOBS, viewer=viewer)

        if not viewer.sees_all_jobs:
            async with self._details.of(viewer.user):
                return await self.answer(read_list)
        return await self._job_lists.get(viewer.private, lambda: self.answer(read_list), _max_age_s)

    async def job(self, request: Request, job_id: JobId) -> Response:
        """All about one job: a :class:`~slurm_soda.daemon.api.views.JobDetailView`, without a job if there is none of
        this id, and without what it used where that is private.
        """
        viewer = _viewer(request)

        def read_job(session: Session) -> views.JobDetailView:
            job = queries.find_job(session, job_id)
            if viewer.sees_all_jobs or (job is not None and viewer.may_see(job)):
                return views.shown_to(views.job_detail_view(session, self.head(session, viewer), job_id), viewer)
            # In the same words, and as soon, whether there is such a job or not.
            raise HTTPException(
                403, f"sodad knows no job {job_id} of {viewer.user}; Slurm's PrivateData keeps those of others private"
            )

        async with self._details.of(viewer.user):
            return await self.answer(read_job)

    async def fit(
        self,
        request: Request,
        *,
        limit: FitLimit,
        job_id: AnyJobId = None,
        user: Name = None,
        category: Name = None,
        model: Name = None,
        since_s: float | None = None,
    ) -> Response:
        """Cores of GPU jobs: a :class:`~slurm_soda.daemon.store.cpu_fit_report.CpuFitReport`, of :data:`MAX_FITS`
        jobs at most.
        """
        viewer, filters = _viewer(request), CpuFitFilters(job_id, user, category, model, since_s)
        if viewer.private & PRIVATE_WITH_USE:
            if user not in (None, viewer.user):
                raise HTTPException(403, f"Slurm's PrivateData shows {viewer.user} no jobs of other users")
            filters = replace(filters, user=viewer.user)
        async with self._details.of(viewer.user):
            return await self._fits.get(
                (filters, limit),
                lambda: self.answer(lambda session: read_cpu_fit_report(session, filters, limit)),
                lambda _took_s: self._settings().cycle.interval_s,
            )

    async def pair(
        self,
        request: Request,
        *,
        model: Model,
        other_model: Model,
        batch: Batch = 0,
        other_batch: Batch = 0,
        gpus: Gpus = 1,
        other_gpus: Gpus = 1,
        gpu_type: GpuType = "",
        user: Name = None,
        other_user: Name = None,
    ) -> Response:
        """What is known of two kinds of jobs on one GPU: a :class:`~slurm_soda.daemon.learning.pair_view.PairView`.

        With an owner, as his own jobs showed it, to those who may see his jobs; others get what holds for everybody.
        """
        viewer = _viewer(request)
        new, running = JobKind(model, batch, gpu_type, gpus), JobKind(other_model, other_batch, gpu_type, other_gpus)
        mine, other = (
            name if name and (viewer.sees_all_jobs or name == viewer.user) else "" for name in (user, other_user)
        )
        async with self._details.of(viewer.user), self._pairing:
            return await self.answer(lambda session: read_pair_view(session, new, running, (mine, other)))

    async def answer(self, read_view: Callable[[Session], object]) -> Response:
        """A view as JSON, made when there is room for it.

        Raises:
            HTTPException: the store cannot be read.
        """
        return _json(await self.read(lambda session: encode_view(read_view(session))))

    async def read(self, read: Callable[[Session], T]) -> T:
        """What a function reads from the store, in a thread, when there is room for it.

        Raises:
            HTTPException: the store cannot be read.
        """
        async with self._places:
            return await run_in_threadpool(self._read, read)

    def _read(self, read: Callable[[Session], T]) -> T:
        try:
            with self._store.read() as session:
                return read(session)
        except SQLAlchemyError as error:
            log(logging.WARNING, "view-failed", error=self._store.error_of(error))
            raise HTTPException(503, "the store cannot be read; ask again later") from error

    def head(self, session: Session, viewer: Viewer) -> views.ViewHeader:
        """Who schedules, by what rules, and what is private from this viewer."""
        settings, epoch = self._settings(), queries.latest_epoch(session)
        alive = views.daemon_is_alive(epoch, store_now_s(session, self._clock.now_s()), settings.cycle.interval_s)
        stall = "" if alive else self._cycle_error() or "its last cycle has not ended yet"
        if re.search(r"\d", stall) and not viewer.sees_all_jobs:  # it may name jobs of others
            stall = "its cycles fail; sodad's log says why"
        if loss := self._store_loss():  # what can still be read is from before
            alive, stall = False, loss
        head = views.view_header(epoch, queries.setting_values(session), settings, daemon_alive=alive, stall=stall)
        return replace(head, private=sorted(viewer.private))

    def _store_loss(self) -> str:
        """Why the store is not the one that was opened; empty if it is."""
        try:
            self._store.check_in_place()
        except StoreError as error:
            return str(error)
        return ""

    async def admit(self, request: Request) -> Viewer:
        """Who asks; the request remembers it.

        Raises:
            HTTPException: the request carries no good credential, or comes from a host that may not ask.
        """
        if not self._settings().api.public and not _is_same_host(request):
            raise HTTPException(403, "api.public is false in sodad's configuration; ask on sodad's own host")
        viewer = request.state.viewer = await self._access.viewer(request)
        return viewer


def _max_age_s(took_s: float) -> float:
    return max(ANSWER_MAX_AGE_S, ANSWER_MAX_AGE_RATIO * took_s)


def _rest_s(took_s: float) -> float:
    return min(ANSWER_MAX_AGE_RATIO * took_s, MAX_STATUS_WAIT_S)


def _viewer(request: Request) -> Viewer:
    """Who asks, as found when the request was admitted."""
    viewer: Viewer = request.state.viewer
    return viewer


def _is_same_host(request: Request) -> bool:
    """Whether who asks is on this machine: by loopback, or by one of its own addresses."""
    if request.client is None:
        return False
    asking = request.client.host
    server = request.scope.get("server") or ("", 0)
    return asking == server[0] or ipaddress.ip_address(asking).is_loopback


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
