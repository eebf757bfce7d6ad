"""Small clusters for tests: jobs as dictionaries, nodes with what those jobs leave free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, JobTable, NodeTable

PAPER: dict[str, Any] = {"thresholds_gpu_s": [3200.0], "within_queue": "start"}
"""Tiresias as its testbed ran it (Section 5.1)."""
NOW_S = 10_000.0


def running(job_id: int, *alloc: tuple[int, int], since_s: float = 1000.0, **columns: Any) -> dict[str, Any]:
    """A preemptible job that has run for ``since_s`` on (node row, GPUs), one CPU a GPU."""
    gpus = sum(part for _, part in alloc)
    return {
        "job_id": job_id, "state": JobState.RUNNING, "gpus": gpus, "nodes": len(alloc), "cpus": max(gpus, 1),
        "alloc": [(node, part, max(part, 1)) for node, part in alloc], "preemptible": True,
        "start_s": NOW_S - since_s, "first_start_s": NOW_S - since_s, "executed_s": since_s,
        "attained_gpu_s": gpus * since_s, **columns,
    }  # fmt: skip


def waiting(job_id: int, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    """A waiting job that never ran, one CPU a GPU."""
    return {"job_id": job_id, "gpus": gpus, "cpus": max(gpus, 1), **columns}


def cluster(jobs: Iterable[dict[str, Any]], nodes: NodeTable, now_s: float = NOW_S) -> ClusterSnapshot:
    """A snapshot whose nodes have free what the jobs do not hold."""
    rows = list(jobs)
    partitions = tuple(f"p{number}" for number in range(nodes.in_partition.shape[1]))
    table = build_job_table([{"partition": partitions[0], **row} for row in rows])
    return ClusterSnapshot(now_s, table, with_free(table, nodes), partitions)


def with_free(jobs: JobTable, nodes: NodeTable) -> NodeTable:
    """The same nodes with the free columns that these jobs leave."""
    owner, entry = find_allocation_entries(jobs, np.arange(len(jobs)))
    held = (jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], split_memory_mib(jobs, owner, entry))
    whole = (nodes.gpus, nodes.cpus, nodes.memory_mib)
    free = [total.copy() for total in whole]
    for column, part in zip(free, held, strict=True):
        np.subtract.at(column, jobs.alloc_node[entry], part)
        column[~nodes.usable] = 0
    return replace(nodes, gpus_free=free[0], cpus_free=free[1], memory_free_mib=free[2])


def mixed_nodes(*gpus: int, cpus: int = 32, memory_mib: int = 64_000) -> NodeTable:
    """One node for each number of GPUs."""
    nodes = NodeTable.uniform(len(gpus), 0, cpus=cpus, memory_mib=memory_mib)
    column = np.array(gpus, dtype=np.int64)
    return replace(nodes, gpus=column, gpus_free=column.copy())


def verdicts(plan: Plan) -> dict[int, str]:
    """Verdict names by job id."""
    return {
        int(job_id): JobVerdict(int(verdict)).name
        for job_id, verdict in zip(plan.notes.job_id, plan.notes.verdict, strict=True)
    }


def preempted(plan: Plan) -> dict[int, tuple[int, ...]]:
    """Who gives way to whom."""
    return {item.job_id: item.for_jobs for item in plan.preempts}
