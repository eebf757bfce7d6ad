"""What follows at an event without asking a policy that shares, while nobody does and its order is that of single jobs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slurm_soda.policies.engine.demand import Demand
from slurm_soda.policies.session.nodes import NodeSession
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.policies.sharing.known_order import KnownOrderPolicy
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import NodeTable
from slurm_soda.simulator.sharing.join_outlook import JoinOutlook
from slurm_soda.simulator.sharing.plain_decisions import count_parts
from slurm_soda.simulator.workload import Workload


class RankedDecisions:
    """Decides for a :class:`.KnownOrderPolicy` as long as nobody would be preempted, and nobody might join anybody.

    Whether somebody might is looked at when something happened to jobs with GPUs, and when jobs without GPUs left cores or
    memory that help a possible guest.

    Attributes:
        may_join: what was found when that was last looked at.
    """

    def __init__(self, policy: KnownOrderPolicy, demand: Demand, nodes: NodeTable, outlook: JoinOutlook) -> None:
        """``nodes``: idle ones."""
        self._ranking, self._outlook = policy.known_order(), outlook
        self._session, self._priced = NodeSession(self._ranking, demand, nodes), policy.prices_preemption
        self._shapes, self._codes = demand.shapes, demand.code.tolist()
        self._gpus = nodes.gpus.tolist()
        self._free_gpus = int(nodes.gpus.sum())
        self._waiting: dict[int, SessionJob] = {}
        """Those with GPUs, by id."""
        self._seen: dict[int, tuple[int, int, int]] = {}
        """Nodes that jobs without GPUs left since joining was last looked at, and what was free there before."""
        self._happened = True
        """Something happened to jobs with GPUs since then."""
        self.may_join = False
        self._session.look_at_all()

    def add(self, waiting: Iterable[SessionJob], running: Iterable[SessionJob]) -> None:
        """Jobs that are there already."""
        for job in waiting:
            job.frozen = None
            self.submit(job)
        for job in running:
            job.frozen = None
            self.submit(job)
            self.started(job)

    def submit(self, job: SessionJob) -> None:
        """A job begins to wait."""
        job.shape = self._codes[job.job_id - 1]
        self._session.submit(job)
        if job.gpus and not self._session.is_too_large(job):
            self._happened = True
            self._waiting[job.job_id] = job
            self._outlook.submit(job)

    def started(self, job: SessionJob) -> None:
        """A job runs on its ``pieces``."""
        self._session.started(job)
        if job.gpus:
            self._happened = True
            self._free_gpus -= job.gpus
            del self._waiting[job.job_id]
            self._outlook.started(job)

    def ended(self, job: SessionJob) -> None:
        """A job gave back what it held."""
        self._left(job)
        self._session.ended(job)

    def stopped(self, job: SessionJob) -> None:
        """A job gave back what it held, and waits again."""
        self.ended(job)
        self.submit(job)

    def _left(self, job: SessionJob) -> None:
        if job.gpus:
            self._happened = True
            self._free_gpus += job.gpus
            self._outlook.ended(job)
            return
        for piece in job.pieces:
            self._seen.setdefault(piece.node, self._session.free_on(piece.node))

    def next_event_s(self) -> float:
        """When the order may change without any event."""
        return self._session.next_event_s()

    def asked(self, *, anew: bool) -> None:
        """The policy was; ``anew``: for other reasons than those of :meth:`decide`, or it preempted somebody."""
        self._happened = False
        self._seen.clear()
        if anew:
            self._session.look_at_all()

    def wants_hosts(self, starts: Iterable[JobStart]) -> bool:
        """Whether those who start could be joined as soon as they run, by others than themselves."""
        return any(job.gpus and self._outlook.may_be_hosted(job) for job, _ in starts)

    def decide(self, now_s: float, known: KindEstimates, *, look: bool) -> list[JobStart] | None:
        """Who starts now; ``None``: the policy must say so. ``look``: whether somebody might join is to be looked at."""
        if self._happened and self._priced:
            self._session.look_at_all()
        starts = self._session.find_starts(now_s)
        look = look or self._happened or self._helps()
        if look:
            self._happened = False
            self._seen.clear()
            self.may_join = self._may_join(now_s, starts or (), known)
        return None if look and self.may_join else starts

    def _may_join(self, now_s: float, starts: Iterable[JobStart], known: KindEstimates) -> bool:
        going = {job.job_id for job, _ in starts}
        left = [job for job in self._waiting.values() if job.job_id not in going]
        taken = sum(job.gpus for job, _ in starts)
        left.sort(key=self._ranking.waiting)
        return self._outlook.may_join(now_s, left, self._free_gpus - taken, self._session.free_on, known)

    def _helps(self) -> bool:
        """Whether what jobs without GPUs left gives a possible guest a part of its request that it could not have."""
        shapes = [self._shapes[number] for number in self._outlook.guest_shapes()] if self._seen else ()
        return any(
            count_parts(shape, *self._session.free_on(node)[1:], most) > count_parts(shape, *before[1:], most)
            for node, before in self._seen.items()
            for shape in shapes
            for most in (min(shape.units, self._gpus[node]) if shape.units else 1,)
        )


def knows_run_times(workload: Workload) -> bool:
    """Whether it is known how long each job with GPUs runs, and its time limit leaves it that."""
    run_s, expected_s, limit_s = (
        column[workload.gpus > 0] for column in (workload.run_s, workload.expected_s, workload.time_limit_s)
    )
    return bool(np.array_equal(run_s, expected_s) and not (run_s > limit_s).any())
