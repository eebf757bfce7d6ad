"""EASY backfill: jobs and nodes in, starts and reservations out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from slurm_soda.policies.baselines.backfill import Backfill
from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.engine.run_time_estimates import ESTIMATES, UNKNOWN_RUN_S, estimate_ends_s, estimate_runs_s
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from tests.policies.cases import NOW_S, cluster, mixed_nodes, running, waiting, with_free
from tests.policies.worlds import carried_out, on_some_worlds, worlds


def busy(job_id: int, *alloc: tuple[int, int], ends_in_s: float, **columns: Any) -> dict[str, Any]:
    """A job that has run for 100 s and whose time limit is over in ``ends_in_s``."""
    return running(job_id, *alloc, since_s=100.0, time_limit_s=100.0 + ends_in_s, **columns)


def job(job_id: int, gpus: int, limit_s: float, **columns: Any) -> dict[str, Any]:
    return waiting(job_id, gpus, **{"time_limit_s": limit_s, "submit_s": float(job_id), **columns})


def reserved(plan: Plan) -> dict[int, float]:
    """Seconds until room is reserved, by job id."""
    ids = plan.notes.job_id.tolist()
    notes = [plan.notes.of(job_id) for job_id in ids]
    return {note.job_id: note.reserved_in_s for note in notes if not np.isnan(note.reserved_in_s)}


# Ten GPUs, six of them busy for 100 s; job 2 needs eight, so it is due in 100 s, and two are left over then.
EASY = [busy(1, (0, 6), ends_in_s=100), job(2, 8, 50)]

# name, jobs, GPUs of the nodes, starts, reservations
CASES: list[tuple[str, list[dict[str, Any]], tuple[int, ...], list[int], dict[int, float]]] = [
    ("ends before the first blocked job is due", [*EASY, job(3, 4, 80)], (10,), [3], {2: 100}),
    ("ends when it is due", [*EASY, job(3, 4, 100)], (10,), [3], {2: 100}),
    ("would delay it", [*EASY, job(3, 4, 101)], (10,), [], {2: 100}),
    ("runs longer on what it leaves", [*EASY, job(3, 2, 9999)], (10,), [3], {2: 100}),
    ("what it leaves is used once", [*EASY, job(3, 2, 9999), job(4, 1, 9999), job(5, 2, 90)], (10,), [3, 5], {2: 100}),
    ("a short job takes nothing of what it leaves",
     [*EASY, job(3, 2, 90), job(4, 2, 9999)], (10,), [3, 4], {2: 100}),
    ("the first blocked job waits for the jobs started before it",
     [busy(1, (0, 6), ends_in_s=100), job(2, 4, 500), job(3, 8, 50)], (10,), [2], {3: 500}),
    ("only the first blocked job is protected",
     [*EASY, job(3, 10, 10), job(4, 2, 9999)], (10,), [4], {2: 100}),
    ("on its nodes, not anywhere",
     [busy(1, (0, 4), ends_in_s=100), busy(2, (1, 2), ends_in_s=9000), job(3, 4, 50, gpus_per_node=4),
      job(4, 2, 9999)], (4, 4), [4], {3: 100}),
    ("a gang waits for as many nodes as it needs",
     [busy(1, (0, 1), ends_in_s=100), busy(2, (1, 1), ends_in_s=300), busy(3, (2, 1), ends_in_s=200),
      job(4, 8, 50, nodes=2, gpus_per_node=4), job(5, 3, 250, gpus_per_node=3)], (4, 4, 4), [5], {4: 200}),
    ("a job that needs memory of others waits for them",
     [busy(1, (0, 1), ends_in_s=100, memory_mib=60_000), job(2, 1, 50, memory_mib=9000), job(3, 1, 9999)], (4,), [3],
     {2: 100}),
    ("jobs without a limit end after a year",
     [running(1, (0, 4), since_s=100.0), job(2, 4, 50), waiting(3, 0, submit_s=3), waiting(4, 1, submit_s=4)], (4,), [3],
     {2: UNKNOWN_RUN_S - 100}),
    ("completing jobs are as good as gone",
     [busy(1, (0, 4), ends_in_s=100, state=JobState.COMPLETING), job(2, 4, 50)], (4,), [], {2: 0}),
    ("a job beyond its limit ends now", [busy(1, (0, 4), ends_in_s=-50), job(2, 4, 50)], (4,), [], {2: 0}),
    ("held and impossible jobs reserve nothing",
     [*EASY, job(3, 99, 1), job(4, 8, 1, state=JobState.BLOCKED)], (10,), [], {2: 100}),
]  # fmt: skip


@pytest.mark.parametrize(("jobs", "gpus", "starts", "due"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_easy(jobs: list[dict[str, Any]], gpus: tuple[int, ...], starts: list[int], due: dict[int, float]) -> None:
    plan = make_policy("backfill").decide(cluster(jobs, mixed_nodes(*gpus)))
    assert plan.starts.tolist() == starts
    assert reserved(plan) == due
    assert not plan.preempts


def test_predictions_count_where_asked_for() -> None:
    jobs = [
        busy(1, (0, 6), ends_in_s=5000, remaining_s=100.0), job(2, 8, 9000, remaining_s=50.0),
        job(3, 4, 9000, remaining_s=80.0), job(4, 2, 90, remaining_s=9000.0),
    ]  # fmt: skip
    snapshot = cluster(jobs, mixed_nodes(10))
    by_limit, predicted = (make_policy("backfill", {"estimate": name}).decide(snapshot) for name in ESTIMATES)
    assert (by_limit.starts.tolist(), reserved(by_limit)) == ([4], {2: 5000})
    assert (predicted.starts.tolist(), reserved(predicted)) == ([3], {2: 100})


@pytest.mark.parametrize(
    ("columns", "by_limit", "predicted"),
    [
        ({"time_limit_s": 70.0, "remaining_s": 30.0}, 70, 30),
        ({"time_limit_s": 70.0, "remaining_s": 90.0}, 70, 70),
        ({"time_limit_s": 70.0}, 70, 70),
        ({"remaining_s": 30.0}, 30, 30),
        ({}, UNKNOWN_RUN_S, UNKNOWN_RUN_S),
    ],
)
def test_run_times(columns: dict[str, float], by_limit: float, predicted: float) -> None:
    snapshot = cluster([waiting(1, **columns), running(2, (0, 1), since_s=20, **columns)], mixed_nodes(4))
    assert [estimate_runs_s(snapshot, name)[0] for name in ESTIMATES] == [by_limit, predicted]
    elapsed = [
        0.0 if "remaining_s" in columns and end == columns["remaining_s"] else 20.0 for end in (by_limit, predicted)
    ]
    ends = [estimate_ends_s(snapshot, name)[1] - NOW_S for name in ESTIMATES]
    assert ends == [by_limit - elapsed[0], predicted - elapsed[1]]


def test_depth_is_counted_behind_blocked_jobs_only() -> None:
    jobs = [*EASY, job(3, 4, 9999), job(4, 1, 9), job(5, 1, 9)]
    starts = {
        depth: make_policy("backfill", {"depth": depth}).decide(cluster(jobs, mixed_nodes(11))).starts.tolist()
        for depth in range(4)
    }
    assert starts == {0: [], 1: [], 2: [4], 3: [4, 5]}


def two_partitions(nodes: NodeTable, members: list[list[bool]]) -> NodeTable:
    return replace(nodes, in_partition=np.array(members))


def test_partitions_reserve_for_themselves_and_respect_each_other() -> None:
    """Node 0 is in p0, node 2 in p1, node 1 in both; each partition's first job needs eight GPUs."""
    nodes = two_partitions(mixed_nodes(4, 4, 4), [[True, False], [True, True], [False, True]])
    jobs = [
        busy(1, (1, 4), ends_in_s=100), job(2, 8, 50, partition="p0"), job(3, 8, 50, partition="p1"),
        job(4, 4, 100, partition="p0", gpus_per_node=4), job(5, 4, 140, partition="p1", gpus_per_node=4),
        job(6, 1, 200, partition="p0"), job(7, 1, 200, partition="p1"),
    ]  # fmt: skip
    plan = make_policy("backfill").decide(cluster(jobs, nodes))
    assert reserved(plan) == {2: 100, 3: 150}  # job 3 needs node 1 too, which is job 2's until then
    assert plan.starts.tolist() == [4, 5]


