"""A policy that keeps its own state, under the passing limit: while a job is overdue, whole snapshots decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.simulator.engine.deciders.protocols import Decider
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider


class AdoptingDecider(Decider, Protocol):
    """A decider that takes somebody else's decision for its own."""

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """As if :meth:`decide` had answered this; it is carried out and confirmed as usual."""
        ...


class BoundedDecider:
    """Keeps a session and a snapshot in step; decides as the snapshot alone would."""

    def __init__(self, session: AdoptingDecider, snapshots: SnapshotDecider) -> None:
        self._session, self._snapshots = session, snapshots
        self._by_snapshot = False

    def submit(self, job: SessionJob) -> None:
        self._snapshots.submit(job)
        self._session.submit(job)

    def end(self, job: SessionJob) -> None:
        self._snapshots.end(job)
        self._session.end(job)

    def stopped(self, job: SessionJob) -> None:
        self._snapshots.stopped(job)
        self._session.stopped(job)

    def started(self, job: SessionJob) -> None:
        self._snapshots.started(job)
        self._session.started(job)

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        self._snapshots.changed(job, before)
        self._session.changed(job, before)  # type: ignore[attr-defined]

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """Somebody else decided; the snapshot hears of it when it has happened."""
        self._session.adopt(preempts, starts)

    def next_event_s(self) -> float:
        if self._by_snapshot:
            return self._snapshots.next_event_s()
        return min(self._session.next_event_s(), self._snapshots.next_overdue_s())

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        self._by_snapshot = self._snapshots.has_overdue(now_s)
        if not self._by_snapshot:
            return self._session.decide(now_s)
        preempts, starts = self._snapshots.decide(now_s)
        self._session.adopt(preempts, starts)
        return preempts, starts


class CountedSnapshots(SnapshotDecider):
    """Snapshots of one node with all GPUs, of jobs without places."""

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        preempts, starts = super().decide(now_s)
        return preempts, [(job, ()) for job, _ in starts]

    def _pieces_of(self, job: SessionJob) -> tuple[NodeAllocation, ...]:
        return (NodeAllocation(0, job.gpus, 0, 0),)
