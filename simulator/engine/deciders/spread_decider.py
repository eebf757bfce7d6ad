"""Jobs that are spread: GPUs are taken from the node that has the most, whoever decides that the job runs."""

from __future__ import annotations

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.protocols import Decider


class SpreadDecider:
    """GPUs that are counted, whose jobs are placed after the decision, most free GPUs first (ties: the lower node row).

    This is what Pollux' simulator does for Tiresias; a job that runs is never moved. O(nodes) for each piece.
    """

    def __init__(self, session: Decider, cluster: SimulatedCluster) -> None:
        self._session = session
        self._free: list[int] = cluster.gpus.tolist()

    def submit(self, job: SessionJob) -> None:
        self._session.submit(job)

    def end(self, job: SessionJob) -> None:
        self._vacate(job)
        self._session.end(job)

    def stopped(self, job: SessionJob) -> None:
        self._session.stopped(job)

    def started(self, job: SessionJob) -> None:
        self._session.started(job)

    def next_event_s(self) -> float:
        return self._session.next_event_s()

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        preempts, starts = self._session.decide(now_s)
        for job in preempts:
            self._vacate(job)
        return preempts, [(job, self._place(job.gpus)) for job, _ in starts]

    def _vacate(self, job: SessionJob) -> None:
        for piece in job.pieces:
            self._free[piece.node] += piece.gpus

    def _place(self, gpus: int) -> tuple[NodeAllocation, ...]:
        pieces: list[NodeAllocation] = []
        while gpus:
            most = max(self._free)
            node = self._free.index(most)
            part = min(most, gpus)
            self._free[node] -= part
            gpus -= part
            pieces.append(NodeAllocation(node, part, 0, 0))
        return tuple(pieces)
