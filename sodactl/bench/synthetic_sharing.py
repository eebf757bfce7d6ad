"""A made-up cluster on which jobs may share GPUs: the busy one, with single GPUs and slowdowns of kinds of jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile, Source
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.sodactl.bench.synthetic_cluster import GPUS_PER_NODE, busy_cluster

DEFAULT_JOB_KINDS = 26
"""As many as Gavel measured on one GPU."""
BATCH = 128
GPU_MIB = 16_000.0


class SyntheticSlowdowns:
    """Slowdowns of pairs; two whole batches do not fit into the memory of one GPU, so sub-batches are tried."""

    def __init__(self, xi: FloatColumn) -> None:
        self._xi = xi

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """From the table, by the numbers that stand for models."""
        if len(others) != 1:
            return None
        return Estimate(float(self._xi[int(slowed.model), int(others[0].model)]), 0.1, Source.IMPORTED)

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """Footprints tell."""
        return None

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        """Nobody knows."""
        return False

    def profile(self, kind: JobKind) -> KindProfile | None:
        """Of no use here."""
        return None

    def throughput(self, kind: JobKind) -> Throughput | None:
        """The same for all."""
        return Throughput(0.01, 0.001)

    def footprint(self, kind: JobKind) -> Footprint | None:
        """The same for all."""
        return Footprint(4000.0, 60.0)


def shared_cluster(jobs: int, nodes: int, seed: int, kinds: int = DEFAULT_JOB_KINDS) -> SharingSnapshot:
    """:func:`.synthetic_cluster.busy_cluster`; nine of ten jobs share, and one of five bears at most a slowdown of 1.5."""
    base = busy_cluster(jobs, nodes, seed)
    rng = np.random.default_rng(seed)
    used, start = [0] * nodes, [0]
    held: list[int] = []
    for row in range(jobs):
        for node, gpus, _ in base.jobs.alloc(row):
            first = node * GPUS_PER_NODE + used[node]
            held += range(first, first + gpus)
            used[node] += gpus
        start.append(len(held))
    batch = np.full(jobs, BATCH, dtype=np.int64)
    return SharingSnapshot(
        now_s=base.now_s,
        jobs=base.jobs,
        nodes=base.nodes,
        partitions=base.partitions,
        devices=GpuDevices(
            first=np.arange(nodes + 1, dtype=np.int64) * GPUS_PER_NODE,
            memory_mib=np.full(nodes * GPUS_PER_NODE, GPU_MIB),
            held_start=np.array(start, dtype=np.int64),
            held=np.array(held, dtype=np.int64),
        ),
        sharing=SharingJobs(
            kinds=tuple(JobKind(str(number), BATCH, "", 1) for number in range(kinds)),
            kind=rng.integers(0, kinds, jobs),
            batch=batch,
            sub_batch=batch,
            iterations=np.full(jobs, np.nan),
            shares=rng.random(jobs) < 0.9,
            max_slowdown=np.where(rng.random(jobs) < 0.2, 1.5, np.inf),
        ),
        known=SyntheticSlowdowns(1.0 + rng.gamma(2.0, 0.3, (kinds, kinds))),
    )
