"""Random small clusters for properties, and what happens when a plan is carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from tests.policies.cases import NOW_S, cluster, with_free
from tests.sampling import examples

on_some_worlds = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Decorator of properties: seconds for all of them in a test run."""

SIZES = st.sampled_from([0, 1, 1, 1, 2, 2, 2, 3, 4, 4, 6])
STATES = [JobState.PENDING, JobState.RUNNING, JobState.RUNNING] * 6
STATES += [JobState.BLOCKED, JobState.COMPLETING, JobState.SUSPENDED]


@st.composite
def jobs_rows(draw: st.DrawFn, job_id: int, partitions: int, types: tuple[str, ...]) -> dict[str, Any]:
    gpus = draw(SIZES)
    nodes = draw(st.sampled_from([1, 1, 1, 2])) if gpus % 2 == 0 and gpus else 1
    executed_s = draw(st.sampled_from([0.0, 0.0, 50.0, 500.0, 2000.0, 9000.0]))
    return {
        "job_id": job_id, "gpus": gpus, "nodes": nodes,
        "gpus_per_node": draw(st.sampled_from([0, gpus // nodes])),
        "cpus": draw(st.integers(1, 4)), "memory_mib": draw(st.sampled_from([0, 0, 1000, 9000])),
        "partition": f"p{draw(st.sampled_from([0, 0, partitions - 1]))}", "submit_s": float(draw(st.integers(0, 50))),
        "gpu_type": draw(st.sampled_from(["", "", *types])) if gpus else "", "user": draw(st.sampled_from("abc")),
        "executed_s": executed_s, "attained_gpu_s": gpus * executed_s,
        "first_start_s": NOW_S - executed_s - draw(st.integers(0, 30)) if executed_s else float("nan"),
        "waited_s": float(draw(st.integers(0, 20_000))), "preemptible": draw(st.sampled_from([True, True, True, False])),
        "remaining_s": draw(st.sampled_from([10.0, 100.0, 1000.0, float("nan")])),
        "skew": draw(st.sampled_from([float("nan"), 0.1, 0.7])),
        "time_limit_s": draw(st.sampled_from([60.0, 600.0, 6000.0, float("inf")])),
        "state": draw(st.sampled_from(STATES)),
    }  # fmt: skip


@st.composite
def nodes_tables(draw: st.DrawFn, partitions: int, types: tuple[str, ...]) -> NodeTable:
    count = draw(st.integers(1, 4))
    nodes = NodeTable.uniform(count, 0, cpus=draw(st.sampled_from([8, 16])), memory_mib=20_000, partitions=partitions)
    gpus = np.array(draw(st.lists(st.sampled_from([0, 2, 4, 4, 4]), min_size=count, max_size=count)), dtype=np.int64)
    flags = draw(
        st.lists(st.sampled_from([True, True, False]), min_size=count * partitions, max_size=count * partitions)
    )
    member = np.array(flags).reshape(count, partitions)
    member[:, 0] = True
    kinds = draw(st.lists(st.integers(min(len(types) - 1, 0), len(types) - 1), min_size=count, max_size=count))
    usable = np.array(draw(st.lists(st.sampled_from([True] * 9 + [False]), min_size=count, max_size=count)))
    return replace(nodes, gpus=gpus, usable=usable, in_partition=member, gpu_type=np.array(kinds), gpu_types=types)


@st.composite
def worlds(draw: st.DrawFn) -> ClusterSnapshot:
    """A consistent snapshot: running and completing jobs hold places that they fit, the others hold none."""
    partitions, types = draw(st.integers(1, 2)), draw(st.sampled_from([(), ("a", "b")]))
    nodes = draw(nodes_tables(partitions, types))
    rows = [draw(jobs_rows(job_id, partitions, types)) for job_id in range(1, draw(st.integers(2, 18)) + 1)]
    return seated(rows, nodes)


def seated(rows: list[dict[str, Any]], nodes: NodeTable) -> ClusterSnapshot:
    """Give every job that should hold something a place; it waits if there is none."""
    snapshot = cluster(rows, nodes)
    demand = group_snapshot_requests(snapshot)
    pool = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    for at, row in enumerate(sorted(rows, key=lambda r: r["job_id"])):
        if row["state"] in (JobState.PENDING, JobState.BLOCKED):
            continue
        pieces = pool.find(demand.shapes[demand.code[at]])
        if pieces is None:
            row["state"] = JobState.PENDING
            continue
        pool.take(pieces)
        row["alloc"] = [(piece.node, piece.gpus, piece.cpus) for piece in pieces]
        row["start_s"] = NOW_S - row["executed_s"]
        row["first_start_s"] = min(row["start_s"], row["first_start_s"]) if row["executed_s"] else row["start_s"]
    return cluster(rows, nodes)


def carried_out(snapshot: ClusterSnapshot, plan: Plan, *, leaving: bool) -> ClusterSnapshot:
    """The snapshot of the same instant after a plan: starts run; preempted jobs wait, or are still leaving."""
    jobs = snapshot.jobs
    rows = []
    for at in range(len(jobs)):
        view = jobs.view(at)
        row: dict[str, Any] = {
            name: getattr(view, name)
            for name in ("job_id", "state", "partition", "submit_s", "first_start_s", "start_s", "gpus", "nodes",
                         "gpus_per_node", "cpus", "memory_mib", "executed_s", "attained_gpu_s", "waited_s",
                         "preemptible", "preemptions", "remaining_s", "time_limit_s", "user", "skew")
        }  # fmt: skip
        row["gpu_type"] = jobs.gpu_types[int(jobs.gpu_type[at])] if jobs.gpu_type[at] >= 0 else ""
        row["alloc"] = jobs.alloc(at)
        if view.job_id in plan.promoted:
            row |= {"executed_s": 0.0, "attained_gpu_s": 0.0, "waited_s": 0.0}
        verdict = plan.notes.of(view.job_id).verdict
        if verdict == JobVerdict.START:
            places = [(piece.node, piece.gpus, piece.cpus) for piece in plan.places[view.job_id]]
            first = snapshot.now_s if np.isnan(view.first_start_s) else view.first_start_s
            row |= {"state": JobState.RUNNING, "alloc": places, "start_s": snapshot.now_s, "first_start_s": first}
        elif verdict == JobVerdict.PREEMPT and leaving:
            row["state"] = JobState.COMPLETING
        elif verdict == JobVerdict.PREEMPT or (view.state == JobState.COMPLETING and view.preemptible and leaving):
            row |= {"state": JobState.PENDING, "alloc": [], "start_s": float("nan"), "waited_s": 0.0}
            row["preemptions"] += 1
        rows.append(row)
    table = build_job_table(rows)
    table = table.with_columns(
        partition=np.array([snapshot.partitions.index(row["partition"]) for row in rows], dtype=np.int64),
        partitions=snapshot.partitions,
    )
    return replace(snapshot, jobs=table, nodes=with_free(table, snapshot.nodes))
