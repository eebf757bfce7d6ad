"""What anybody may look at over HTTP; nothing here changes anything.

Answers are bounded, and so is what they cost sodad: a few at a time, and the list of all jobs serves all who ask within a
second or, where it is long, a few.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from slurm_soda.daemon import pictures
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.knowledge.reading import read_pair
from slurm_soda.daemon.logline import log
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.core_log import Filters, core_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.transfer import encode
from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.slurm_ext.hints import COUNT_MAX_DIGITS, MODEL_MAX_BYTES

MOST_AT_ONCE = 4
"""Looks being taken; the threads are those that take reports too."""

MOST_JOBS = 20_000
MOST_CYCLES = 100
MOST_FITS = 5000
MOST_JOB_ID = 2**32 - 1
MOST_GPUS = 1_000_000
FRESH_S = 1.0
"""The list of all jobs may be this old, or"""
FRESH_TIMES = 10
"""this many times older than it took to make: a tenth of sodad's time at most."""

JobId = Annotated[int, Path(ge=1, le=MOST_JOB_ID)]
Cycles = Annotated[int, Query(ge=0, le=MOST_CYCLES)]
Limit = Annotated[int, Query(ge=1, le=MOST_FITS)]
AnyJobId = Annotated[int | None, Query(ge=1, le=MOST_JOB_ID)]
Name = Annotated[str | None, Query(max_length=255)]
Model = Annotated[str, Query(min_length=1, max_length=MODEL_MAX_BYTES)]
Batch = Annotated[int, Query(ge=0, lt=10 ** COUNT_MAX_DIGITS["batch_size"])]
Gpus = Annotated[int, Query(ge=1, le=MOST_GPUS)]
GpuType = Annotated[str, Query(max_length=64)]


class Looks:
    """Pictures of the store, as JSON."""

    def __init__(self, store: Store, clock: Clock, settings: Callable[[], Settings]) -> None:
        """``settings`` gives the configuration in force, which may be read anew while sodad runs."""
        self._store, self._clock, self._settings = store, clock, settings
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._listing, self._pairing = asyncio.Lock(), asyncio.Lock()
        self._listed: tuple[float, bytes] | None = None
        """Until when it is fresh, and the answer."""

    def routes(self) -> APIRouter:
        """Where to look."""
        router = APIRouter(prefix="/v1", dependencies=[Depends(self._admit)])
        router.get("/status")(self.status)
        router.get("/jobs")(self.jobs)
        router.get("/jobs/{job_id}")(self.job)
        router.get("/fit")(self.fit)
        router.get("/pair")(self.pair)
        return router

    async def status(self, cycles: Cycles = 1, since_s: float = 0.0) -> Response:
        """How sodad fares: an :class:`~slurm_soda.daemon.pictures.Overview`."""
        return await self._answer(
            lambda session: pictures.overview(session, self._head(session), cycles=cycles, since_s=since_s)
        )

    async def jobs(self) -> Response:
        """The live jobs: :class:`~slurm_soda.daemon.pictures.LiveJobs`, up to :data:`MOST_JOBS`."""
        async with self._listing:
            began_s = self._clock.elapsed_s()
            if self._listed is None or began_s >= self._listed[0]:
                answer = await self._answer(
                    lambda session: pictures.live_jobs(session, self._head(session), most=MOST_JOBS)
                )
                took_s = self._clock.elapsed_s() - began_s
                self._listed = began_s + max(FRESH_S, FRESH_TIMES * took_s), bytes(answer.body)
            return _json(self._listed[1])

    async def job(self, job_id: JobId) -> Response:
        """All about one job: a :class:`~slurm_soda.daemon.pictures.Story`, without a job if there is none of this id."""
        return await self._answer(lambda session: pictures.story(session, self._head(session), job_id))

    async def fit(
        self,
        *,
        limit: Limit,
        job_id: AnyJobId = None,
        user: Name = None,
        category: Name = None,
        model: Name = None,
        since_s: float | None = None,
    ) -> Response:
        """Cores of GPU jobs: a :class:`~slurm_soda.daemon.store.core_log.CoreReport`, of :data:`MOST_FITS` jobs at most."""
        filters = Filters(job_id, user, category, model, since_s)
        return await self._answer(lambda session: core_report(session, filters, limit))

    async def pair(
        self,
        *,
        model: Model,
        other_model: Model,
        batch: Batch = 0,
        other_batch: Batch = 0,
        gpus: Gpus = 1,
        other_gpus: Gpus = 1,
        gpu_type: GpuType = "",
    ) -> Response:
        """What is known of a kind of job beside another one: a :class:`~slurm_soda.daemon.knowledge.pairs.PairKnown`."""
        new, running = Workload(model, batch, gpu_type, gpus), Workload(other_model, other_batch, gpu_type, other_gpus)
        async with self._pairing:
            return await self._answer(lambda session: read_pair(session, new, running))

    async def _answer(self, look: Callable[[Session], object]) -> Response:
        async with self._places:
            return _json(await run_in_threadpool(self._look, look))

    def _look(self, look: Callable[[Session], object]) -> bytes:
        try:
            with self._store.read() as session:
                return encode(look(session))
        except SQLAlchemyError as error:
            log(logging.WARNING, "look-failed", error=error)
            raise HTTPException(503, "the store cannot be read; ask again later") from error

    def _head(self, session: Session) -> pictures.Head:
        settings, epoch = self._settings(), queries.latest_epoch(session)
        alive = pictures.heart_beats(epoch, self._clock.now_s(), settings.cycle.interval_s)
        return pictures.head(epoch, pictures.chosen(session), settings, daemon_alive=alive)

    def _admit(self, request: Request) -> None:
        if not self._settings().api.public and not _same_host(request):
            raise HTTPException(403, "api.public is false in sodad's configuration; ask on sodad's own host")


def _same_host(request: Request) -> bool:
    """Whether who asks is on this machine: by loopback, or by one of its own addresses."""
    if request.client is None:
        return False
    asking = request.client.host
    server = request.scope.get("server") or ("", 0)
    return asking == server[0] or ipaddress.ip_address(asking).is_loopback


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
