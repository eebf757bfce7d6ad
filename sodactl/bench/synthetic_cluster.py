"""A made-up but plausible cluster of any size, the same for the same seed: what benchmarks decide on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.snapshot import (
    BoolColumn,
    ClusterSnapshot,
    FloatColumn,
    IntColumn,
    JobState,
    JobTable,
    NodeTable,
)
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES, SpreadSlowdowns

NOW_S = 1_700_000_000.0
GPUS_PER_NODE = 8
CPUS_PER_NODE = 96
MEMORY_PER_NODE_MIB = 1_024_000
GPU_SIZES = (1, 2, 4, 8, 16)
GPU_SHARES = (0.5, 0.15, 0.15, 0.15, 0.05)
"""Half the jobs take one GPU, as in the traces that Tiresias was measured with."""
CPUS_PER_GPU = (2, 4, 6, 8, 12)
SPREAD_KINDS = 300


def busy_cluster(jobs: int, nodes: int, seed: int) -> ClusterSnapshot:
    """Running jobs on about four fifths of the GPUs, and a queue of all the other jobs.

    Two thirds of the jobs can checkpoint; half of the waiting ones have run before. Run times are log-normal with a
    median of half an hour, so that jobs stand on both sides of a threshold of one GPU hour.
    """
    rng = np.random.default_rng(seed)
    gpus = rng.choice(GPU_SIZES, size=jobs, p=GPU_SHARES).astype(np.int64)
    cpus = gpus * rng.choice(CPUS_PER_GPU, size=jobs)
    held = _fill(gpus, nodes)
    running = np.zeros(jobs, dtype=np.bool_)
    running[: len(held)] = True
    table = _table(rng, gpus, cpus, running, [node for pieces in held for node in pieces])
    return ClusterSnapshot(now_s=NOW_S, jobs=table, nodes=_nodes(table, nodes))


def fragmented_cluster(jobs: int, nodes: int, seed: int) -> ClusterSnapshot:
    """A busy cluster that a quarter of its running jobs have left, for jobs that may be split in any way, of 300 kinds: some
    are no slower on more nodes than they need, others take twice as long.
    """
    rng = np.random.default_rng(seed)
    gpus = rng.choice(GPU_SIZES, size=jobs, p=GPU_SHARES).astype(np.int64)
    cpus = gpus * rng.choice(CPUS_PER_GPU, size=jobs)
    held = _fill(gpus, nodes)
    stays = rng.random(len(held)) < 0.75
    running = np.zeros(jobs, dtype=np.bool_)
    running[: len(held)] = stays
    alloc_node = [node for pieces, stay in zip(held, stays.tolist(), strict=True) if stay for node in pieces]
    table = _table(rng, gpus, cpus, running, alloc_node)
    snapshot = ClusterSnapshot(now_s=NOW_S, jobs=table, nodes=_nodes(table, nodes))
    slowdown = np.repeat(rng.choice((1.0, 1.0, 1.05, 1.3, 2.0), size=(SPREAD_KINDS, 1)), EXTRA_NODES, axis=1)
    kind = np.where(gpus > 1, rng.integers(0, SPREAD_KINDS, jobs), -1)
    loose = table.with_columns(nodes=np.ones(jobs, dtype=np.int64), gpus_per_node=np.zeros(jobs, dtype=np.int64))
    return replace(snapshot, jobs=loose, spread=SpreadSlowdowns(slowdown, slowdown + 0.02, kind, binding=True))


def idle_cluster(jobs: int, nodes: int, seed: int) -> ClusterSnapshot:
    """The same kind of jobs, all waiting, none of which ever ran, before idle nodes."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice(GPU_SIZES, size=jobs, p=GPU_SHARES).astype(np.int64)
    cpus = gpus * rng.choice(CPUS_PER_GPU, size=jobs)
    table = _table(rng, gpus, cpus, np.zeros(jobs, dtype=np.bool_), [])
    never = table.with_columns(
        first_start_s=np.full(jobs, np.nan), executed_s=np.zeros(jobs), attained_gpu_s=np.zeros(jobs)
    )
    return ClusterSnapshot(now_s=NOW_S, jobs=never, nodes=_nodes(never, nodes))


