"""First in, first out, with and without passing a job that does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.session.ranking import Ranking, RankingRules
from slurm_soda.policies.session.static_ranking import StaticRanking
from slurm_soda.policies.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Fifo:
    """Jobs start by submit time, ties by job id; nothing is preempted.

    Attributes:
        skip: pass a job that does not fit. Without it (strict FIFO) the first job of a partition that does not fit
            ends that partition's turn, as in YARN-CS, the baseline of Tiresias, Section 5.1.
    """

    skip: bool = False

    @property
    def name(self) -> str:
        return "fifo-skip" if self.skip else "fifo"

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs plus O(log m) in nodes for each start."""
        jobs = snapshot.jobs
        ranked = rank_rows(jobs, find_rankable_rows(snapshot), jobs.submit_s)
        placing = PlacementPass(snapshot)
        placing.start_fitting(ranked, skip=self.skip)
        return build_plan(placing, self.name, ranked, score=jobs.submit_s, score_name="submit_s")

    def ranking(self) -> Ranking:
        """The same order over single jobs."""
        return StaticRanking(lambda job: (job.submit_s, job.job_id), RankingRules(skip=self.skip))
