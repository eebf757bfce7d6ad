"""Services beside each other and beside other jobs: what one is given, the next does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.policies.pipeline.stages import empty_plan, pipeline_of
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.services.place_services import PlaceServices
from slurm_soda.policies.services.service import Device, Service
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from tests.policies.cases import NOW_S, running, waiting
from tests.policies.services.cases import (
    BOTH,
    CPU,
    FAILED,
    GPU,
    decided,
    drained,
    given_way,
    instances,
    joined,
    scaled,
    table,
    world,
)

ON_GPU = Service("ann", "chat", least=1, most=4, gpu=(GPU,))
QUEUED = {"job_id": 5, "gpus": 0, "cpus": 28, "waited_s": 100.0}
LONG_AGO = NOW_S - 1000.0


def on_each(plan: Plan) -> list[tuple[int, int]]:
    """Instances on CPU and GPU of each service, by name."""
    found: dict[str, list[int]] = {}
    for one in plan.actions:
        if isinstance(one, ScaleService):
            found.setdefault(one.service, [0, 0])[one.device] = one.instances
    return [(cpu, gpu) for _, (cpu, gpu) in sorted(found.items())]


def test_cores_are_given_once() -> None:
    two = joined(table(BOTH, 64.0), table(BOTH, 64.0))
    assert on_each(decided(world(two, nodes=NodeTable.uniform(1, 4, cpus=8)))) == [(2, 0), (0, 1)]
    assert on_each(decided(world(two, nodes=NodeTable.uniform(1, 4, cpus=16)))) == [(2, 0), (2, 0)]


def test_memory_bandwidth_is_given_once_and_where_most_is_free() -> None:
    service = replace(BOTH, cpu=replace(CPU, bandwidth_gb_s=10.0))
    two = joined(table(service, 10.0), table(service, 10.0))
    for free, expected in (([15.0], [(1, 0), (0, 1)]), ([20.0], [(1, 0), (1, 0)])):
        snapshot = world(replace(two, free_bandwidth_gb_s=np.array(free)), nodes=NodeTable.uniform(1, 4))
        assert on_each(decided(snapshot)) == expected
    bound = replace(two, services=(two.services[0], replace(two.services[1], cpu_partition="p1")))
    nodes = replace(NodeTable.uniform(2, 4, partitions=2), in_partition=np.array([[True, True], [True, False]]))
    snapshot = world(replace(bound, free_bandwidth_gb_s=np.array([10.0, 30.0])), nodes=nodes)
    assert on_each(decided(snapshot)) == [(1, 0), (1, 0)], "the first one counts on the second node"


def test_an_idle_gpu_is_given_once() -> None:
    two = joined(table(BOTH, 10.0), table(BOTH, 10.0))
    assert on_each(decided(world(two, [QUEUED], NodeTable.uniform(1, 1)))) == [(0, 1), (1, 0)]
    assert on_each(decided(world(two, [QUEUED], NodeTable.uniform(1, 2)))) == [(0, 1), (0, 1)]


def test_gpus_of_a_job_that_starts_do_not_idle() -> None:
    snapshot = world(table(BOTH, 10.0), [QUEUED, waiting(6, 4)], NodeTable.uniform(1, 4))
    starts = {"starts": np.array([6]), "places": {6: (NodeAllocation(0, 4, 4, 0),)}}
    plan = PlaceServices().apply(snapshot, replace(empty_plan(), **starts))
    assert scaled(plan) == {"CPU": 1, "GPU": 0}
    two_nodes = world(table(BOTH, 10.0), [QUEUED, waiting(6, 4)], NodeTable.uniform(2, 4))
    assert scaled(PlaceServices().apply(two_nodes, replace(empty_plan(), **starts))) == {"CPU": 0, "GPU": 1}


def full(*, task_ids: tuple[int, ...] = ()) -> ClusterSnapshot:
    """One node of 4 GPUs: an instance that could be requeued and was submitted last, and three jobs."""
    jobs: list[dict[str, Any]] = [running(at, (0, 1), submit_s=float(at)) for at in (1, 2, 3)]
    jobs += [running(1001, (0, 1), submit_s=9.0, user="ann"), waiting(9, 2), *(waiting(one, 1) for one in task_ids)]
    zeros = np.zeros(len(task_ids), dtype=np.int64)
    services = replace(
        table(ON_GPU, 600.0, instances(Device.GPU, 1)),
        task_id=np.array(task_ids, dtype=np.int64), task_service=zeros, task_device=zeros + Device.GPU,
    )  # fmt: skip
    return world(services, jobs, NodeTable.uniform(1, 4))


def test_instances_do_not_give_way_and_the_plan_says_who_does() -> None:
    plan = pipeline_of(make_policy("fifo")).decide(full())
    assert given_way(plan) == [3]
    assert plan.notes.of(3).verdict == JobVerdict.PREEMPT
    assert plan.notes.of(2).verdict == JobVerdict.RUN


def test_for_as_many_tasks_as_start() -> None:
    plan = decided(full(task_ids=(2001, 2002, 2003)))
    assert scaled(plan) == {"GPU": 2}
    assert [one.for_jobs for one in plan.preempts] == [(2001,)]


def test_two_services_have_two_jobs_give_way() -> None:
    two = joined(table(ON_GPU, 100.0), table(ON_GPU, 100.0))
    jobs = [running(at, (0, 1), submit_s=float(at)) for at in range(1, 5)]
    assert given_way(decided(world(two, [*jobs, waiting(9, 2)], NodeTable.uniform(1, 4)))) == [4, 3]


def test_gpus_where_most_does_not_allow_enough_cores() -> None:
    assert scaled(decided(world(table(replace(BOTH, most=2), 100.0)))) == {"CPU": 0, "GPU": 1}
    assert scaled(decided(world(table(BOTH, 100.0, waiting=(2, 20))))) == {"CPU": 0, "GPU": 1}


def test_gpus_are_not_preferred_where_instances_on_them_fail() -> None:
    failed = instances(Device.GPU, 1, FAILED)
    assert scaled(decided(world(table(BOTH, 10.0, failed), [QUEUED]))) == {"CPU": 1, "GPU": 1}


def test_fewer_only_with_the_hysteresis_in_hand() -> None:
    for load_qps, count in ((300.0, 2), (287.0, 1)):
        plan = decided(world(table(ON_GPU, load_qps, instances(Device.GPU, 2), low_since_s=LONG_AGO)))
        assert scaled(plan) == {"GPU": count}


def test_a_failed_instance_stays_until_least_are_ready() -> None:
    two = replace(ON_GPU, least=2)
    one_ready = [*instances(Device.GPU, 1, FAILED), *instances(Device.GPU, 1)]
    assert drained(decided(world(table(two, 10.0, one_ready)))) == []
    assert drained(decided(world(table(two, 10.0, [*one_ready, *instances(Device.GPU, 1)])))) == [1001]


def test_the_next_event_is_the_end_of_a_cool_down_or_of_a_pause() -> None:
    needed = decided(world(table(ON_GPU, 300.0, instances(Device.GPU, 1), low_since_s=NOW_S - 100.0)))
    assert needed.next_event_s == float("inf")
    fewer = decided(world(table(ON_GPU, 100.0, instances(Device.GPU, 2), low_since_s=NOW_S - 100.0)))
    assert fewer.next_event_s == NOW_S + 200.0
    paused = decided(world(table(ON_GPU, 100.0, instances(Device.GPU, 1, FAILED, NOW_S - 10.0))))
    assert paused.next_event_s == NOW_S + 20.0


def test_an_instance_whose_gpu_is_not_known_counts_with_the_slowest() -> None:
    types = (replace(GPU, gpu_type="a100", batch=40), replace(GPU, gpu_type="t4", batch=10))
    nodes = replace(NodeTable.uniform(2, 4), gpu_type=np.array([0, 1]), gpu_types=("a100", "t4"))
    services = table(replace(ON_GPU, gpu=types), 300.0, instances(Device.GPU, 1))
    assert scaled(decided(world(services, [running(5, (0, 1))], nodes))) == {"GPU": 2}
    assert scaled(decided(world(services, [running(1001, (0, 1))], nodes))) == {"GPU": 1}
