"""Reports of jobs over HTTP: to their owners, and to whomever Slurm would tell what they used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.kept_answers import UserTurns
from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.job_reports.build import MAX_LINES, read_job_lines, read_job_report
from slurm_soda.daemon.job_reports.model import JobLines, JobReport
from slurm_soda.daemon.store import queries

JobId = Annotated[int, Path(ge=1, le=2**32 - 1)]
Limit = Annotated[int, Query(ge=1, le=MAX_LINES)]
Name = Annotated[str | None, Query(max_length=255)]

ViewAnswer = Callable[[Callable[[Session], object]], Awaitable[Response]]
"""Makes an answer of what a function reads from the store, when there is room for it."""


class JobReportRoutes:
    """One job's report, and a line for each of a user's newest jobs."""

    def __init__(self, answer: ViewAnswer, clock: Clock, turns: UserTurns, details: UserTurns) -> None:
        """``turns``: long lists take sodad's time, so a user with many questions waits between them; ``details``: and so do
        reports of wide jobs.
        """
        self._answer, self._clock, self._turns, self._details = answer, clock, turns, details

    def routes(self) -> APIRouter:
        """The routes; who asks must be known to the request already."""
        router = APIRouter(prefix="/job-reports")
        router.get("")(self.lines)
        router.get("/{job_id}")(self.report)
        return router

    async def lines(
        self, request: Request, limit: Limit = 20, user: Name = None, *, everybody: bool = False
    ) -> Response:
        """The newest jobs of who asks, of another user, or of all.

        A :class:`~slurm_soda.daemon.job_reports.model.JobLines`.
        """
        viewer: Viewer = request.state.viewer
        of = None if everybody else user or viewer.user

        def read_lines(session: Session) -> JobLines:
            now_s = self._clock.now_s()
            return read_job_lines(session, now_s, limit, user=of, visible=viewer.jobs_of_visible_use())

        async with self._turns.of(viewer.user):
            return await self._answer(read_lines)

    async def report(self, request: Request, job_id: JobId) -> Response:
        """All about one job: a :class:`~slurm_soda.daemon.job_reports.model.JobReport`."""
        viewer: Viewer = request.state.viewer

        def read_report(session: Session) -> JobReport:
            job = queries.find_job(session, job_id)
            if job is not None and viewer.may_see_use(job):
                return read_job_report(session, job, self._clock.now_s())
            # In the same words whether there is such a job or not, where others are private.
            private = viewer.jobs_of_visible_use() is not None
            why = f" of {viewer.user}; Slurm's PrivateData keeps those of others private" if private else ""
            raise HTTPException(403, f"sodad knows no job {job_id}{why}")

        async with self._details.of(viewer.user):
            return await self._answer(read_report)