def _fill(gpus: IntColumn, nodes: int) -> list[list[int]]:
    """Nodes of the first jobs, one after the other, until the cluster is full; one list a running job."""
    held: list[list[int]] = []
    node, free = 0, GPUS_PER_NODE
    for size in gpus.tolist():
        if size > free:
            node, free = node + 1, GPUS_PER_NODE
        span = -(-size // GPUS_PER_NODE)
        if node + span > nodes:
            break
        held.append(list(range(node, node + span)))
        free -= size // span
        node, free = (node + span, GPUS_PER_NODE) if free == 0 else (node, free)
    return held


def _table(
    rng: np.random.Generator, gpus: IntColumn, cpus: IntColumn, running: BoolColumn, alloc_node: list[int]
) -> JobTable:
    jobs = len(gpus)
    nodes = -(-gpus // GPUS_PER_NODE)
    executed: FloatColumn = np.where(running | (rng.random(jobs) < 0.5), rng.lognormal(np.log(1800.0), 1.5, jobs), 0.0)
    submit = NOW_S - executed - rng.uniform(0.0, 86_400.0, jobs)
    ran = executed > 0
    entries = np.where(running, nodes, 0)
    zeros = np.zeros(jobs, dtype=np.int64)
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        state=np.where(running, JobState.RUNNING, JobState.PENDING).astype(np.int8),
        user=rng.integers(0, 50, jobs),
        partition=zeros,
        submit_s=submit,
        first_start_s=np.where(ran, NOW_S - executed, np.nan),
        start_s=np.where(running, NOW_S - executed, np.nan),
        time_limit_s=np.full(jobs, 86_400.0),
        gpus=gpus,
        nodes=nodes,
        gpus_per_node=gpus // nodes,
        gpu_type=zeros - 1,
        cpus=cpus,
        memory_mib=cpus * 8000,
        priority=zeros,
        site_factor=zeros,
        executed_s=executed,
        attained_gpu_s=executed * gpus,
        waited_s=rng.uniform(0.0, 7200.0, jobs),
        preemptible=rng.random(jobs) < 2 / 3,
        preemptions=zeros,
        remaining_s=rng.lognormal(np.log(1800.0), 1.5, jobs),
        alloc_start=np.concatenate(([0], np.cumsum(entries))),
        alloc_node=np.array(alloc_node, dtype=np.int64),
        alloc_gpus=np.repeat(gpus // nodes, entries),
        alloc_cpus=np.repeat(cpus // nodes, entries),
        users=tuple(f"user{number}" for number in range(50)),
        partitions=("main",),
    )


def _nodes(jobs: JobTable, nodes: int) -> NodeTable:
    gpus, cpus = (
        np.bincount(jobs.alloc_node, weights=column, minlength=nodes).astype(np.int64)
        for column in (jobs.alloc_gpus, jobs.alloc_cpus)
    )
    every = np.ones(nodes, dtype=np.int64)
    return NodeTable(
        name=tuple(f"n{row + 1}" for row in range(nodes)),
        usable=np.ones(nodes, dtype=np.bool_),
        gpus=every * GPUS_PER_NODE,
        gpus_free=GPUS_PER_NODE - gpus,
        gpu_type=every * -1,
        cpus=every * CPUS_PER_NODE,
        cpus_free=CPUS_PER_NODE - cpus,
        memory_mib=every * MEMORY_PER_NODE_MIB,
        memory_free_mib=MEMORY_PER_NODE_MIB - cpus * 8000,
        in_partition=np.ones((nodes, 1), dtype=np.bool_),
    )
