"""A policy that only starts jobs is not asked while none of them would fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider


class StartsOnlyDecider:
    """Keeps the free capacity with a snapshot; decides as the snapshot alone would.

    An event costs one search for places for each distinct request that waits, at most; if only arrivals happened since
    nothing fitted, for those of the arrivals.
    """

    def __init__(self, snapshots: SnapshotDecider, shapes: Sequence[RequestShape], codes: Sequence[int]) -> None:
        """``shapes`` are all requests, ``codes`` the number of each job's own, by row."""
        self._snapshots = snapshots
        self._shapes, self._codes = shapes, codes
        nodes = snapshots.nodes()
        self._free_nodes = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self._waiting: Counter[int] = Counter()
        self._unseen: set[int] = set()
        """Requests that have not been refused since capacity was last freed."""
        self._asked = False

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        self._free_nodes.give(list(before))
        self._free_nodes.take(list(job.pieces))
        if sum(piece.cpus for piece in job.pieces) < sum(piece.cpus for piece in before):
            self._unseen = set(self._waiting)
        self._snapshots.changed(job, before)

    def submit(self, job: SessionJob) -> None:
        code = self._codes[job.job_id - 1]
        self._waiting[code] += 1
        self._unseen.add(code)
        self._snapshots.submit(job)

    def end(self, job: SessionJob) -> None:
        self._free_nodes.give(list(job.pieces))
        self._unseen = set(self._waiting)
        self._snapshots.end(job)

    def stopped(self, job: SessionJob) -> None:
        """The policy preempts nobody, but an overdue job may."""
        self._free_nodes.give(list(job.pieces))
        self._waiting[self._codes[job.job_id - 1]] += 1
        self._unseen = set(self._waiting)
        self._snapshots.stopped(job)

    def started(self, job: SessionJob) -> None:
        code = self._codes[job.job_id - 1]
        self._waiting[code] -= 1
        if not self._waiting[code]:
            del self._waiting[code]
            self._unseen.discard(code)
        self._free_nodes.take(list(job.pieces))
        self._snapshots.started(job)

    def next_event_s(self) -> float:
        # Nothing fits until somebody leaves, and then it is asked anyway.
        return self._snapshots.next_event_s() if self._asked else self._snapshots.next_overdue_s()

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        if self._snapshots.has_overdue(now_s):
            self._asked, self._unseen = True, set(self._waiting)
            return self._snapshots.decide(now_s)
        self._asked = self._any_fits()
        if not self._asked:
            self._unseen.clear()
            return [], []
        return self._snapshots.decide(now_s)

    def _any_fits(self) -> bool:
        refusals = RefusedShapes()
        for code in sorted(self._unseen):
            shape = self._shapes[code]
            if refusals.cover(shape):
                continue
            if self._free_nodes.find(shape) is not None:
                return True
            refusals.add(shape)
        return False
