"""Random clusters under pools: borrowers and guests among the running jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.pools.kinds import LARGE_FROM_GPUS
from slurm_soda.policies.pools.layout.node_division import PoolDivision, divide_nodes
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from tests.policies.cases import NOW_S
from tests.policies.worlds import seated

CORES = 20
SHAPES: tuple[dict[str, Any], ...] = (
    {"gpus": 0}, {"gpus": 0}, {"gpus": 0}, {"gpus": 0, "nodes": 2}, {"gpus": 1, "gpus_per_node": 1}, {"gpus": 1},
    {"gpus": 2, "nodes": 2, "gpus_per_node": 1}, {"gpus": 3}, {"gpus": 4, "gpus_per_node": 4}, {"gpus": 5},
    {"gpus": 8, "nodes": 2, "gpus_per_node": 4}, {"gpus": 6},
)  # fmt: skip


@st.composite
def policies(draw: st.DrawFn) -> Coda:
    return Coda(
        cpu_cores=draw(st.sampled_from((0.0, 0.4, 0.7, 5.0))),
        large_nodes=draw(st.sampled_from((0.0, 0.5, 1.0, 2.0))),
        max_aborts=draw(st.sampled_from((0, 1, 3))),
    )


@st.composite
def rows(draw: st.DrawFn, job_id: int) -> dict[str, Any]:
    shape = draw(st.sampled_from(SHAPES))
    return {
        "job_id": job_id, **shape, "cpus": max(shape["gpus"], shape.get("nodes", 1)) * draw(st.sampled_from((1, 2, 4, 9))),
        "user": draw(st.sampled_from("abc")), "submit_s": float(draw(st.integers(0, 50))),
        "executed_s": float(draw(st.integers(0, 500))), "first_start_s": NOW_S - 500.0,
        "preemptible": draw(st.sampled_from((True, True, True, False))),
        "preemptions": draw(st.sampled_from((0, 0, 0, 1, 2, 3))),
        "gpu_type": draw(st.sampled_from(("", "", "a"))) if shape["gpus"] else "",
        "state": draw(st.sampled_from((JobState.PENDING, JobState.PENDING, JobState.RUNNING, JobState.RUNNING,
                                       JobState.RUNNING, JobState.COMPLETING))),
    }  # fmt: skip


@st.composite
def crowds(draw: st.DrawFn) -> ClusterSnapshot:
    """CPU jobs crowd 1 to 5 nodes of 4 or 5 GPUs, or none."""
    count = draw(st.integers(1, 5))
    gpus = np.array(draw(st.lists(st.sampled_from((0, 4, 5, 5, 5)), min_size=count, max_size=count)), dtype=np.int64)
    table = NodeTable.uniform(count, 0, cpus=CORES, memory_mib=64_000)
    table = replace(table, gpus=gpus, gpu_type=np.where(gpus == 4, 1, 0), gpu_types=("a", "b"))
    return seated([draw(rows(job_id)) for job_id in range(1, draw(st.integers(2, 24)) + 1)], table)


def division_of(policy: Coda, snapshot: ClusterSnapshot) -> PoolDivision:
    return divide_nodes(
        snapshot.nodes, cpu_cores=policy.cpu_cores, large_nodes=policy.large_nodes, shares=policy.shares
    )


def may_be_aborted(policy: Coda, snapshot: ClusterSnapshot, row: int) -> bool:
    jobs = snapshot.jobs
    return bool(jobs.preemptible[row] and jobs.preemptions[row] < policy.max_aborts)


def borrowing(policy: Coda, snapshot: ClusterSnapshot, *, guests: bool) -> dict[int, list[int]]:
    """Rows of running jobs that may be aborted and hold more than their pool owns, by node, one job after the other.

    ``guests``: small GPU jobs on large nodes; otherwise CPU jobs.
    """
    jobs, division = snapshot.jobs, division_of(policy, snapshot)
    counted = (jobs.gpus > 0) & (jobs.gpus < LARGE_FROM_GPUS) if guests else jobs.gpus == 0
    tenants = np.flatnonzero(counted & (jobs.state == JobState.RUNNING)).tolist()
    found: dict[int, list[int]] = {}
    for node in range(len(snapshot.nodes)):
        if guests and not division.lent[node]:
            continue
        here = [
            (may_be_aborted(policy, snapshot, row), float(jobs.start_s[row]), row, piece)
            for row in tenants
            for piece in list_allocations(jobs, row)
            if piece.node == node
        ]
        gpus, cpus = (
            (int(division.small_gpus[node]), int(division.small_cpus[node])) if guests
            else (0, int(division.cpu_cores[node]))
        )  # fmt: skip
        for abortable, _, row, piece in sorted(here, key=lambda item: item[:3]):
            gpus, cpus = gpus - piece.gpus, cpus - piece.cpus
            if abortable and (gpus < 0 or cpus < 0):
                found.setdefault(node, []).append(row)
    return found
