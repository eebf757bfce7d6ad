"""The multi-pool scheduler of SODA (Section V-C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.allocations import find_allocation_entries, list_allocations, split_memory_mib
from slurm_soda.policies.engine.demand import Demand
from slurm_soda.policies.engine.demand import RequestColumns as JobRequests
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.pools.kinds import LARGE_FROM_GPUS, NodeClass, PoolShare
from slurm_soda.policies.pools.layout.node_division import PoolDivision, add_pool_columns, divide_nodes
from slurm_soda.policies.pools.scheduling.job_order import PoolJobOrder
from slurm_soda.policies.pools.scheduling.node_usage import JobOnNode
from slurm_soda.policies.pools.scheduling.pool_capacity import PoolCapacity
from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest, PoolRequests, ServingOrder
from slurm_soda.policies.pools.scheduling.scheduler import PoolDecision, PoolScheduler, RunningPoolJob, make_pool_totals
from slurm_soda.policies.pools.session import MultiPoolSession
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable

MAX_ABORTS = 3
"""Our choice: a job is aborted at most so often; then it borrows no more."""

_HOLDING_STATES = (JobState.RUNNING, JobState.SUSPENDED)
"""A job that is leaving has left, as far as shares are concerned: no other becomes a borrower because of it."""


@dataclass(frozen=True, slots=True)
class Coda:
    """Pools for CPU jobs, small and large GPU jobs; borrowing between them; DRF between the users of each.

    Attributes:
        name: ``coda`` or ``soda``.
        cpu_cores: cores of each GPU node that CPU jobs may hold without borrowing; below 1 a part of the node's;
            ``None``: as ``shares`` say.
        large_nodes: nodes of each class that are the large pool's; below 1 a part of the class's; ``None`` likewise.
        max_aborts: a job that was requeued so often keeps to its own pool and is not aborted again.
        shares: how node classes are divided, as derived from history; a class that is not in it is divided as
            :func:`.derive_shares` does without history.
    """

    name: str = "coda"
    cpu_cores: float | None = None
    large_nodes: float | None = None
    max_aborts: int = MAX_ABORTS
    shares: Mapping[NodeClass, PoolShare] = field(default_factory=dict)

    def with_shares(self, shares: Mapping[NodeClass, PoolShare]) -> Coda:
        """See :class:`.policy.DividesNodes`."""
        return self if self.shares else replace(self, shares=dict(shares))

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, and for each start O(log n) in nodes; a search over the nodes for each GPU job for
        which others must be aborted.
        """
        division = divide_nodes(
            snapshot.nodes, cpu_cores=self.cpu_cores, large_nodes=self.large_nodes, shares=self.shares
        )
        decided = replace(snapshot, nodes=add_pool_columns(snapshot.nodes, division))
        return _SnapshotDecision(self, decided, division).plan()

    def session(self, jobs: JobRequests, demand: Demand, nodes: NodeTable) -> MultiPoolSession:
        """This policy for a simulation, from event to event."""
        division = divide_nodes(nodes, cpu_cores=self.cpu_cores, large_nodes=self.large_nodes, shares=self.shares)
        return MultiPoolSession(demand, add_pool_columns(nodes, division), division, max_aborts=self.max_aborts)


