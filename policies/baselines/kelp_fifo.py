"""FIFO over CPU and GPU jobs as SODA's baseline KELP-FIFO has it."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.session.ranking import Ranking, RankingRules
from slurm_soda.policies.session.static_ranking import StaticRanking
from slurm_soda.policies.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class KelpFifo:
    """FIFO by submit time in two lines a partition, GPU jobs and jobs without GPUs; nothing is preempted.

    KELP itself shields training from memory contention on the host, which is no matter of order. SODA (Section VI-A)
    only says that it takes both kinds of jobs in FIFO manner. One line for both would contradict its Section VI-C,
    where 90.5 % of the CPU jobs start within 10 s while 57.5 % of the GPU jobs queue for more than a minute.
    """

    @property
    def name(self) -> str:
        return "kelp-fifo"

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As :meth:`.fifo.Fifo.decide`."""
        jobs = snapshot.jobs
        ranked = rank_rows(jobs, find_rankable_rows(snapshot), jobs.submit_s)
        placing = PlacementPass(snapshot)
        placing.start_fitting(ranked, skip=False, apart=True)
        return build_plan(placing, self.name, ranked, score=jobs.submit_s, score_name="submit_s")

    def ranking(self) -> Ranking:
        """The same order over single jobs."""
        return StaticRanking(lambda job: (job.submit_s, job.job_id), RankingRules(skip=False, apart=True))
