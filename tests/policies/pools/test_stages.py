"""Each stage of the decision as a table, and what holds of every plan that leaves the pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pipeline.actions import OrderJobs, PreemptJob, RouteJob
from slurm_soda.policies.pipeline.stages import Pipeline, empty_plan, pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.policies.pools.layout.routing import SubmittedRequest
from slurm_soda.policies.pools.stages.in_force import SAME_LIST, PoolsInForce, WaitingPoolJob
from slurm_soda.policies.pools.stages.policy_in_pools import PolicyInPools
from slurm_soda.policies.pools.stages.pool_order import OrderWaitingJobs
from slurm_soda.policies.pools.stages.requeued_borrowers import RequeuedBorrowersFirst, move_to_front, partitions_left
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from slurm_soda.sodactl.bench.synthetic_sharing import shared_cluster

NOW_S = 1000.0
NODE = NodeClass("", 4, 28)
OWN, LEND = "main_cpu", "main_cpu_lend"
BOTH, BACK = f"{OWN},{LEND}", f"{LEND},{OWN}"


def table(large: int = 0) -> PoolTable:
    return plan_pool_partitions("main", 10, 1, [("n1", NODE), ("n2", NODE)], {NODE: PoolShare(16, large)})


def world(jobs: list[dict[str, Any]], pools: PoolsInForce | None = None) -> ClusterSnapshot:
    """Two nodes that are in every partition; partitions as the jobs list them."""
    names = tuple(sorted({job.get("partition", "main") for job in jobs} | {"main"}))
    built = build_job_table([{"partition": "main", **job} for job in jobs])
    code = np.array([names.index(built.partitions[at]) for at in built.partition.tolist()], dtype=np.int64)
    columns = built.with_columns(partition=code, partitions=names)
    return ClusterSnapshot(
        NOW_S, columns, NodeTable.uniform(2, 4, partitions=len(names)), names, pools=pools or PoolsInForce()
    )


def cpu_job(job_id: int, partition: str = BOTH, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": 0, "cpus": 20, "partition": partition, "submit_s": float(job_id), **more}


def ordered(*job_ids: int) -> Plan:
    return replace(empty_plan(), policy="fifo", order=np.array(job_ids, dtype=np.int64))


def routes(plan: Plan) -> list[RouteJob]:
    return [action for action in plan.actions if isinstance(action, RouteJob)]


def test_the_pipeline_runs_its_stages_in_order_from_an_empty_plan() -> None:
    pipeline = pipeline_of(make_policy("fifo"))
    assert [stage.name for stage in pipeline.stages][:4] == [
        "fifo",
        "part pairs",
        "join by hand",
        "requeued borrowers first",
    ]
    snapshot = world([{"job_id": 1}, {"job_id": 2}])
    assert not len(Pipeline(()).decide(snapshot).order)
    assert pipeline.decide(snapshot).order.tolist() == [1, 2]


ABORTED = {"aborts": 1, "startable_s": NOW_S - 1.0}
OFTEN = {**ABORTED, "aborts": 3, "request_known": True, "request": SubmittedRequest(cores=8, cores_per_node=8)}


@pytest.mark.parametrize(
    ("listed", "job", "wanted"),
    [
        (BACK, ABORTED, (BOTH, "main/cpu", True)),
        (BOTH, ABORTED, (None, "main/cpu", True)),
        (BOTH, {**ABORTED, "startable_s": NOW_S + 1.0}, None),
        (BOTH, {"aborts": 1}, None),
        (BACK, {"aborts": 1}, (BOTH, None, False)),
        (BACK, {**ABORTED, "alone": False}, None),
        (BACK, {**ABORTED, "aborts": 0}, None),
        (BACK, {**ABORTED, "refused": (BOTH,)}, (None, "main/cpu", True)),
        (BACK, {**ABORTED, "refused": (SAME_LIST, BOTH)}, None),
        (BACK, OFTEN, (OWN, "main/cpu", True)),
        (BACK, {**OFTEN, "request": SubmittedRequest(cores=20, cores_per_node=20)}, ("main", "main/cpu", True)),
        (BACK, {**OFTEN, "request": None}, ("main", "main/cpu", True)),
        (BACK, {**OFTEN, "request_known": False}, None),
        (BACK, {**OFTEN, "refused": (OWN,)}, ("main", "main/cpu", True)),
        (BACK, {**OFTEN, "refused": (OWN, "main")}, (None, "main/cpu", True)),
        (OWN, {**OFTEN, "request_known": False}, (None, "main/cpu", True)),
        ("main", ABORTED, None),
    ],
)
def test_an_aborted_job_is_put_back_in_line(
    listed: str, job: dict[str, Any], wanted: tuple[str | None, str | None, bool] | None
) -> None:
    waits = WaitingPoolJob(1, **job)
    pools = PoolsInForce(table(), waiting=(waits,), max_aborts=3)
    plan = RequeuedBorrowersFirst().apply(world([cpu_job(1, listed), cpu_job(2)], pools), ordered(2, 1))
    found = [(action.partitions, action.first_in, action.ends_wait) for action in routes(plan)]
    assert found == ([] if wanted is None else [wanted])
    assert plan.order.tolist() == ([1, 2] if waits.aborts else [2, 1])


def test_an_aborted_job_is_ranked_before_the_others_of_its_pool() -> None:
    pools = PoolsInForce(table(), waiting=(WaitingPoolJob(3, aborts=1),))
    snapshot = world([cpu_job(1), cpu_job(2), cpu_job(3, BOTH)], pools)
    whole = PolicyInPools(make_policy("fifo")).apply(snapshot, empty_plan())
    plan = RequeuedBorrowersFirst().apply(snapshot, whole)
    ranks = [[found.notes.of(job_id).position for job_id in (1, 2, 3)] for found in (whole, plan)]
    assert ranks == [[0, 1, 2], [1, 2, 0]]


@pytest.mark.parametrize(
    ("listed", "leaving", "left"),
    [
        ("main_small,main_small_lend", {"main_small_lend": "main"}, "main_small"),
        ("main_small_lend", {"main_small_lend": "main"}, "main"),
        ("main_small_lend,main_small", {"main_small_lend": "main", "main_small": "main"}, "main"),
        ("a_cpu,b_cpu", {"a_cpu": "a", "b_cpu": "b"}, "a,b"),
        ("main_small", {"other": "main"}, "main_small"),
        ("gone", {"gone": ""}, "gone"),
    ],
)
def test_partitions_that_go_leave_the_list(listed: str, leaving: dict[str, str], left: str) -> None:
    assert partitions_left(listed, leaving) == left


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ({}, ("main", False)),
        (ABORTED, ("main", True)),
        ({**ABORTED, "startable_s": NOW_S + 1.0}, None),
        ({"refused": ("main",)}, None),
        ({"alone": False}, None),
    ],
)
def test_jobs_are_moved_out_of_partitions_that_go(job: dict[str, Any], wanted: tuple[str, bool] | None) -> None:
    pools = PoolsInForce(leaving={"old_cpu": "main"}, waiting=(WaitingPoolJob(1, **job),))
    plan = RequeuedBorrowersFirst().apply(world([cpu_job(1, "old_cpu"), cpu_job(2, "main")], pools), ordered(2, 1))
    assert [(action.partitions, action.ends_wait) for action in routes(plan)] == ([] if wanted is None else [wanted])
    assert plan.order.tolist() == [2, 1], "without pools nobody goes before others"


def test_some_jobs_lead_an_order_as_they_are_given() -> None:
    order = np.arange(1, 7, dtype=np.int64)
    assert move_to_front(order, np.array([5, 9, 2], dtype=np.int64)).tolist() == [5, 2, 1, 3, 4, 6]
    assert move_to_front(order, np.array([], dtype=np.int64)) is order


def test_every_queue_gets_its_own_order_and_its_own_idle_jobs() -> None:
    jobs = [cpu_job(1), cpu_job(2, state=JobState.BLOCKED), {"job_id": 3, "gpus": 1, "partition": "main_small"},
            {"job_id": 4}, {"job_id": 5, "state": JobState.BLOCKED}, cpu_job(6, state=JobState.RUNNING)]  # fmt: skip
    snapshot = world(jobs, PoolsInForce(table()))
    plan = OrderWaitingJobs().apply(snapshot, ordered(4, 3, 1))
    orders = [action for action in plan.actions if isinstance(action, OrderJobs)]
    assert {one.pool: (one.job_ids.tolist(), one.others.tolist()) for one in orders} == {
        "": ([4], [5]), "main/small": ([3], []), "main/cpu": ([1], [2]),
    }  # fmt: skip
    (whole,) = OrderWaitingJobs().apply(replace(snapshot, pools=PoolsInForce()), ordered(4, 3, 1)).actions
    assert isinstance(whole, OrderJobs)
    assert (whole.pool, whole.job_ids.tolist(), whole.others.tolist()) == ("", [4, 3], [2, 5])
    assert whole.unranked.tolist() == [1], "outside pools, jobs without GPUs keep Slurm's own priority"


@pytest.mark.parametrize(
    ("gpus", "waited_s", "starts", "reserving"),
    [(1, 700.0, [], 1), (1, 500.0, [], 0), (1, 700.0, [1], 2), (1, 700.0, [1, 2], 0), (0, 700.0, [], 0)],
)
def test_nodes_are_reserved_for_the_next_gpu_job_that_has_waited_long(
    gpus: int, waited_s: float, starts: list[int], reserving: int
) -> None:
    partition = "main_small" if gpus else BOTH
    jobs = [{"job_id": i, "gpus": gpus, "partition": partition, "waited_s": waited_s} for i in (1, 2)]
    plan = replace(ordered(1, 2), starts=np.array(starts, dtype=np.int64))
    plan = OrderWaitingJobs().apply(world(jobs, PoolsInForce(table(), reserve_after_s=600.0)), plan)
    assert [action.reserving for action in plan.actions if isinstance(action, OrderJobs)] == [reserving]


PARTITIONS = (BOTH, OWN, LEND, BACK, "main_small", "main_large", "main_small_lend", "main", "old_cpu")


@st.composite
def worlds(draw: st.DrawFn) -> ClusterSnapshot:
    """Jobs of all kinds and states in all partitions, some of them aborted before."""
    jobs, waiting = [], []
    for job_id in range(1, draw(st.integers(1, 8)) + 1):
        state = draw(st.sampled_from([JobState.PENDING, JobState.BLOCKED, JobState.RUNNING]))
        gpus = draw(st.sampled_from([0, 1, 4]))
        job: dict[str, Any] = {
            "job_id": job_id, "state": state, "gpus": gpus, "cpus": 4, "partition": draw(st.sampled_from(PARTITIONS)),
            "submit_s": float(draw(st.integers(0, 5))), "preemptible": draw(st.booleans()),
        }  # fmt: skip
        if state is JobState.RUNNING:
            job |= {"start_s": 10.0, "alloc": [(0, gpus, 4)]}
        elif draw(st.booleans()):
            waiting.append(
                WaitingPoolJob(job_id, draw(st.integers(0, 4)), draw(st.sampled_from([NOW_S - 1, NOW_S + 1, np.nan])))
            )
        jobs.append(job)
    pools = PoolsInForce(
        draw(st.sampled_from([table(), table(1), PoolTable()])),
        {NODE: PoolShare(16, 1)},
        {"old_cpu": "main"},
        tuple(waiting),
    )
    return world(jobs, pools)


@given(worlds(), st.sampled_from(["fifo", "drf", "srtf", "tiresias-las", "coda", "gandiva"]))
def test_ids_of_actions_are_unique_and_stay_the_same(snapshot: ClusterSnapshot, policy: str) -> None:
    plan, again = (pipeline_of(make_policy(policy)).decide(snapshot) for _ in range(2))
    ids = [action.id for action in plan.actions]
    assert len(set(ids)) == len(ids)
    assert ids == [action.id for action in again.actions]
    waiting = set(snapshot.jobs.job_id[snapshot.jobs.state <= JobState.BLOCKED].tolist())
    queued = [
        i
        for one in plan.actions
        if isinstance(one, OrderJobs)
        for column in (one.job_ids, one.others, one.unranked)
        for i in column.tolist()
    ]
    assert sorted(queued) == sorted(waiting), "every waiting job is in one queue"
    for action in plan.actions:
        if isinstance(action, RouteJob):
            assert action.job_id in waiting
        if isinstance(action, PreemptJob):
            assert snapshot.jobs.state[snapshot.jobs.row(action.job_id)] == JobState.RUNNING


@given(worlds())
def test_without_pools_the_first_stage_is_the_policy_alone(snapshot: ClusterSnapshot) -> None:
    plain, policy = replace(snapshot, pools=PoolsInForce()), make_policy("drf")
    staged, alone = PolicyInPools(policy).apply(plain, empty_plan()), policy.decide(plain)
    assert staged.order.tolist() == alone.order.tolist()
    assert staged.actions == alone.actions


def test_a_snapshot_of_single_gpus_is_not_divided_between_pools() -> None:
    """Its columns of devices are by row of all jobs, so a pool's part of the jobs would be read with other jobs' GPUs."""
    shared = shared_cluster(20, 2, 1)
    pools = plan_pool_partitions("main", 10, 1, [(name, NODE) for name in shared.nodes.name], {NODE: PoolShare(16, 0)})
    names = ("main", "main_small")
    divided = replace(
        shared,
        jobs=shared.jobs.with_columns(partition=np.ones(len(shared.jobs), dtype=np.int64), partitions=names),
        nodes=replace(shared.nodes, in_partition=np.ones((len(shared.nodes), 2), dtype=np.bool_)),
        partitions=names,
        pools=PoolsInForce(pools),
    )
    with pytest.raises(PolicyError, match="a SharingSnapshot cannot be divided between pools"):
        PolicyInPools(make_policy("sjf-bsbf")).apply(divided, empty_plan())
    assert len(PolicyInPools(make_policy("sjf-bsbf")).apply(shared, empty_plan()).order)
