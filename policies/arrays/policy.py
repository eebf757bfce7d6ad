"""The multi-array scheduler of SODA (Section V-C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.arrays.dispatch import Decision, Dispatch, Held, totals_of
from slurm_soda.policies.arrays.division import Division, divide, with_arrays
from slurm_soda.policies.arrays.ground import Ground
from slurm_soda.policies.arrays.kinds import LARGE_FROM_GPUS, NodeClass, Share
from slurm_soda.policies.arrays.order import Standing
from slurm_soda.policies.arrays.requests import Request, Requests, Turn
from slurm_soda.policies.arrays.session import ArraysSession
from slurm_soda.policies.arrays.tenants import Tenant
from slurm_soda.policies.assembly import assemble, rank, rankable
from slurm_soda.policies.demand import Demand
from slurm_soda.policies.demand import Requests as JobRequests
from slurm_soda.policies.holders import entries_of, held_by, memory_shares_mib
from slurm_soda.policies.plan import Plan, Preempt, Verdict
from slurm_soda.policies.room import Claim
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable
from slurm_soda.policies.walk import Walk

MAX_ABORTS = 3
"""Our choice: so often a job gives back what it borrowed; then it borrows no more."""

_TENANTS = (JobState.RUNNING, JobState.SUSPENDED)
"""Who is leaving has left, as far as shares are concerned: nobody becomes a borrower on its account."""


@dataclass(frozen=True, slots=True)
class Coda:
    """Arrays for CPU jobs, small and large GPU jobs; borrowing between them; DRF between the users of each.

    Attributes:
        name: ``coda`` or ``soda``.
        cpu_cores: cores of each GPU node that CPU jobs may hold without borrowing; below 1 a part of the node's;
            ``None``: as ``shares`` say.
        large_nodes: nodes of each class that are the large array's; below 1 a part of the class's; ``None`` likewise.
        max_aborts: a job that was requeued so often keeps to its own array and is not aborted again.
        shares: how node classes are divided, as derived from history; a class that is not in it is divided as
            :func:`.shares.derive` does without history.
    """

    name: str = "coda"
    cpu_cores: float | None = None
    large_nodes: float | None = None
    max_aborts: int = MAX_ABORTS
    shares: Mapping[NodeClass, Share] = field(default_factory=dict)

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, and for each start O(log n) in nodes; a search over the nodes for each GPU job that
        others must make room for.
        """
        division = divide(snapshot.nodes, cpu_cores=self.cpu_cores, large_nodes=self.large_nodes, shares=self.shares)
        decided = replace(snapshot, nodes=with_arrays(snapshot.nodes, division))
        return _Deciding(self, decided, division).plan()

    def session(self, jobs: JobRequests, demand: Demand, nodes: NodeTable) -> ArraysSession:
        """The same from event to event."""
        division = divide(nodes, cpu_cores=self.cpu_cores, large_nodes=self.large_nodes, shares=self.shares)
        return ArraysSession(demand, with_arrays(nodes, division), division, max_aborts=self.max_aborts)


