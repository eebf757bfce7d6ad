"""The jobs that others make way for: what they asked for then, and whether they can still take those places.

The plan does not see why a job no longer fits. So a job whose owner has changed what it asks for, or when it may start,
after others began to leave for it counts as one that did not want their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.vain_preemptions import GpuRequest
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, waits_for_places
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S

Details = Mapping[int, WaitingJob]
"""What else Slurm tells of waiting jobs; nothing of those that nobody asked about."""


class AskedFor(NamedTuple):
    """What decides where and before whom a job starts, and is its owner's to change."""

    request: GpuRequest
    terms: tuple[object, ...]
    detail: tuple[object, ...] | None
    """``None``: not known."""
    cpus: int
    memory_mib: int

    @classmethod
    def of(cls, job: SlurmJob, detail: WaitingJob | None) -> AskedFor:
        """As Slurm shows it now."""
        terms = (
            job.partition, job.qos, job.account, job.nice, job.nodes, job.req_node_names, job.tres_per_node,
            job.tres_per_job, job.tres_per_task,
        )  # fmt: skip
        more = None
        if detail is not None:
            more = detail.features, detail.excluded_nodes, detail.reservation, detail.whole_nodes
        return cls(request_of(job), terms, more, job.cpus, job.memory_mib)

    def differs(self, now: AskedFor, *, fits: bool) -> bool:
        """Whether the owner has changed it since. Sodad fits CPUs and memory itself: more of them count if the job no longer
        fits.
        """
        if (self.request, self.terms) != (now.request, now.terms):
            return True
        if self.detail is not None and now.detail is not None and self.detail != now.detail:
            return True
        return not fits and (now.cpus > self.cpus or now.memory_mib > self.memory_mib)


def request_of(job: SlurmJob) -> GpuRequest:
    """Whose job, and which GPUs it asks for."""
    return GpuRequest(job.user, job.gpus, job.gpus_per_node, job.gpu_type)


def waits_out_requeue(job: SlurmJob) -> bool:
    """Whether its begin time is the one that Slurm gave it when it requeued it, not one that its owner set."""
    return job.restarts > 0 and job.eligible_s - job.submit_s <= MAX_REQUEUE_WAIT_S


def can_take_places(job: SlurmJob, now_s: float) -> bool:
    """It waits for nothing but resources, its turn and the end of a requeue; not for a release, a time or other jobs."""
    if job.state != "PENDING":
        return False
    if waits_out_requeue(job) and job.reason == "BeginTime":
        return True
    return waits_for_places(job.state, job.reason) and (job.eligible_s <= now_s or waits_out_requeue(job))


def passes_successor(plan: Plan | None, job_id: int, for_jobs: Collection[int], waiting: Collection[int]) -> bool:
    """Whether Slurm would start a job before one for which it left and that still waits for those places.

    Whoever was to move to other nodes may rank before the one that it moved for. One that has no places in sight takes none,
    whoever starts meanwhile.
    """
    others = [one for one in for_jobs if one in waiting]
    if plan is None or not others:
        return False
    notes = plan.notes
    placed = np.isin(notes.verdict, (JobVerdict.START, JobVerdict.WAIT_FOR_PREEMPTION))
    own, ranks = notes.position[notes.job_id == job_id], notes.position[placed & np.isin(notes.job_id, others)]
    return bool((own < ranks.max(initial=-1)).any())


@dataclass(slots=True)
class Successors:
    """Of one preemption, by job id; kept in memory: a restarted daemon takes what it sees first for what was asked."""

    asked: dict[int, AskedFor] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    """Jobs whose owner has changed what they ask for since."""
    cancelled: set[int] = field(default_factory=set)
    """Jobs that ended without a start, also those that Slurm has forgotten meanwhile."""

    def observe(
        self, job_ids: Iterable[int], jobs: Mapping[int, SlurmJob], details: Details, starts: Collection[int] = ()
    ) -> None:
        """Take in what Slurm shows of these jobs now; ``starts`` are those that fit into what is free."""
        for job_id in job_ids:
            job = jobs.get(job_id)
            if job is None:
                continue
            now = AskedFor.of(job, details.get(job_id))
            if self.asked.setdefault(job_id, now).differs(now, fits=job_id in starts):
                self.changed.add(job_id)
            else:
                self.changed.discard(job_id)
            if job.state in ENDED_STATES and not job.node_names:
                self.cancelled.add(job_id)
