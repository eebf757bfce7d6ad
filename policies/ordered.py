"""Policies that are one sort key over the jobs, with jobs that do not fit passed over.

They are the paper's yardsticks (Tiresias, Section 3.2.1): with predicted run times they know what Tiresias does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slurm_soda.policies.assembly import assemble, rank, rankable
from slurm_soda.policies.plan import Plan, Preempt
from slurm_soda.policies.preemption import PreemptiveWalk, preemptible
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobTable
from slurm_soda.policies.walk import Walk


class SortKey(NamedTuple):
    """What a policy sorts by, smaller first, and whether a job that ranks worse may be preempted."""

    score_name: str
    score: Callable[[JobTable], FloatColumn]
    preemptive: bool


SORT_KEYS: Mapping[str, SortKey] = {
    "sjf": SortKey("run_time_s", lambda jobs: jobs.executed_s + jobs.remaining_s, preemptive=False),
    "smallest": SortKey("gpus", lambda jobs: jobs.gpus.astype(float), preemptive=False),
    "srsf": SortKey("remaining_gpu_s", lambda jobs: jobs.gpus * jobs.remaining_s, preemptive=True),
    "srtf": SortKey("remaining_s", lambda jobs: jobs.remaining_s, preemptive=True),
}
"""Shortest job, smallest job, shortest remaining service (GPUs x time) and shortest remaining time first."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Jobs in the order of one key; unknown run times last, ties by submit time, then job id.

    Attributes:
        name: a key of :data:`SORT_KEYS`.
        min_run_s: a job is not preempted before it has run so long since its last start.
    """

    name: str
    min_run_s: float = 60.0

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """Order, place and, where the key says so, preempt."""
        key = SORT_KEYS[self.name]
        score = key.score(snapshot.jobs)
        ranked = rank(rankable(snapshot), score, snapshot.jobs.submit_s)
        walk = Walk(snapshot)
        preempts: tuple[Preempt, ...] = ()
        if key.preemptive:
            preempts = PreemptiveWalk(walk, ranked, preemptible(snapshot, self.min_run_s)).run()
        else:
            walk.start_fitting(ranked, skip=True)
        return assemble(walk, self.name, ranked, score=score, score_name=key.score_name, preempts=preempts)
