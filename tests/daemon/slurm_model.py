"""Stock Slurm over virtual time: a main loop that stops at the first job that does not start, and backfill."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_soda.policies.baselines.backfill import start_and_backfill
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import find_rankable_rows, rank_rows
from slurm_soda.policies.engine.run_time_estimates import LIMIT
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable

AGE_PER_S = 10_000 / 86_400
"""PriorityWeightAge=10000, PriorityMaxAge=1-0."""
BACKFILL_INTERVAL_S = 30.0


@dataclass(eq=False)
class ModelJob:
    """A job; ``rank`` is what QOS and fair share add to its priority."""

    job_id: int
    submit_s: float
    run_s: float
    limit_s: float
    gpus: int = 1
    nodes: int = 1
    rank: int = 0
    nice: int = 0
    cpus: int = 0
    site_factor: int = 0
    start_s: float = math.nan
    held: tuple[tuple[int, int, int], ...] = ()

    @property
    def waited_s(self) -> float:
        return self.start_s - self.submit_s


@dataclass
class SlurmModel:
    """One partition; ``cycle`` is what a daemon does with each picture of it: new SiteFactors by job id."""

    jobs: Sequence[ModelJob]
    nodes: NodeTable
    cycle: Callable[[ClusterSnapshot], dict[int, int]] = lambda _: {}
    cycle_s: float = 5.0
    dies_s: float = math.inf
    lifts_stay: bool = True
    """After its death; else somebody takes them back at once."""
    waiting: dict[int, ModelJob] = field(default_factory=dict)
    running: dict[int, ModelJob] = field(default_factory=dict)
    changed: bool = True
    """Since the last backfill, which else would find nothing new."""

    def run(self, until_s: float = math.inf) -> None:
        """Run until every job has started, or until an instant."""
        coming = sorted(self.jobs, key=lambda job: job.submit_s)
        now_s = next_cycle_s = next_backfill_s = 0.0
        while (coming or self.waiting) and now_s < until_s:
            for job in [job for job in self.running.values() if job.start_s + job.run_s <= now_s]:
                del self.running[job.job_id]
                self.changed = True
            while coming and coming[0].submit_s <= now_s:
                job = coming.pop(0)
                self.waiting[job.job_id] = job
                self.changed = True
            if not self.lifts_stay and now_s >= self.dies_s:
                for job in self.waiting.values():
                    job.site_factor = 0
            if now_s >= next_backfill_s and self.changed:
                self._start(now_s, backfill=True)
                next_backfill_s, self.changed = now_s + BACKFILL_INTERVAL_S, False
            else:
                self._start(now_s, backfill=False)
            if next_cycle_s <= now_s < self.dies_s and self.waiting:
                next_cycle_s = now_s + self.cycle_s
                for job_id, factor in self.cycle(self.snapshot(now_s)).items():
                    self.waiting[job_id].site_factor = factor
                    self.changed = True
                self._start(now_s, backfill=False)
            ahead = [job.start_s + job.run_s for job in self.running.values()]
            ahead += [coming[0].submit_s] if coming else []
            if self.waiting:
                ahead += ([next_backfill_s] if self.changed else []) + (
                    [next_cycle_s] if next_cycle_s < self.dies_s else []
                )
            now_s = max(min(ahead, default=now_s), now_s + 1e-3)

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """What squeue and sinfo would show."""
        live = [*self.waiting.values(), *self.running.values()]
        table = build_job_table([self._row(job, now_s) for job in live])
        gpus, cpus = self.nodes.gpus.copy(), self.nodes.cpus.copy()
        for job in self.running.values():
            for node, some_gpus, some_cpus in job.held:
                gpus[node] -= some_gpus
                cpus[node] -= some_cpus
        nodes = NodeTable(
            self.nodes.name,
            self.nodes.usable,
            self.nodes.gpus,
            gpus,
            self.nodes.gpu_type,
            self.nodes.cpus,
            cpus,
            self.nodes.memory_mib,
            self.nodes.memory_mib,
            self.nodes.in_partition,
        )
        return ClusterSnapshot(now_s, table, nodes)

    def _row(self, job: ModelJob, now_s: float) -> dict[str, Any]:
        natural = 1 + job.rank - job.nice + int((now_s - job.submit_s) * AGE_PER_S)
        runs = job.job_id in self.running
        return {
            "job_id": job.job_id,
            "state": JobState.RUNNING if runs else JobState.PENDING,
            "submit_s": job.submit_s,
            "start_s": job.start_s,
            "first_start_s": job.start_s,
            "time_limit_s": job.limit_s,
            "gpus": job.gpus,
            "gpus_per_node": job.gpus // job.nodes,
            "nodes": job.nodes,
            "cpus": job.cpus or job.gpus,
            "priority": natural + job.site_factor,
            "site_factor": job.site_factor,
            "waited_s": 0.0 if runs else now_s - job.submit_s,
            "remaining_s": job.run_s,
            "alloc": job.held,
        }

    def _start(self, now_s: float, *, backfill: bool) -> None:
        if not self.waiting:
            return
        snapshot = self.snapshot(now_s)
        placing, table = PlacementPass(snapshot), snapshot.jobs
        ranked = rank_rows(table, find_rankable_rows(snapshot), -table.priority)
        if backfill:
            start_and_backfill(placing, ranked, estimate=LIMIT, depth=500, reservations=10, whole_nodes=True)
        else:
            placing.start_fitting(ranked, skip=False)
        for row, claim in placing.claims.items():
            job = self.waiting.pop(int(table.job_id[row]))
            job.start_s, job.held = now_s, tuple((piece.node, piece.gpus, piece.cpus) for piece in claim.pieces)
            self.running[job.job_id] = job


def saturating_jobs(seed: int, count: int, *, gpus: int, until_s: float) -> list[ModelJob]:
    """Jobs that together fill so many GPUs for so long, more at first; time limits are twice the run times."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 1, 1, 2, 2, 4, 8], count)
    runs = rng.lognormal(0.0, 1.0, count)
    runs *= gpus * until_s / float((runs * sizes).sum())
    submits = np.sort(rng.uniform(0.0, until_s, count)) * np.linspace(0.3, 1.0, count)
    return [
        ModelJob(
            at + 1,
            float(submits[at]),
            float(runs[at]),
            2 * float(runs[at]),
            int(sizes[at]),
            2 if sizes[at] == 8 else 1,
            rank=int(rng.choice([0, 0, 500, 2_000])),
        )
        for at in range(count)
    ]
