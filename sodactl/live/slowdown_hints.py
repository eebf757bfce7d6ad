"""Hints of how much jobs slow each other down, for jobs that tell no progress: by how much of the GPUs' time they use.

The assumption is that a job's work is in proportion to the time in which its kernels run. It holds best where jobs take
turns. Under MPS kernels of several jobs run at once, and longer: the hint is too low there, and 1 at worst. It is also wrong
where a job happens to do something else beside others than it did alone, as when it evaluates. A user can make of his own
hint, and of his co-runner's, what he likes.

So people are told, and nobody else: nothing here gets into a snapshot, a profile or the parting of a pair, and sodad
cannot even import it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.sharing.observed_pairs import ALONE_FOR_S
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.finished_jobs import usage_by_job
from slurm_soda.daemon.store.queries import belongs_to, find_jobs
from slurm_soda.daemon.store.tables.progress import JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import JobNodeUsage


@dataclass(frozen=True, slots=True)
class SlowdownHint:
    """Of one job beside others on one node: that of its nodes where it seems slowest."""

    co_runners: tuple[int, ...]
    """Ids of the other jobs."""
    slowdown: float
    """At least 1."""
    alone_ratio: float
    """Part of its GPUs' time that it used alone."""
    together_ratio: float
    alone_s: float
    """How long it was seen alone, in all its runs on that node."""
    together_s: float

    def document(self) -> dict[str, Any]:
        """Plain data, marked as what it is."""
        return {"hint": True, "by": "gpu_time", **asdict(self), "co_runners": list(self.co_runners)}


def slowdown_hints(usage: Iterable[JobNodeUsage]) -> list[SlowdownHint]:
    """Of what a job's runs used, one for each set of jobs that it had beside it; the newest last.

    Nothing is said of a job that was not seen alone, and beside the others, for :data:`ALONE_FOR_S`, computing in both.
    """
    sums: dict[str, dict[tuple[int, ...], tuple[float, float]]] = defaultdict(dict)
    for record in usage:
        on_node = sums[record.node]
        for use in record.sm_uses or ():
            covered_s, busy_s = on_node.pop(tuple(use["co_runners"]), (0.0, 0.0))
            on_node[tuple(use["co_runners"])] = (covered_s + use["covered_s"], busy_s + use["busy_s"])
    found: dict[tuple[int, ...], SlowdownHint] = {}
    for on_node in sums.values():
        enough = {beside: use for beside, use in on_node.items() if use[0] >= ALONE_FOR_S and use[1] > 0}
        alone_s, alone_busy_s = enough.pop((), (0.0, 0.0))
        for beside, (together_s, busy_s) in enough.items() if alone_s else ():
            alone, together = alone_busy_s / alone_s, busy_s / together_s
            hint = SlowdownHint(beside, max(alone / together, 1.0), alone, together, alone_s, together_s)
            found[beside] = max(found.pop(beside, hint), hint, key=lambda one: one.slowdown)
    return list(found.values())


def hints_of_jobs(session: Session, job_ids: Sequence[int]) -> dict[int, list[SlowdownHint]]:
    """Of these jobs, as far as they tell no progress, by id."""
    jobs = list(find_jobs(session, job_ids))
    usage = usage_by_job(session, jobs)
    told = {
        job_id
        for part in split_list(job_ids)
        for job_id in session.scalars(select(JobProgressRow.job_id).where(JobProgressRow.job_id.in_(part)))
    }
    return {
        job.job_id: slowdown_hints(record for record in usage.get(job.job_id, ()) if belongs_to(record.first_s, job))
        for job in sorted(jobs, key=lambda job: job.submit_s)
        if job.job_id not in told
    }