class _SnapshotDecision:
    """One decision on one snapshot; handles are rows."""

    def __init__(self, policy: Coda, snapshot: ClusterSnapshot, division: PoolDivision) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._placing = PlacementPass(snapshot)
        jobs = snapshot.jobs
        self._may_borrow: BoolColumn = jobs.preemptible & (jobs.preemptions < policy.max_aborts)
        self._may_be_requeued = self._may_borrow & (jobs.state == JobState.RUNNING)
        self._requests = PoolRequests(self._placing.demand.shapes, snapshot.nodes, division)
        self._asked = self._requests_of_rows()
        self._dispatch = PoolScheduler(
            PoolCapacity(self._placing.free_capacity, division, self._jobs_on_nodes()),
            make_pool_totals(snapshot.nodes, division),
        )

    def plan(self) -> Plan:
        jobs, placing = self._snapshot.jobs, self._placing
        by_submission = rank_rows(jobs, find_rankable_rows(self._snapshot), jobs.submit_s)
        self._hold()
        waiting = placing.candidates(by_submission)
        self._queue_jobs(waiting)
        dispatch = self._dispatch
        decision = dispatch.run(lambda pool: dispatch.queues(pool).waiting(), self._held_by, self._start)
        for row, claim in decision.starts:
            placing.record(row, claim)
        placing.verdict[list(decision.aborts)] = JobVerdict.PREEMPT
        standing = PoolJobOrder(self._asked, jobs, self._dispatch)
        ranked = self._order_all_rows(by_submission, [row for row, _ in decision.starts], standing)
        return build_plan(
            placing,
            self._policy.name,
            ranked,
            score=standing.score(),
            score_name="dominant_share_ratio",
            queue=standing.queue(),
            preempts=self._preempts(decision),
        )

    def _requests_of_rows(self) -> list[PoolRequest]:
        jobs, demand, of = self._snapshot.jobs, self._placing.demand, self._requests.of
        # Whether a running job may borrow does not matter here: its pool is the same.
        pairs = zip(demand.code.tolist(), self._may_borrow.tolist(), strict=True)
        return [of(code, may_borrow=may_borrow) for code, may_borrow in pairs] if len(jobs) else []

    def _jobs_on_nodes(self) -> Iterator[tuple[int, JobOnNode]]:
        jobs = self._snapshot.jobs
        counted = np.isin(jobs.state, _HOLDING_STATES) & (jobs.gpus < LARGE_FROM_GPUS)
        owner, entry = find_allocation_entries(jobs, np.flatnonzero(counted).astype(np.int64))
        columns: tuple[NDArray[np.generic], ...] = (
            jobs.alloc_node[entry],
            self._may_be_requeued[owner],
            jobs.start_s[owner],
            jobs.job_id[owner],
            owner,
            jobs.alloc_gpus[entry],
            jobs.alloc_cpus[entry],
            split_memory_mib(jobs, owner, entry),
        )
        for node, *rest in zip(*(column.tolist() for column in columns), strict=True):
            yield node, JobOnNode(*rest)

    def _hold(self) -> None:
        jobs = self._snapshot.jobs
        rows = np.flatnonzero(np.isin(jobs.state, _HOLDING_STATES)).astype(np.int64)
        owner, entry = find_allocation_entries(jobs, rows)
        gpus, cpus = (
            np.bincount(owner, weights=column[entry], minlength=len(jobs)).astype(np.int64)
            for column in (jobs.alloc_gpus, jobs.alloc_cpus)
        )
        columns = (rows, jobs.user[rows], gpus[rows], cpus[rows])
        for row, user, *amounts in zip(*(column.tolist() for column in columns), strict=True):
            self._dispatch.queues(self._asked[row].pool).hold(user, (amounts[0], amounts[1]))

    def _queue_jobs(self, rows: IntColumn) -> None:
        jobs = self._snapshot.jobs
        columns = (rows, jobs.user[rows], jobs.submit_s[rows], jobs.job_id[rows], jobs.preemptions[rows] > 0)
        for row, user, submit_s, job_id, aborted in zip(*(column.tolist() for column in columns), strict=True):
            request = self._asked[row]
            self._dispatch.queues(request.pool).wait(request, user, (submit_s, job_id), row, aborted=aborted)

    def _held_by(self, row: int) -> RunningPoolJob:
        jobs = self._snapshot.jobs
        return RunningPoolJob(
            self._asked[row],
            int(jobs.user[row]),
            list_allocations(jobs, row),
            bool(self._may_be_requeued[row]),
            float(jobs.start_s[row]),
            int(jobs.job_id[row]),
            row,
        )

    def _start(self, request: PoolRequest, row: int, claim: JobPlacement) -> RunningPoolJob:
        jobs = self._snapshot.jobs
        # A job that gets places in a decision is not aborted in the same one.
        return RunningPoolJob(
            request, int(jobs.user[row]), claim.pieces, False, self._snapshot.now_s, int(jobs.job_id[row]), row
        )

    def _order_all_rows(self, by_submission: IntColumn, started: list[int], standing: PoolJobOrder) -> IntColumn:
        state, verdict = self._snapshot.jobs.state[by_submission], self._placing.verdict[by_submission]
        running = by_submission[state == JobState.RUNNING]
        never = by_submission[verdict == JobVerdict.TOO_LARGE]
        waiting = standing.in_turn(by_submission[verdict == JobVerdict.WAIT])
        at_once = [row for row in started if self._placing.verdict[row] == JobVerdict.START]
        soon = [row for row in started if self._placing.verdict[row] != JobVerdict.START]
        return np.concatenate((running, np.array([*at_once, *soon], dtype=np.int64), waiting, never))

    def _preempts(self, decision: PoolDecision) -> tuple[PreemptJob, ...]:
        job_id = self._snapshot.jobs.job_id
        plan = []
        for victim, beneficiary in decision.aborts.items():
            small = self._asked[victim].turn == ServingOrder.SMALL
            what = "GPUs of the large pool" if small else "cores of the GPU pools"
            owner = int(job_id[beneficiary])
            reason = f"it borrowed {what}, which job {owner} needs"
            plan.append(PreemptJob(int(job_id[victim]), (owner,), reason))
        return tuple(plan)
