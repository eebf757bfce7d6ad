"""Pools from event to event."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.engine.demand import Demand
from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import find_too_large
from slurm_soda.policies.pools.layout.node_division import PoolDivision
from slurm_soda.policies.pools.scheduling.pool_capacity import PoolCapacity
from slurm_soda.policies.pools.scheduling.pool_requests import PoolKey, PoolRequest, PoolRequests
from slurm_soda.policies.pools.scheduling.scheduler import PoolScheduler, RunningPoolJob, make_pool_totals
from slurm_soda.policies.session.ranking import INFINITY, JobStart, SessionJob
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable


class MultiPoolSession:
    """Decides as :class:`~slurm_soda.policies.pools.policy.Coda` does of whole snapshots.

    After a decision no waiting job fits, aborts included. So the next one tries only requests that are new, and
    those that could use a node on which more is available than before.
    """

    def __init__(self, demand: Demand, nodes: NodeTable, division: PoolDivision, *, max_aborts: int) -> None:
        """``nodes`` are idle, with the columns of
        :func:`~slurm_soda.policies.pools.layout.node_division.add_pool_columns`.
        """
        self._max_aborts = max_aborts
        self._too_large: list[bool] = find_too_large(demand.shapes, nodes).tolist()
        self._requests = PoolRequests(demand.shapes, nodes, division)
        self._capacity = PoolCapacity(
            FreeCapacity(ClusterSnapshot(0.0, build_job_table([]), nodes)), division, (), with_availability=True
        )
        assert self._capacity.availability is not None
        self._availability = self._capacity.availability
        self._dispatch = PoolScheduler(self._capacity, make_pool_totals(nodes, division))
        self._jobs: dict[int, SessionJob] = {}
        self._held: dict[int, RunningPoolJob] = {}
        self._fresh: dict[PoolRequest, None] = {}
        self._grown: set[int] = set()
        """Nodes with more available when the present decision began than when the last one ended."""
        self._now_s = 0.0
        self._decide_again_s = INFINITY

    def submit(self, job: SessionJob) -> None:
        if not self._too_large[job.shape]:
            self._jobs[job.job_id] = job
            self._wait(job)

    def end(self, job: SessionJob) -> None:
        held = self._held.pop(job.job_id)
        del self._jobs[job.job_id]
        self._capacity.give(held.pieces, held.by_node())
        self._dispatch.queues(held.request.pool).hold(held.user, held.amounts, -1)

    def stopped(self, job: SessionJob) -> None:
        job.preemptions += 1
        self._wait(job)

    def started(self, job: SessionJob) -> None:
        """What the job holds was taken when it was decided."""

    def changed(self, job: SessionJob, before: Sequence[NodeAllocation]) -> None:
        """A running job has other CPUs than ``before`` on the same nodes."""
        old = self._held[job.job_id]
        if tuple(old.pieces) == job.pieces:
            return
        new = self._held[job.job_id] = old.on(list(job.pieces))
        self._capacity.resize(old.pieces, old.by_node(), new.pieces, new.by_node())
        queues = self._dispatch.queues(old.request.pool)
        queues.hold(old.user, old.amounts, -1)
        queues.hold(new.user, new.amounts)

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """Somebody else decided: as if :meth:`decide` had answered this. O(waiting jobs) for each start."""
        for job in preempts:
            self.end(job)
            self._jobs[job.job_id] = job
        for job, pieces in starts:
            request = self._request(job)
            self._dispatch.queues(request.pool).withdraw(request, job.user, job.job_id)
            claim = JobPlacement(list(pieces), at_once=True)
            held = self._start(request, job.job_id, claim)
            self._capacity.take(claim, held.by_node())
            self._dispatch.queues(request.pool).hold(held.user, held.amounts)
        for queues in self._dispatch.pools.values():
            self._fresh.update(dict.fromkeys(queues.waiting()))
        self._decide_again_s = INFINITY

    def next_event_s(self) -> float:
        return self._decide_again_s

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        self._decide_again_s = INFINITY
        self._grown, self._availability.grown = self._availability.grown, set()
        if not self._fresh and not (self._grown and self._waits()):
            return [], []
        self._now_s = now_s
        decision = self._dispatch.run(self._wanted, self._held.__getitem__, self._start)
        self._fresh.clear()
        # What aborted jobs leave may be of use to a pool that was already served; it is served again when they wait again.
        if decision.aborts:
            self._capacity.settle()
        for job_id in decision.aborts:
            del self._held[job_id]
        self._decide_again_s = now_s if decision.aborts else INFINITY
        jobs = self._jobs
        starts: list[JobStart] = [(jobs[job_id], tuple(claim.pieces)) for job_id, claim in decision.starts]
        return [jobs[job_id] for job_id in decision.aborts], starts

    def _request(self, job: SessionJob) -> PoolRequest:
        may_borrow = job.preemptible and job.preemptions < self._max_aborts
        return self._requests.of(job.shape, may_borrow=may_borrow)

    def _wait(self, job: SessionJob) -> None:
        request = self._request(job)
        queues, order = self._dispatch.queues(request.pool), (job.submit_s, job.job_id)
        queues.wait(request, job.user, order, job.job_id, aborted=job.preemptions > 0)
        self._fresh[request] = None

    def _waits(self) -> bool:
        return any(queues.waiting() for queues in self._dispatch.pools.values())

    def _wanted(self, pool: PoolKey) -> list[PoolRequest]:
        """Requests of a pool that are new, or could use a node that has grown."""
        fresh, could_use = self._fresh, self._availability.could_use
        grown = self._grown | self._availability.grown
        return [
            request
            for request in self._dispatch.queues(pool).waiting()
            if request in fresh or any(could_use(request, node) for node in grown)
        ]

    def _start(self, request: PoolRequest, job_id: int, claim: JobPlacement) -> RunningPoolJob:
        job = self._jobs[job_id]
        may_borrow = job.preemptible and job.preemptions < self._max_aborts
        held = RunningPoolJob(request, job.user, claim.pieces, may_borrow, self._now_s, job_id, job_id)
        self._held[job_id] = held
        return held
