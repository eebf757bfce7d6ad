"""A policy on nodes whose order is known job by job: it is asked only when a job might preempt."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.session.nodes import NodeSession
from slurm_soda.policies.session.ranking import INFINITY, JobStart, SessionJob
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider


class RankedNodeDecider:
    """Keeps a session and a snapshot in step; decides as the snapshot alone would."""

    def __init__(self, session: NodeSession, snapshots: SnapshotDecider, shapes: Sequence[int]) -> None:
        """``shapes`` is the number of each job's request, by row."""
        self._session, self._snapshots, self._shapes = session, snapshots, shapes
        self._look_again_s = INFINITY
        self._by_snapshot = False
        """A job was overdue at the last decision."""

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        self._snapshots.changed(job, before)
        self._session.changed(job, before)

    def submit(self, job: SessionJob) -> None:
        job.shape = self._shapes[job.job_id - 1]
        self._snapshots.submit(job)
        self._session.submit(job)

    def end(self, job: SessionJob) -> None:
        self._snapshots.end(job)
        self._session.ended(job)

    def stopped(self, job: SessionJob) -> None:
        self._snapshots.stopped(job)
        self._session.stopped(job)

    def started(self, job: SessionJob) -> None:
        self._snapshots.started(job)
        self._session.started(job)

    def next_event_s(self) -> float:
        if self._by_snapshot:
            return self._snapshots.next_event_s()
        return min(self._look_again_s, self._session.next_event_s(), self._snapshots.next_overdue_s())

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        self._look_again_s = INFINITY
        self._by_snapshot = self._snapshots.has_overdue(now_s)
        if self._by_snapshot:
            self._session.look_at_all()
            return self._snapshots.decide(now_s)
        starts = self._session.find_starts(now_s)
        if starts is not None:
            return [], starts
        preempts, starts = self._snapshots.decide(now_s)
        if preempts:  # as the daemon's next cycle, once they have left
            self._look_again_s = now_s
            self._session.look_at_all()
        return preempts, starts
