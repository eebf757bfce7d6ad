"""What a policy wants: an order, starts, and actions upon single jobs, with the reason of each.

A plan is a value. It names jobs by id, so it outlives the snapshot it was made from, and it never says how Slurm is told
(that is the actuator's work).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.cpu_fit.fit import CpuFitNote
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.pipeline.actions import Action, OrderJobs, PreemptJob
from slurm_soda.policies.snapshot import NEVER, BoolColumn, FloatColumn, IntColumn, UnknownNodes
from slurm_soda.policies.snapshot_file.identifiers import JobId, JobIdColumn, Word


class JobVerdict(IntEnum):
    """What the plan says of one job."""

    WAIT = 0
    """Waits: it does not fit beside the jobs before it."""
    START = 1
    """Fits now: Slurm shall start it."""
    RUN = 2
    """Runs and keeps running."""
    PREEMPT = 3
    """Runs and shall be requeued for jobs before it."""
    PROTECTED = 4
    """Runs on although jobs before it want its GPUs: it cannot be preempted, or its minimum run time is not over."""
    WAIT_FOR_PREEMPTION = 5
    """Starts as soon as the preempted jobs have left."""
    BLOCKED = 6
    """Not eligible in Slurm's eyes (held, dependency, begin time)."""
    LEAVING = 7
    """Completing or suspended: nothing to decide."""
    TOO_LARGE = 8
    """No set of nodes of its partition could ever hold it."""
    JOIN = 9
    """Starts on GPUs of running jobs as soon as its request is that of a guest. As it is, it does not fit."""


@dataclass(frozen=True, slots=True)
class JobNotes:
    """The policy's own numbers for every job of the snapshot, in the snapshot's row order (for ``explain``).

    ``score`` is the number by which the policy judges the job; its name and unit are in ``score_name``. ``position`` is
    the whole order: queue, score and ties.
    """

    job_id: JobIdColumn
    verdict: NDArray[np.int8]
    queue: IntColumn
    """Queue number, 0 first; all 0 for a policy without queues."""
    score: FloatColumn
    position: IntColumn
    """Rank over all jobs that want or hold resources, 0 first; -1 where the job was not ranked."""
    score_name: Word = "score"
    reserved_in_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """In how many seconds at the latest room is reserved for each job, NaN for none; empty: no job has any."""
    behind: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The waiting job for which Slurm keeps the nodes that each job could take, by id, 0 for none; empty: for none at all.
    No one is preempted for such a job, and if it fits now Slurm may well not start it."""
    unknown_nodes: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """As in :class:`.JobTable`."""
    overdue: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """As in :class:`.JobTable`."""
    price_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Seconds on each of its GPUs that it costs to preempt a job now, NaN where nothing was learned of that; empty: of no
    job."""

    def of(self, job_id: int) -> JobNote:
        """The notes of one job.

        Raises:
            KeyError: the plan knows no such job.
        """
        at = int(np.searchsorted(self.job_id, job_id))
        if at == len(self.job_id) or self.job_id[at] != job_id:
            raise KeyError(job_id)
        return JobNote(
            job_id=job_id,
            verdict=JobVerdict(int(self.verdict[at])),
            queue=int(self.queue[at]),
            score=float(self.score[at]),
            position=int(self.position[at]),
            score_name=self.score_name,
            reserved_in_s=float(self.reserved_in_s[at]) if len(self.reserved_in_s) else NEVER,
            behind=int(self.behind[at]) if len(self.behind) else 0,
            unknown_nodes=UnknownNodes(int(self.unknown_nodes[at]) if len(self.unknown_nodes) else 0),
            overdue=bool(self.overdue[at]) if len(self.overdue) else False,
            price_s=float(self.price_s[at]) if len(self.price_s) else NEVER,
        )


@dataclass(frozen=True, slots=True)
class JobNote:
    """One job's line of :class:`JobNotes`."""

    job_id: int
    verdict: JobVerdict
    queue: int
    score: float
    position: int
    score_name: str
    reserved_in_s: float = NEVER
    behind: int = 0
    unknown_nodes: UnknownNodes = UnknownNodes.KNOWN
    overdue: bool = False
    price_s: float = NEVER


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one decision.

    ``order`` lists every PENDING job, most urgent first: ``starts`` leads it, in order, so that Slurm, which stops at the
    first job of a partition that does not fit, meets the jobs that fit first.
    """

    policy: Word
    order: JobIdColumn
    starts: JobIdColumn
    notes: JobNotes
    actions: tuple[Action, ...] = ()
    """What is to be done to jobs, each with its own id: the only way in which a plan changes anything."""
    promoted: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Jobs whose service and waiting counters start again at zero (Tiresias, Section 3.2.3)."""
    skips: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of ``starts``, jobs that would make way for each waiting job that ranks before them and does not fit."""
    next_event_s: float = float("inf")
    """Earliest time at which this plan may change without any event (a queue threshold, a minimum run time)."""
    places: Mapping[JobId, tuple[NodeAllocation, ...]] = field(default_factory=dict)
    """Places that the policy counted on, by job id: those of ``starts``, of jobs that wait for preemption, and of
    preempted jobs that restart elsewhere. Nodes are rows of the snapshot's table; Slurm may choose others."""
    cpu_fits: Mapping[JobId, CpuFitNote] = field(default_factory=dict)
    """What is said of waiting jobs' CPUs, by job id, most urgent first."""
    facts: Mapping[Word, float] = field(default_factory=dict)
    """Numbers about the decision as a whole, for ``status`` (queue lengths, free GPUs)."""
    withheld: tuple[Action, ...] = ()
    """What would be done to jobs that are not in scope, or would need such jobs; nothing of it is done."""

    @property
    def behind(self) -> list[int]:
        """Jobs for which there are only nodes that Slurm keeps for others (:attr:`JobNotes.behind`)."""
        ids: list[int] = self.notes.job_id[np.flatnonzero(self.notes.behind)].tolist()
        return ids

    def led_by(self, job_ids: Collection[JobId]) -> Plan:
        """The plan in which these jobs go before all others of their queues that are not overdue."""
        if not job_ids:
            return self
        first = np.array(sorted(job_ids), dtype=np.int64)
        actions = (one.led_by(first) if isinstance(one, OrderJobs) else one for one in self.actions)
        return replace(self, actions=tuple(actions))

    @property
    def preempts(self) -> tuple[PreemptJob, ...]:
        """The preemptions among the actions."""
        return tuple(action for action in self.actions if isinstance(action, PreemptJob))
