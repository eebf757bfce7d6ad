"""Policies that are one sort key over the jobs, with jobs that do not fit passed over.

They are the paper's yardsticks (Tiresias, Section 3.2.1): with predicted run times they know what Tiresias does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import PreemptivePass, find_next_preemptible_s, find_preemptible
from slurm_soda.policies.engine.run_time_estimates import expect_remaining_s, find_next_guess_s
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.session.ranking import INFINITY, Ranking, RankingRules, RankKey, SessionJob
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn


class SortKey(NamedTuple):
    """What a policy sorts by, smaller first, and whether a job that ranks worse may be preempted.

    ``score`` takes GPUs, executed and remaining run time, of one job or as columns.
    """

    score_name: str
    score: Callable[[Any, Any, Any], Any]
    preemptive: bool


SORT_KEYS: Mapping[str, SortKey] = {
    "sjf": SortKey("run_time_s", lambda _gpus, executed_s, remaining_s: executed_s + remaining_s, preemptive=False),
    "smallest": SortKey("gpus", lambda gpus, _executed_s, _remaining_s: 1.0 * gpus, preemptive=False),
    "srsf": SortKey("remaining_gpu_s", lambda gpus, _executed_s, remaining_s: gpus * remaining_s, preemptive=True),
    "srtf": SortKey("remaining_s", lambda _gpus, _executed_s, remaining_s: remaining_s, preemptive=True),
}
"""Shortest job, smallest job, shortest remaining service (GPUs x time) and shortest remaining time first."""


@dataclass(frozen=True, slots=True)
class SortKeyPolicy:
    """Jobs in the order of one key; ties by submit time, then job id.

    With preemption, which is for GPUs, jobs that ask for none take what the others leave, and a job of unknown run time
    ranks by what it ran for (:func:`.expect_remaining_s`). Without it such jobs come last.

    Attributes:
        name: a key of :data:`SORT_KEYS`.
        min_run_s: a job is not preempted before it has run so long since its last start.
    """

    name: str
    min_run_s: float = 60.0

    @property
    def preempts_by_rank(self) -> bool:
        """Jobs that have run long enough make way."""
        return SORT_KEYS[self.name].preemptive

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """Order, place and, where the key says so, preempt."""
        key = SORT_KEYS[self.name]
        jobs = snapshot.jobs
        remaining_s = expect_remaining_s(jobs) if key.preemptive else jobs.remaining_s
        score: FloatColumn = key.score(jobs.gpus, jobs.executed_s, remaining_s)
        rows = find_rankable_rows(snapshot)
        placing = PlacementPass(snapshot)
        preempts: tuple[PreemptJob, ...] = ()
        if key.preemptive:
            on_gpus = jobs.gpus[rows] > 0
            first, then = (
                rank_rows(jobs, rows[on_gpus], score, jobs.submit_s),
                rank_rows(jobs, rows[~on_gpus], score, jobs.submit_s),
            )
            preempts = PreemptivePass(placing, first, find_preemptible(snapshot, self.min_run_s)).run()
            placing.start_fitting(then, skip=True)
            ranked = np.concatenate((first, then))
        else:
            ranked = rank_rows(jobs, rows, score, jobs.submit_s)
            placing.start_fitting(ranked, skip=True)
        next_event_s = INFINITY
        if key.preemptive:
            ripe_s = find_next_preemptible_s(snapshot, placing.verdict, self.min_run_s)
            next_event_s = min(ripe_s, find_next_guess_s(snapshot, placing.verdict))
        return build_plan(
            placing,
            self.name,
            ranked,
            score=score,
            score_name=key.score_name,
            preempts=preempts,
            next_event_s=next_event_s,
        )

    def ranking(self) -> Ranking:
        """The same order over single jobs."""
        return SortKeyRanking(SORT_KEYS[self.name], by_gpus=self.name == "srsf", min_run_s=self.min_run_s)


@dataclass(frozen=True, slots=True)
class SortKeyRanking:
    """Jobs by score, then submit time, then job id.

    Jobs whose remaining time falls equally fast keep their order, if they have as many GPUs or GPUs play no part in the
    score. So a group is of one speed, and jobs that still load what they saved, whose time stands still, are apart. A
    running job never comes to rank behind a waiting one.
    """

    key: SortKey
    by_gpus: bool
    min_run_s: float
    _numbers: dict[tuple[int, float], int] = field(default_factory=dict)
    """Numbers of groups by GPUs and speed, below 0; those at full speed have their GPUs for a number."""

    @property
    def rules(self) -> RankingRules:
        preemptive = self.key.preemptive
        return RankingRules(
            preemptive=preemptive, true_run_times=preemptive, min_run_s=self.min_run_s if preemptive else 0.0
        )

    def waiting(self, job: SessionJob) -> RankKey:
        score = self.key.score(job.gpus, job.executed_s, job.remaining_s)
        if math.isnan(score):  # no GPUs for nobody knows how long
            score = INFINITY
        return (self.key.preemptive and not job.gpus, score, job.submit_s, job.job_id)

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        executed_s = job.executed_s + now_s - job.start_s
        remaining_s = job.remaining_s
        if now_s > job.resumes_s:
            remaining_s = max(remaining_s - (now_s - job.resumes_s) * job.speed_ratio, 0.0)
        return (False, self.key.score(job.gpus, executed_s, remaining_s), job.submit_s, job.job_id)

    def group(self, job: SessionJob) -> int:
        gpus = job.gpus if self.by_gpus else 0
        if job.resumed and job.speed_ratio == 1.0:
            return gpus
        return self._numbers.setdefault((gpus, job.speed_ratio if job.resumed else 0.0), -1 - len(self._numbers))

    def frozen(self, job: SessionJob) -> RankKey:
        # From when a job makes progress, the one that gets done first has the least left.
        done_s = job.resumes_s + job.remaining_s / job.speed_ratio if job.resumed else job.remaining_s
        return (done_s, job.submit_s, job.job_id)

    def changes_s(self, job: SessionJob) -> float:
        return INFINITY if job.resumed else job.resumes_s

    def change(self, job: SessionJob) -> None:
        job.resumed = True