def test_a_later_reservation_that_begins_earlier_counts_at_the_start_of_the_first() -> None:
    """Node 1 (8 GPUs): 4 are job 3's from 200 s on and 4 are job 4's from 100 s on, so 3 that are free now are neither's."""
    nodes = two_partitions(mixed_nodes(4, 8), [[True, False], [True, True]])
    jobs = [
        busy(1, (0, 4), ends_in_s=200), busy(2, (1, 5), ends_in_s=100), job(3, 8, 50, nodes=2, gpus_per_node=4),
        job(4, 4, 500, partition="p1"), job(5, 2, 250), job(6, 2, 250, partition="p1"), job(7, 2, 100),
    ]  # fmt: skip
    plan = make_policy("backfill").decide(cluster(jobs, nodes))
    assert reserved(plan) == {3: 200, 4: 100}
    assert plan.starts.tolist() == [7]


def test_a_job_whose_nodes_are_down_holds_up_nobody() -> None:
    nodes = replace(mixed_nodes(4, 8), usable=np.array([True, False]))
    jobs = [job(1, 8, 50, gpus_per_node=8), job(2, 3, 9999), job(3, 4, 9), job(4, 1, 9999)]
    plan = make_policy("backfill").decide(cluster(jobs, nodes))
    assert (plan.starts.tolist(), reserved(plan)) == ([2, 4], {3: 9999})