class _Deciding:
    """One decision on one snapshot; handles are rows."""

    def __init__(self, policy: Coda, snapshot: ClusterSnapshot, division: Division) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._walk = Walk(snapshot)
        jobs = snapshot.jobs
        self._may_borrow: BoolColumn = jobs.preemptible & (jobs.preemptions < policy.max_aborts)
        self._abortable = self._may_borrow & (jobs.state == JobState.RUNNING)
        self._requests = Requests(self._walk.demand.shapes, snapshot.nodes, division)
        self._asked = self._requests_of_rows()
        self._dispatch = Dispatch(
            Ground(self._walk.room, division, self._tenants()), totals_of(snapshot.nodes, division)
        )

    def plan(self) -> Plan:
        jobs, walk = self._snapshot.jobs, self._walk
        by_submission = rank(rankable(self._snapshot), jobs.submit_s)
        self._hold()
        waiting = walk.candidates(by_submission)
        self._line_up(waiting)
        dispatch = self._dispatch
        decision = dispatch.run(lambda array: dispatch.lines(array).waiting(), self._held_by, self._start)
        for row, claim in decision.starts:
            walk.record(row, claim)
        walk.verdict[list(decision.aborts)] = Verdict.PREEMPT
        standing = Standing(self._asked, jobs, self._dispatch)
        ranked = self._whole_order(by_submission, [row for row, _ in decision.starts], standing)
        return assemble(
            walk, self._policy.name, ranked, score=standing.score(), score_name="dominant_share_ratio",
            queue=standing.queue(), preempts=self._preempts(decision),
        )  # fmt: skip

    def _requests_of_rows(self) -> list[Request]:
        jobs, demand, of = self._snapshot.jobs, self._walk.demand, self._requests.of
        # A job that runs may be counted with whatever rights: its array is the same.
        pairs = zip(demand.code.tolist(), self._may_borrow.tolist(), strict=True)
        return [of(code, may_borrow=may_borrow) for code, may_borrow in pairs] if len(jobs) else []

    def _tenants(self) -> Iterator[tuple[int, Tenant]]:
        jobs = self._snapshot.jobs
        guests = np.isin(jobs.state, _TENANTS) & (jobs.gpus < LARGE_FROM_GPUS)
        owner, entry = entries_of(jobs, np.flatnonzero(guests).astype(np.int64))
        columns: tuple[NDArray[np.generic], ...] = (
            jobs.alloc_node[entry], self._abortable[owner], jobs.start_s[owner], jobs.job_id[owner], owner,
            jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_shares_mib(jobs, owner, entry),
        )  # fmt: skip
        for node, *rest in zip(*(column.tolist() for column in columns), strict=True):
            yield node, Tenant(*rest)

    def _hold(self) -> None:
        jobs = self._snapshot.jobs
        rows = np.flatnonzero(np.isin(jobs.state, _TENANTS)).astype(np.int64)
        owner, entry = entries_of(jobs, rows)
        gpus, cpus = (
            np.bincount(owner, weights=column[entry], minlength=len(jobs)).astype(np.int64)
            for column in (jobs.alloc_gpus, jobs.alloc_cpus)
        )
        columns = (rows, jobs.user[rows], gpus[rows], cpus[rows])
        for row, user, *amounts in zip(*(column.tolist() for column in columns), strict=True):
            self._dispatch.lines(self._asked[row].array).hold(user, (amounts[0], amounts[1]))

    def _line_up(self, rows: IntColumn) -> None:
        jobs = self._snapshot.jobs
        columns = (rows, jobs.user[rows], jobs.submit_s[rows], jobs.job_id[rows], jobs.preemptions[rows] > 0)
        for row, user, submit_s, job_id, aborted in zip(*(column.tolist() for column in columns), strict=True):
            request = self._asked[row]
            self._dispatch.lines(request.array).wait(request, user, (submit_s, job_id), row, aborted=aborted)

    def _held_by(self, row: int) -> Held:
        jobs = self._snapshot.jobs
        return Held(
            self._asked[row], int(jobs.user[row]), held_by(jobs, row), bool(self._abortable[row]),
            float(jobs.start_s[row]), int(jobs.job_id[row]), row,
        )  # fmt: skip

    def _start(self, request: Request, row: int, claim: Claim) -> Held:
        jobs = self._snapshot.jobs
        # Who gets places in a decision is not asked to leave them in the same one.
        return Held(request, int(jobs.user[row]), claim.pieces, False, self._snapshot.now_s, int(jobs.job_id[row]), row)

    def _whole_order(self, by_submission: IntColumn, started: list[int], standing: Standing) -> IntColumn:
        state, verdict = self._snapshot.jobs.state[by_submission], self._walk.verdict[by_submission]
        running = by_submission[state == JobState.RUNNING]
        never = by_submission[verdict == Verdict.TOO_LARGE]
        waiting = standing.in_turn(by_submission[verdict == Verdict.WAIT])
        at_once = [row for row in started if self._walk.verdict[row] == Verdict.START]
        soon = [row for row in started if self._walk.verdict[row] != Verdict.START]
        return np.concatenate((running, np.array([*at_once, *soon], dtype=np.int64), waiting, never))

    def _preempts(self, decision: Decision) -> tuple[Preempt, ...]:
        job_id = self._snapshot.jobs.job_id
        plan = []
        for victim, beneficiary in decision.aborts.items():
            small = self._asked[victim].turn == Turn.SMALL
            what = "GPUs of the large array" if small else "cores of the GPU arrays"
            owner = int(job_id[beneficiary])
            reason = f"it borrowed {what}, which job {owner} needs"
            plan.append(Preempt(int(job_id[victim]), (owner,), reason))
        return tuple(plan)
