"""What holds of every sharing policy on any cluster: bounds, memory and consent are kept, and gangs are whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.preemption import find_preemptible
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.sjf.policy import SJF_BSBF, SJF_FFS, SharingSjf
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.sharing.srsf_share.policy import SrsfShare
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S
from tests.policies.sharing.scenes import Table, scene
from tests.sampling import examples

POLICIES: list[SharingPolicy] = [
    SharingSjf(SJF_FFS), SharingSjf(SJF_BSBF), SharingSjf(SJF_BSBF, jobs_per_gpu=3), SharingSjf(SJF_BSBF, caution=1.0),
    SrsfShare(min_run_s=0.0), SrsfShare(min_run_s=60.0, change_s=30.0),
]  # fmt: skip
MODELS = "abcd"
on_some_worlds = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    xi = st.floats(1.0, 3.0)
    pairs = {
        (a, b): (draw(xi), draw(xi))
        for at, a in enumerate(MODELS)
        for b in MODELS[at:]
        if draw(st.sampled_from([True, True, True, False]))
    }
    misfits = draw(st.sets(st.sampled_from([frozenset("ab"), frozenset("cd"), frozenset("a")])))
    throughputs = {"a": Throughput(0.01, 0.01), "b": Throughput(0.1, 0.001)}
    return Table(pairs, throughputs=throughputs, misfits=frozenset(misfits), error=draw(st.sampled_from([0.0, 0.2])))


@st.composite
def job_rows(draw: st.DrawFn, job_id: int) -> dict[str, Any]:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4]))
    nodes = draw(st.sampled_from([1, 1, 2])) if gpus in (2, 4) else 1
    return {
        "job_id": job_id, "gpus": gpus, "cpus": draw(st.integers(max(gpus, 1), 6)), "nodes": nodes,
        "gpus_per_node": draw(st.sampled_from([0, 0, gpus // nodes])),
        "remaining_s": draw(st.sampled_from([10.0, 100.0, 100.0, 1000.0, float("nan")])),
        "model": draw(st.sampled_from([*MODELS, *MODELS, ""])), "batch": draw(st.sampled_from([1, 8])),
        "shares": draw(st.sampled_from([True, True, True, False])),
        "max_slowdown": draw(st.sampled_from([np.inf, np.inf, 1.3, 2.0])),
        "preemptible": draw(st.sampled_from([True, True, False])), "memory_mib": draw(st.sampled_from([0, 0, 9000])),
    }  # fmt: skip


@st.composite
def scenes(draw: st.DrawFn) -> SharingSnapshot:
    """Some jobs run on devices of theirs, some of them in pairs, some leave these; others wait. A node may drain."""
    nodes = NodeTable.uniform(draw(st.integers(1, 3)), draw(st.sampled_from([2, 4])), cpus=12, memory_mib=40_000)
    nodes = replace(nodes, usable=np.array([draw(st.sampled_from([True, True, True, False])) for _ in nodes.gpus]))
    free = list(range(int(nodes.gpus.sum())))
    rows = []
    for job_id in range(1, draw(st.integers(1, 14)) + 1):
        row = draw(job_rows(job_id))
        hosts = [one for one in rows if one.get("on") and one["gpus"] == row["gpus"] and not one.get("joined")]
        if row["gpus"] and row["gpus"] <= len(free) and draw(st.booleans()):
            row["on"], free = tuple(free[: row["gpus"]]), free[row["gpus"] :]
        elif hosts and draw(st.booleans()):
            row["on"], hosts[0]["joined"] = hosts[0]["on"], True
            row["joined"] = True
        if row.get("on"):
            row |= {"gpus_per_node": 0, "nodes": 1, "cpus": row["gpus"], "memory_mib": 0}
            row["start_s"] = NOW_S - draw(st.sampled_from([5.0, 500.0]))
            row["state"] = draw(st.sampled_from([JobState.RUNNING] * 5 + [JobState.COMPLETING, JobState.SUSPENDED]))
        rows.append(row)
    for row in rows:
        row.pop("joined", None)
    return scene(rows, nodes, draw(tables()))


def closed(snapshot: SharingSnapshot) -> set[int]:
    """Devices that nobody else can have: of unusable nodes, and of jobs that have not left yet."""
    state, devices = snapshot.jobs.state, snapshot.devices
    node_of = np.repeat(np.arange(len(snapshot.nodes)), snapshot.nodes.gpus)
    found = set(np.flatnonzero(~snapshot.nodes.usable[node_of]).tolist())
    for row in np.flatnonzero((state == JobState.COMPLETING) | (state == JobState.SUSPENDED)).tolist():
        found.update(devices.of(row).tolist())
    return found


def after(snapshot: SharingSnapshot, plan: SharingPlan) -> dict[int, tuple[int, ...]]:
    """Devices of all jobs by row once the plan is carried out."""
    jobs = snapshot.jobs
    gone = {item.job_id for item in plan.preempts}
    held = {
        row: tuple(snapshot.devices.of(row).tolist())
        for row in range(len(jobs))
        if jobs.state[row] == JobState.RUNNING and int(jobs.job_id[row]) not in gone
    }
    return held | {jobs.row(job_id): devices for job_id, devices in plan.devices.items()}


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(snapshot=scenes())
@on_some_worlds
def test_plans_can_be_carried_out(policy: SharingPolicy, snapshot: SharingSnapshot) -> None:
    plan = policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    jobs, nodes, sharing = snapshot.jobs, snapshot.nodes, snapshot.sharing
    node_of = np.repeat(np.arange(len(nodes)), nodes.gpus)
    held = after(snapshot, plan)
    shut, crowd = closed(snapshot), dict[int, list[int]]()
    new = {jobs.row(job_id) for job_id in plan.devices}
    for row, devices in held.items():
        assert row not in new or not shut & set(devices)
        assert len(set(devices)) == len(devices) == jobs.gpus[row]
        for device in devices:
            crowd.setdefault(device, []).append(row)
    for rows in crowd.values():
        if not new & set(rows):
            continue  # they met before
        assert len(rows) <= policy.jobs_per_gpu
        for row in rows if len(rows) > 1 else ():
            kinds = [sharing.kinds[sharing.kind[one]] for one in rows if sharing.kind[one] >= 0]
            assert len(kinds) == len(rows)
            assert sharing.shares[row]
            assert snapshot.known.fits(kinds) is not False
            mine = sharing.kinds[sharing.kind[row]]
            pairs = [snapshot.known.xi(mine, [sharing.kinds[sharing.kind[one]]]) for one in rows if one != row]
            slowdown = 1.0 + sum(xi.value - 1.0 for xi in pairs if xi is not None)
            assert None not in pairs
            assert slowdown <= sharing.max_slowdown[row] + 1e-9
    used = {column: Counter[int]() for column in ("cpus", "memory_mib")}
    for job_id, pieces in plan.places.items():
        row = jobs.row(job_id)
        by_node = Counter(int(node_of[device]) for device in plan.devices.get(job_id, ()))
        assert by_node == Counter({piece.node: piece.gpus for piece in pieces if piece.gpus})
        if jobs.gpus_per_node[row]:
            assert set(by_node.values()) == {int(jobs.gpus_per_node[row])}
        assert len(by_node) >= min(int(jobs.nodes[row]), int(jobs.gpus[row]))
        for piece in pieces:
            used["cpus"][piece.node] += piece.cpus
            used["memory_mib"][piece.node] += piece.memory_mib
    leaves = [jobs.row(item.job_id) for item in plan.preempts]
    ripe = find_preemptible(snapshot, getattr(policy, "min_run_s", 0.0))
    assert all(ripe[row] for row in leaves)
    assert not any(shut & set(snapshot.devices.of(row).tolist()) for row in leaves), "that would give nobody a GPU"
    for node in range(len(nodes)):
        freed = sum(cpus for row in leaves for at, _, cpus in jobs.alloc(row) if at == node)
        assert used["cpus"][node] <= nodes.cpus_free[node] + freed
        assert used["memory_mib"][node] <= nodes.memory_free_mib[node]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(snapshot=scenes())
@on_some_worlds
def test_plans_say_the_same_of_jobs_everywhere(policy: SharingPolicy, snapshot: SharingSnapshot) -> None:
    plan, again = policy.decide(snapshot), policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    assert isinstance(again, SharingPlan)
    assert (plan.devices, plan.sub_batches, plan.preempts) == (again.devices, again.sub_batches, again.preempts)
    jobs = snapshot.jobs
    pending = set(jobs.job_id[jobs.state == JobState.PENDING].tolist())
    assert set(plan.order.tolist()) == pending
    assert set(plan.starts.tolist()) <= pending & plan.places.keys()
    assert {job_id for job_id in plan.places if jobs.gpus[jobs.row(job_id)]} == plan.devices.keys()
    for item in plan.preempts:
        assert plan.notes.of(item.job_id).verdict == JobVerdict.PREEMPT
    for job_id, size in plan.sub_batches.items():
        assert 0 < size < snapshot.sharing.batch[jobs.row(job_id)]
        assert job_id in plan.decisions