def room_at(snapshot: ClusterSnapshot, plan: Plan, time_s: float, estimate: str) -> FreeNodes:
    """What is free at a time once all that is expected to end by then has ended, counted from whole nodes."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    pool = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    ends, runs = estimate_ends_s(snapshot, estimate), estimate_runs_s(snapshot, estimate)
    for row in range(len(jobs)):
        if jobs.state[row] not in (JobState.PENDING, JobState.BLOCKED) and ends[row] > time_s:
            pool.take(list_allocations(jobs, row))
    for job_id in plan.starts.tolist():
        if snapshot.now_s + runs[jobs.row(job_id)] > time_s:
            pool.take(list(plan.places[job_id]))
    return pool


@pytest.mark.parametrize("reservations", [1, 4])
@pytest.mark.parametrize("estimate", ESTIMATES)
@on_some_worlds
@given(snapshot=worlds())
def test_no_start_delays_a_reservation(estimate: str, reservations: int, snapshot: ClusterSnapshot) -> None:
    plan = Backfill(estimate, reservations=reservations).decide(snapshot)
    demand = group_snapshot_requests(snapshot)
    for job_id, due_s in reserved(plan).items():
        assert plan.notes.of(job_id).verdict == JobVerdict.WAIT
        pool = room_at(snapshot, plan, snapshot.now_s + due_s, estimate)
        assert pool.find(demand.shapes[int(demand.code[snapshot.jobs.row(job_id)])]) is not None


@pytest.mark.parametrize("estimate", ESTIMATES)
@on_some_worlds
@given(snapshot=worlds())
def test_carrying_the_plan_out_never_moves_the_first_reservation_back(estimate: str, snapshot: ClusterSnapshot) -> None:
    policy = Backfill(estimate)
    plan = policy.decide(snapshot)
    due = reserved(plan)
    if due:
        first = min(due, key=lambda job_id: plan.notes.of(job_id).position)
        again = policy.decide(carried_out(snapshot, plan, leaving=False))
        assert again.notes.of(first).verdict == JobVerdict.START or reserved(again)[first] <= due[first] + 1e-6


@on_some_worlds
@given(snapshot=worlds())
def test_with_nobody_looked_at_behind_blocked_jobs_it_is_fifo(snapshot: ClusterSnapshot) -> None:
    """Where partitions share no nodes and none is down: a reservation minds nobody then."""
    nodes, partitions = snapshot.nodes, len(snapshot.partitions)
    member = np.eye(partitions, dtype=np.bool_)[np.arange(len(nodes)) % partitions]
    apart = replace(nodes, in_partition=member, usable=np.ones(len(nodes), dtype=np.bool_))
    snapshot = replace(snapshot, nodes=with_free(snapshot.jobs, apart))
    strict, fifo = Backfill(depth=0).decide(snapshot), make_policy("fifo").decide(snapshot)
    assert strict.starts.tolist() == fifo.starts.tolist()
    assert strict.places == fifo.places
