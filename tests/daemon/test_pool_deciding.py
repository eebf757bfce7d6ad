"""One decision for each pool: what it finds free, who leads, and that priorities stay in their bands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.pools.pools_reader import can_be_updated_alone, startable_s
from slurm_soda.policies.pipeline.actions import RouteJob
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import DividesNodes
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.pools.stages.in_force import PoolsInForce, WaitingPoolJob
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.snapshot import JobRunHistory, build_snapshot
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.daemon.records import record

NOW = 10_000.0
NODE = NodeClass("", 4, 28)
BOTH, OWN, LEND = "main_cpu,main_cpu_lend", "main_cpu", "main_cpu_lend"


def table(nodes: int = 1, large: int = 0) -> PoolTable:
    names = [f"n{i + 1}" for i in range(nodes)]
    return plan_pool_partitions("main", 10, 1, [(name, NODE) for name in names], {NODE: PoolShare(16, large)})


def cpu_job(job_id: int, cpus: int, partition: str = BOTH, **more: Any) -> SlurmJob:
    values = {"gpus": 0, "hints": Hints(), "submit_s": 1000.0 + job_id, **more}
    return record(job_id, cpus=cpus, partition=partition, **values)


def gpu_job(job_id: int, gpus: int, cpus: int, **more: Any) -> SlurmJob:
    kind = "large" if gpus >= 4 else "small"
    values = {"partition": f"main_{kind}", "submit_s": 1000.0 + job_id, **more}
    return record(job_id, gpus=gpus, cpus=cpus, **values)


def running(job: SlurmJob) -> dict[str, Any]:
    return {"state": "RUNNING", "reason": "None", "start_s": 2000.0 + job.job_id, "node_names": "n1"}


def world(pools: PoolTable, jobs: list[SlurmJob], memory: dict[int, JobRunHistory] | None = None) -> ClusterSnapshot:
    held: dict[str, tuple[int, int]] = {}
    for job in jobs:
        if job.state == "RUNNING":
            gpus, cpus = held.get(job.node_names, (0, 0))
            held[job.node_names] = (gpus + job.gpus, cpus + job.cpus)
    names = sorted({name for part in pools for name in part.nodes})
    nodes = [
        SlurmNode(
            name, "MIXED", True, 28, held.get(name, (0, 0))[1], 64_000, 0, 4, held.get(name, (0, 0))[0], "",
            tuple(sorted(["main", *(part.name for part in pools if name in part.nodes)])),
        )
        for name in names
    ]  # fmt: skip
    return build_snapshot(NOW, jobs, nodes, {}, memory or {}, {})


def plan_of(pools: PoolTable, jobs: list[SlurmJob], policy: str = "drf", aborts: dict[int, int] | None = None) -> Plan:
    waiting = tuple(WaitingPoolJob(job_id, times) for job_id, times in sorted((aborts or {}).items()))
    snapshot = replace(world(pools, jobs), pools=PoolsInForce(pools, waiting=waiting))
    return pipeline_of(make_policy(policy)).decide(snapshot)


def as_running(job: SlurmJob) -> SlurmJob:
    values = {name: getattr(job, name) for name in SlurmJob.__dataclass_fields__}
    return SlurmJob(**{**values, **running(job)})


def test_a_gpu_job_counts_on_cores_that_borrowers_hold() -> None:
    jobs = [as_running(cpu_job(1, 16, OWN)), as_running(cpu_job(2, 12, LEND)), gpu_job(3, 1, 8), cpu_job(4, 2)]
    plan = plan_of(table(), jobs)
    assert plan.starts.tolist() == [3]


def test_own_cores_of_cpu_jobs_are_not_a_gpu_jobs() -> None:
    jobs = [as_running(cpu_job(1, 16, OWN)), as_running(cpu_job(2, 12, LEND)), gpu_job(3, 1, 13)]
    assert plan_of(table(), jobs).starts.tolist() == []


def test_a_job_that_may_not_borrow_gets_no_more_than_its_pool_s_share() -> None:
    jobs = [as_running(cpu_job(1, 12, OWN)), cpu_job(2, 8, OWN), cpu_job(3, 8, BOTH)]
    assert plan_of(table(), jobs).starts.tolist() == [3]


def test_pools_do_not_give_the_same_cores_away_twice() -> None:
    jobs = [gpu_job(1, 1, 20), cpu_job(2, 12), cpu_job(3, 12, user="bob")]
    starts = plan_of(table(), jobs).starts.tolist()
    assert sorted(starts) == [1]


def test_aborted_jobs_lead_and_every_waiting_job_is_in_the_order_once() -> None:
    jobs = [cpu_job(i, 20) for i in range(1, 6)] + [gpu_job(6, 1, 4), gpu_job(7, 4, 4)]
    plan = plan_of(table(), jobs, aborts={4: 1, 3: 2})
    assert plan.order.tolist()[:2] == [3, 4]
    assert sorted(plan.order.tolist()) == [1, 2, 3, 4, 5, 6, 7]
    assert plan.notes.job_id.tolist() == [1, 2, 3, 4, 5, 6, 7]
    positions = plan.notes.position.tolist()
    assert len(set(positions)) == len(positions)


@pytest.mark.parametrize("policy", ["drf", "fifo", "tiresias-las", "srsf", "kelp-drf", "coda"])
def test_borrowers_are_never_preempted_by_a_plan(policy: str) -> None:
    consents = Hints(checkpoint_signal="TERM")
    lent = [as_running(gpu_job(i, 1, 2, partition="main_small_lend", hints=consents)) for i in (1, 2)]
    wants = [gpu_job(5, 4, 4, user="bob")]
    pools = table(nodes=4, large=1)
    assert "main_small_lend" in pools.partitions
    assert plan_of(pools, lent + wants, policy).preempts == ()


def test_without_pools_the_plan_is_the_policy_s() -> None:
    jobs = [cpu_job(1, 20, "main"), gpu_job(2, 2, 4, partition="main")]
    snapshot = world(table(), jobs)
    plain = make_policy("drf").decide(snapshot)
    found = pipeline_of(make_policy("drf")).decide(snapshot)
    assert found.order.tolist() == plain.order.tolist()


def test_coda_divides_nodes_as_the_pools_in_force_do() -> None:
    shares = {NODE: PoolShare(16, 2)}
    coda, plain = make_policy("coda"), make_policy("drf")
    assert isinstance(coda, DividesNodes)
    told = coda.with_shares(shares)
    assert isinstance(told, Coda)
    assert told.shares == shares
    written = make_policy("coda", {"shares": ["4x28=4/1"]})
    assert isinstance(written, DividesNodes)
    assert written.with_shares(shares) is written, "the configuration goes first"
    assert not isinstance(plain, DividesNodes)


def orders(
    jobs: list[SlurmJob], memory: dict[int, JobRunHistory] | None = None, reserve_after_s: float = 600.0
) -> dict[int, int]:
    pools = table()
    snapshot = replace(world(pools, jobs, memory), pools=PoolsInForce(pools, reserve_after_s=reserve_after_s))
    changes = order_changes(pipeline_of(make_policy("fifo-skip")).decide(snapshot), snapshot, depth=1000)
    return {change.job_id: int(change.new["SiteFactor"]) for change in changes}


def test_jobs_of_a_pool_are_lifted_above_their_own_pool_alone() -> None:
    waiting = [
        as_running(gpu_job(9, 4, 4)),
        *(gpu_job(i, 1, 2, submit_s=NOW - i, priority=10 - i) for i in range(1, 5)),
    ]
    waiting += [cpu_job(i, 20, submit_s=NOW - i, priority=9_000) for i in range(11, 15)]
    factors = orders(waiting)
    placed = [factors.get(i, 0) for i in (4, 3, 2, 1)]
    assert placed == sorted(placed, reverse=True)
    assert len(set(placed)) == 4
    assert min(factors.values()) > 0
    assert max(placed) < 100


def test_the_next_gpu_job_passes_smaller_ones_once_it_has_waited_long() -> None:
    waiting = [
        as_running(gpu_job(9, 4, 4)),
        gpu_job(1, 4, 2, submit_s=NOW - 700, eligible_s=NOW - 700, priority=5),
        gpu_job(2, 2, 2, submit_s=NOW - 650, eligible_s=NOW - 650, priority=70),
    ]
    assert orders(waiting).get(1, 0) > 65
    assert orders(waiting, reserve_after_s=800) == {}


def test_rows_of_a_table_keep_what_they_hold() -> None:
    jobs = [as_running(cpu_job(1, 3, OWN)), cpu_job(2, 1), as_running(gpu_job(3, 2, 5))]
    whole = world(table(), jobs).jobs
    part = whole.only(np.array([1, 2]))
    assert part.job_id.tolist() == [2, 3]
    assert (part.alloc(0), part.alloc(1)) == ([], whole.alloc(2))
    assert len(whole.only(np.array([], dtype=np.int64))) == 0


def routed(now_s: float, **more: Any) -> RouteJob | None:
    """What is asked for one aborted job, as the reader of the daemon shows it to the decision."""
    pools = table()
    values = {"submit_s": NOW, "eligible_s": NOW + 121, "reason": "BeginTime", "restarts": 1, **more}
    waits = cpu_job(1, 8, f"{LEND},{OWN}", **values)
    job = WaitingPoolJob(1, aborts=1, startable_s=startable_s(waits, now_s), request_known=True)
    snapshot = replace(world(pools, [waits]), now_s=now_s, pools=PoolsInForce(pools, waiting=(job,)))
    plan = pipeline_of(make_policy("drf")).decide(snapshot)
    return next((action for action in plan.actions if isinstance(action, RouteJob)), None)


def test_only_slurms_own_wait_after_a_requeue_is_ended() -> None:
    action = routed(NOW + 3)
    assert action is not None
    assert (action.ends_wait, action.first_in) == (True, "main/cpu")
    assert routed(NOW + 1) is None
    chosen = routed(NOW + 3, eligible_s=NOW + 9000)
    assert chosen is not None
    assert not chosen.ends_wait, "its user wants it to begin later"


def test_an_update_must_hit_one_task_alone() -> None:
    assert can_be_updated_alone(cpu_job(8, 1, array_job_id=7, array_task="1"))
    assert can_be_updated_alone(cpu_job(7, 1, array_job_id=7, array_task="3"))
    assert can_be_updated_alone(cpu_job(7, 1, array_job_id=7, array_task="3,5-9"))
    assert not can_be_updated_alone(cpu_job(7, 1, array_job_id=7, array_task=",".join(map(str, range(0, 4000, 2)))))
    assert can_be_updated_alone(cpu_job(7, 1, array_job_id=7))
