"""What past jobs say about dividing nodes between pools: core use of GPU jobs, and how much of the GPUs large jobs held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pools.kinds import NodeClass, PoolKind, choose_pool_kind

USUAL_QUANTILE = 0.8
"""Our choice: cores are reserved for GPU jobs such that four fifths of GPU time finds as many as it can use."""


@dataclass(frozen=True, slots=True)
class PastPoolJob:
    """One job that ran.

    Raises:
        PolicyError: a count or a run time that no job can have.
    """

    gpus: int
    """Over all nodes; 0 for a CPU job."""
    nodes: int
    cpus: int
    """Cores asked for, over all nodes."""
    run_s: float
    """Run time over all runs."""
    best_cores: int | None = None
    """Best fit on each node, where a search found it."""
    gpu_type: str = ""
    """Empty: not known, or any."""

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.nodes < 1 or self.cpus < 0 or not 0 <= self.run_s < math.inf:
            raise PolicyError(
                f"no job ran with {self.gpus} GPUs, {self.nodes} nodes, {self.cpus} cores, {self.run_s} s"
            )

    @property
    def gpu_s(self) -> float:
        """GPU seconds."""
        return self.gpus * self.run_s

    @property
    def cores_per_gpu(self) -> float:
        """Cores that it used best, or asked for where that is not known, per GPU."""
        cores = self.cpus if self.best_cores is None else self.best_cores * self.nodes
        return cores / self.gpus


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """The history of one node class."""

    jobs: int
    """GPU jobs that could have run there."""
    cores_per_gpu: float
    """Enough for :data:`USUAL_QUANTILE` of GPU time; NaN without jobs."""
    large_ratio: float
    """GPU time of jobs of the large pool / of all; NaN without jobs."""
    largest_gpus: int
    """Of the jobs of the large pool, so many are enough for :data:`USUAL_QUANTILE` of their GPU time; 0 without."""


def summarise_usage(history: Iterable[PastPoolJob], node_class: NodeClass) -> UsageSummary:
    """What the GPU jobs that could have run on nodes of this class say; the order of ``history`` does not matter."""
    jobs = [job for job in history if job.gpus and job.run_s > 0 and job.gpu_type in ("", node_class.gpu_type)]
    if not jobs or not node_class.gpus:
        return UsageSummary(0, math.nan, math.nan, 0)
    # More than its part of a full node no job can count on, whatever it asked for.
    most = node_class.cpus / node_class.gpus
    cores = [(min(job.cores_per_gpu, most), job.gpu_s) for job in jobs]
    large = [(float(job.gpus), job.gpu_s) for job in jobs if choose_pool_kind(job.gpus) is PoolKind.LARGE]
    total_s = math.fsum(job.gpu_s for job in jobs)
    return UsageSummary(
        jobs=len(jobs),
        cores_per_gpu=_quantile(cores),
        large_ratio=min(math.fsum(weight for _, weight in large) / total_s, 1.0),
        largest_gpus=int(_quantile(large)) if large else 0,
    )


def _quantile(weighted: Sequence[tuple[float, float]]) -> float:
    """Smallest value that covers :data:`USUAL_QUANTILE` of the weight."""
    ordered = sorted(weighted)
    wanted = USUAL_QUANTILE * math.fsum(weight for _, weight in ordered)
    covered = 0.0
    for value, weight in ordered:
        covered += weight
        if covered >= wanted:
            return value
    return ordered[-1][0]
