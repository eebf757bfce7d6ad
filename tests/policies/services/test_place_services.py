"""How many instances run where, case by case (docs/policies/services.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.engine.vain_preemptions import GpuRequest, bar_preemptions
from slurm_soda.policies.services.place_services import renew_low_since
from slurm_soda.policies.services.service import MOST_CORE_GB_S, Device, DeviceProfile, Service
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S, running, waiting
from tests.policies.services.cases import (
    BOTH,
    CPU,
    DRAINING,
    FAILED,
    GPU,
    READY,
    STARTING,
    decided,
    drained,
    first,
    given_way,
    instances,
    scaled,
    table,
    world,
)
from tests.policies.services.site import site_of

LONG_AGO = NOW_S - 1000.0
ON_GPU = Service("ann", "chat", least=1, most=4, gpu=(GPU,))


@pytest.mark.parametrize(
    ("load_qps", "counts"),
    [
        (0.0, {"CPU": 1, "GPU": 0}),
        (32.0, {"CPU": 1, "GPU": 0}),
        (33.0, {"CPU": 2, "GPU": 0}),
        (320.0, {"CPU": 10, "GPU": 0}),
        (321.0, {"CPU": 0, "GPU": 2}),
        (1e9, {"CPU": 0, "GPU": 20}),
    ],
)
def test_cores_below_the_switching_point_and_gpus_above(load_qps: float, counts: dict[str, int]) -> None:
    assert scaled(decided(world(table(BOTH, load_qps)))) == counts


def test_the_larger_of_seen_and_expected_counts() -> None:
    assert scaled(decided(world(table(BOTH, 10.0, forecast_qps=100.0)))) == {"CPU": 4, "GPU": 0}
    assert scaled(decided(world(table(BOTH, 100.0, forecast_qps=10.0)))) == {"CPU": 4, "GPU": 0}


def test_a_service_without_a_profile_on_cores_stays_on_gpus() -> None:
    assert scaled(decided(world(table(replace(BOTH, cpu=None), 1.0, waiting=(4, 4))))) == {"CPU": 0, "GPU": 1}
    slow = replace(CPU, batch_ms=90.0)  # 50 ms of window and twice 90: above 200 ms
    assert scaled(decided(world(table(replace(BOTH, cpu=slow), 1.0)))) == {"CPU": 0, "GPU": 1}


def test_without_room_on_cores_a_gpu_serves() -> None:
    nodes = NodeTable.uniform(1, 4, cpus=7)
    assert scaled(decided(world(table(BOTH, 33.0), nodes=nodes))) == {"CPU": 0, "GPU": 1}
    assert scaled(decided(world(table(BOTH, 32.0), nodes=nodes))) == {"CPU": 1, "GPU": 0}


def test_those_that_run_on_cores_use_their_reserve_before_a_gpu_serves() -> None:
    """Two answer 80 queries a second, of which 64 are counted on: between that and 72 they wait for free cores."""
    nodes, two = NodeTable.uniform(1, 4, cpus=11), instances(Device.CPU, 2)
    jobs = [running(at, (0, 0), cpus=4, alloc=[(0, 0, 4)]) for at in (1001, 1002)]
    for load_qps, counts in ((64.0, (2, 0)), (72.0, (3, 0)), (73.0, (2, 1))):
        plan = decided(world(table(BOTH, load_qps, two), jobs, nodes))
        assert scaled(plan) == {"CPU": counts[0], "GPU": counts[1]}, load_qps
    plan = decided(world(table(BOTH, 72.0, two), jobs, NodeTable.uniform(1, 4, cpus=12)))
    assert scaled(plan) == {"CPU": 3, "GPU": 0}, "as soon as there are some"


def test_memory_bandwidth_counts_where_it_is_known() -> None:
    service = replace(BOTH, cpu=replace(CPU, bandwidth_gb_s=10.0))
    for free, cores in (([5.0, 5.0, 5.0, 5.0], 0), ([5.0, 25.0, 5.0, 5.0], 2), ([np.nan] * 4, 2)):
        services = replace(table(service, 64.0), free_bandwidth_gb_s=np.array(free))
        assert scaled(decided(world(services)))["CPU"] == cores


def test_an_instance_counts_with_no_more_bandwidth_than_its_cores_can_draw() -> None:
    """A profile is its owner's: one that claims a whole node's would push all others to GPUs."""
    greedy = replace(CPU, bandwidth_gb_s=1e6)
    assert greedy.bandwidth_with(4) == 4 * MOST_CORE_GB_S
    assert replace(CPU, bandwidth_gb_s=30.0).bandwidth_with(4) == 30.0
    assert CPU.bandwidth_with(4) == 0.0
    services = replace(table(replace(BOTH, cpu=greedy), 64.0), free_bandwidth_gb_s=np.array([330.0, 0.0, 0.0, 0.0]))
    assert scaled(decided(world(services))) == {"CPU": 2, "GPU": 0}


def test_to_cores_only_after_the_cool_down_and_warm() -> None:
    on_gpu = instances(Device.GPU, 1)
    early = decided(world(table(BOTH, 60.0, on_gpu, low_since_s=NOW_S - 100.0)))
    assert scaled(early) == {"CPU": 0, "GPU": 1}
    assert early.next_event_s == NOW_S + 200.0
    begun = decided(world(table(BOTH, 60.0, on_gpu, low_since_s=LONG_AGO)))
    assert (scaled(begun), drained(begun)) == ({"CPU": 2, "GPU": 1}, [])
    half = [*on_gpu, *instances(Device.CPU, 1), *instances(Device.CPU, 1, STARTING)]
    assert drained(decided(world(table(BOTH, 60.0, half, low_since_s=LONG_AGO)))) == []
    ready = [*on_gpu, *instances(Device.CPU, 2)]
    whole = decided(world(table(BOTH, 60.0, ready, low_since_s=LONG_AGO)))
    assert (scaled(whole), drained(whole)) == ({"CPU": 2, "GPU": 0}, [1001])


def test_to_a_gpu_at_once_and_warm() -> None:
    on_cores = instances(Device.CPU, 10)
    begun = decided(world(table(BOTH, 330.0, on_cores)))
    assert (scaled(begun), drained(begun)) == ({"CPU": 10, "GPU": 2}, [])
    half = [*on_cores, *instances(Device.GPU, 1), *instances(Device.GPU, 1, STARTING)]
    assert drained(decided(world(table(BOTH, 330.0, half)))) == []
    whole = decided(world(table(BOTH, 330.0, [*on_cores, *instances(Device.GPU, 2)])))
    assert (scaled(whole), drained(whole)) == ({"CPU": 0, "GPU": 2}, list(range(1010, 1000, -1)))


def test_the_way_back_has_a_margin() -> None:
    on_gpu = instances(Device.GPU, 1)
    for load_qps, gpus in ((300.0, 1), (289.0, 1), (287.0, 0)):
        ready = [*on_gpu, *instances(Device.CPU, 10)]
        plan = decided(world(table(BOTH, load_qps, ready, low_since_s=LONG_AGO)))
        assert scaled(plan)["GPU"] == gpus


def test_fewer_instances_only_after_the_cool_down() -> None:
    three = instances(Device.GPU, 3)
    for low_since_s, count in ((float("nan"), 3), (NOW_S - 299.0, 3), (NOW_S - 300.0, 1)):
        plan = decided(world(table(ON_GPU, 200.0, three, low_since_s=low_since_s)))
        assert scaled(plan) == {"GPU": count}
        assert len(drained(plan)) == 3 - count


def test_since_when_fewer_would_do() -> None:
    services = table(ON_GPU, 200.0, instances(Device.GPU, 2))
    snapshot = world(services)
    assert renew_low_since(snapshot, decided(snapshot)).tolist() == [NOW_S]
    later = world(replace(services, low_since_s=np.array([NOW_S])), now_s=NOW_S + 5.0)
    assert renew_low_since(later, decided(later)).tolist() == [NOW_S]
    higher = world(replace(services, low_since_s=np.array([NOW_S]), load_qps=np.array([330.0])))
    assert np.isnan(renew_low_since(higher, decided(higher))).all()


def test_a_silent_router_changes_nothing_but_what_is_below_least() -> None:
    unknown = float("nan")
    running_now = [*instances(Device.GPU, 3), *instances(Device.CPU, 2)]
    plan = decided(world(table(BOTH, unknown, running_now, low_since_s=LONG_AGO)))
    assert (scaled(plan), drained(plan)) == ({"CPU": 2, "GPU": 3}, [])
    assert scaled(decided(world(table(BOTH, unknown)))) == {"CPU": 1, "GPU": 0}
    assert scaled(decided(world(table(replace(BOTH, least=3), unknown, instances(Device.GPU, 1))))) == {
        "CPU": 0,
        "GPU": 3,
    }


def test_nothing_profiled_as_the_arrays_ask() -> None:
    service = Service("ann", "chat", least=1, most=3)
    assert scaled(decided(world(table(service, 5.0, waiting=(4, 2))))) == {"CPU": 1, "GPU": 2}
    assert scaled(decided(world(table(service, 5.0, waiting=(2, 0))))) == {"CPU": 2}


def test_a_failed_instance_is_replaced_later_and_later() -> None:
    for failed, since_s, count in ((1, 10.0, 1), (1, 31.0, 2), (2, 31.0, 2), (2, 61.0, 3), (3, 61.0, 3), (3, 121.0, 4)):
        broken = instances(Device.GPU, failed, FAILED, NOW_S - since_s)
        assert scaled(decided(world(table(ON_GPU, 10.0, broken)))) == {"GPU": count}
    full = [*instances(Device.GPU, 4, FAILED, NOW_S - 500.0)]
    assert (scaled(decided(world(table(ON_GPU, 10.0, full)))), drained(decided(world(table(ON_GPU, 10.0, full))))) == (
        {"GPU": 4}, [],
    )  # fmt: skip
    longer = decided(world(table(ON_GPU, 10.0, instances(Device.GPU, 4, FAILED, NOW_S - 700.0))))
    assert (scaled(longer), drained(longer)) == ({"GPU": 4}, [1001])


def test_a_failed_instance_leaves_once_others_answer() -> None:
    plan = decided(world(table(ON_GPU, 10.0, [*instances(Device.GPU, 1, FAILED), *instances(Device.GPU, 1)])))
    assert (scaled(plan), drained(plan)) == ({"GPU": 1}, [1001])


def test_cores_that_fail_give_way_to_a_gpu() -> None:
    plan = decided(world(table(BOTH, 10.0, instances(Device.CPU, 1, FAILED, NOW_S))))
    assert scaled(plan) == {"CPU": 1, "GPU": 1}


def test_one_that_drains_drains_on_and_is_not_counted() -> None:
    plan = decided(world(table(ON_GPU, 10.0, [*instances(Device.GPU, 1, DRAINING), *instances(Device.GPU, 1)])))
    assert (scaled(plan), drained(plan)) == ({"GPU": 1}, [1001])


def test_gpus_that_idle_while_cpu_jobs_wait() -> None:
    jobs = [{"job_id": 5, "gpus": 0, "cpus": 28, "waited_s": 59.0}]
    assert scaled(decided(world(table(BOTH, 10.0), jobs))) == {"CPU": 1, "GPU": 0}, "it may start any moment"
    jobs[0]["waited_s"] = 60.0
    preferred = decided(world(table(BOTH, 10.0), jobs))
    assert (scaled(preferred), first(preferred)) == ({"CPU": 0, "GPU": 1}, {"CPU": False, "GPU": False})
    jobs.append(waiting(6, 4))
    assert scaled(decided(world(table(BOTH, 10.0), jobs))) == {"CPU": 1, "GPU": 0}


def busy(*, preemptible: bool = True) -> list[dict[str, object]]:
    """All 16 GPUs are held; job 3 was submitted last of those that can be requeued, job 4 cannot."""
    held = [running(node + 1, (node, 4), submit_s=float(node), preemptible=preemptible) for node in range(4)]
    return [*held[:3], {**held[3], "preemptible": False}, waiting(9, 2)]


def test_the_job_submitted_last_gives_way() -> None:
    plan = decided(world(table(ON_GPU, 100.0), busy()))
    assert (scaled(plan), first(plan), given_way(plan)) == ({"GPU": 1}, {"GPU": True}, [3])
    assert "load 100 q/s" in plan.preempts[0].reason


def test_no_one_gives_way_where_it_is_not_due() -> None:
    assert given_way(decided(world(table(ON_GPU, 100.0), busy()[:4]))) == [], "nobody waits for GPUs"
    assert given_way(decided(world(table(ON_GPU, 100.0), busy(preemptible=False)))) == []
    assert given_way(decided(world(table(ON_GPU, 100.0), busy(), NodeTable.uniform(5, 4)))) == [], "a GPU is free"
    assert given_way(decided(world(table(ON_GPU, 0.0), busy()))) == [], "nobody asks it anything"
    expected = decided(world(table(ON_GPU, 1.0, instances(Device.GPU, 1), forecast_qps=500.0), busy()))
    assert (scaled(expected), first(expected), given_way(expected)) == ({"GPU": 2}, {"GPU": True}, []), "only expected"
    leaving = [{**job, "state": JobState.COMPLETING} if job["job_id"] == 2 else job for job in busy()]
    assert given_way(decided(world(table(ON_GPU, 100.0), leaving))) == [], "a GPU becomes free"


def test_a_task_on_cores_goes_first_where_it_gives_a_gpu_back_to_those_that_wait() -> None:
    low = {"low_since_s": -1e4}
    on_gpu = table(BOTH, 10.0, instances(Device.GPU, 1), **low)
    plan = decided(world(on_gpu, busy()))
    assert (scaled(plan), first(plan), given_way(plan)) == ({"CPU": 1, "GPU": 1}, {"CPU": True, "GPU": False}, [])
    nobody_waits = decided(world(on_gpu, busy()[:4]))
    assert (scaled(nobody_waits), first(nobody_waits)) == ({"CPU": 1, "GPU": 1}, {"CPU": False, "GPU": False})
    not_named = table(BOTH, 10.0, instances(Device.GPU, 1), settings=ServiceSettings(), **low)
    assert first(decided(world(not_named, busy()))) == {"CPU": False, "GPU": False}


def test_without_the_sites_word_no_service_goes_first_and_no_one_gives_way() -> None:
    for on in ("p0", "p0,p1", ""):
        service = replace(ON_GPU, gpu_partition=on)
        plan = decided(world(table(service, 1e6, settings=ServiceSettings()), busy()))
        assert (first(plan), given_way(plan)) == ({"GPU": False}, []), on


def test_services_go_first_only_if_all_their_partitions_are_named() -> None:
    for on, named, goes_first in (
        ("p0", ("p0",), True), ("p0", ("p1", "p0"), True), ("p0", ("p1",), False),
        ("p0,p1", ("p0",), False), ("p0,p1", ("p0", "p1"), True), ("", ("p0",), False),
    ):  # fmt: skip
        services = table(replace(ON_GPU, gpu_partition=on), 100.0, settings=ServiceSettings(first_in=named))
        plan = decided(world(services, busy()))
        assert (first(plan), given_way(plan)) == ({"GPU": goes_first}, [3] if goes_first else []), (on, named)


def test_jobs_of_other_partitions_do_not_give_way() -> None:
    nodes = NodeTable.uniform(4, 4, partitions=2)
    nodes = replace(nodes, in_partition=np.ones((4, 2), dtype=np.bool_))
    jobs = [{**job, "partition": "p1"} if job["job_id"] == 3 else job for job in busy()]
    services = table(replace(ON_GPU, gpu_partition="p0"), 100.0, settings=ServiceSettings(first_in=("p0",)))
    assert given_way(decided(world(services, jobs, nodes))) == [2], (
        "3 was submitted later, in a partition that is not named"
    )


def test_a_job_gives_way_on_nodes_that_will_do() -> None:
    nodes = replace(NodeTable.uniform(4, 4), gpu_type=np.array([0, 1, 1, 1]), gpu_types=("a100", "t4"))
    task = waiting(2001, 1, gpu_type="a100", user="ann")
    services = replace(
        table(ON_GPU, 100.0), task_id=np.array([2001]), task_service=np.array([0]), task_device=np.array([1])
    )
    plan = decided(world(services, [*busy(), task], nodes))
    assert given_way(plan) == [1]
    assert plan.preempts[0].for_jobs == (2001,)
    assert given_way(decided(world(services, [*busy()[:4], task], nodes))) == [], "its own tasks are no queue"


def test_no_one_gives_way_for_tasks_that_slurm_does_not_start_anyway() -> None:
    """Its owner has come up against a limit, say: who gave way would do so again and again, for nobody."""
    services = replace(
        table(ON_GPU, 100.0),
        task_id=np.array([2001, 2002]),
        task_service=np.zeros(2, dtype=int),
        task_device=np.ones(2, dtype=int),
    )
    for states, gives in (
        ((JobState.BLOCKED, JobState.BLOCKED), []),
        ((JobState.BLOCKED, JobState.PENDING), [3]),
    ):
        tasks = [{**waiting(2001 + at, 1, user="ann"), "state": state} for at, state in enumerate(states)]
        plan = decided(world(services, [*busy(), *tasks]))
        assert given_way(plan) == gives, states
        assert [one.for_jobs for one in plan.preempts] == [(2002,) for _ in gives]


def test_no_one_gives_way_for_tasks_like_those_for_which_others_did_in_vain() -> None:
    """Such a pause bars the waiting jobs of a user that ask for the same GPUs (``bar_preemptions``)."""
    services = replace(
        table(ON_GPU, 100.0),
        task_id=np.array([2001, 2002]),
        task_service=np.zeros(2, dtype=int),
        task_device=np.ones(2, dtype=int),
    )
    tasks = [waiting(2001, 1, user="ann", gpu_type="t4"), waiting(2002, 1, user="ann", gpu_type="t4")]
    snapshot = world(
        services,
        [*busy(), *tasks],
        replace(NodeTable.uniform(4, 4), gpu_type=np.zeros(4, dtype=int), gpu_types=("t4",)),
    )
    for paused, gives in (
        (("ann", 1, 0, "t4"), []),
        (("ann", 2, 0, "t4"), [3]),
        (("bob", 1, 0, "t4"), [3]),
    ):
        barred = replace(snapshot, jobs=bar_preemptions(snapshot.jobs, [GpuRequest(*paused)]))
        assert given_way(decided(barred)) == gives, paused


def test_as_many_give_way_as_one_instance_needs() -> None:
    small = [running(at, (0, 1), submit_s=float(at)) for at in range(1, 5)]
    wide = running(5, (0, 4), submit_s=0.5)
    two_gpus = replace(
        table(ON_GPU, 100.0), task_id=np.array([2001]), task_service=np.array([0]), task_device=np.array([1])
    )
    task = waiting(2001, 2)
    plan = decided(world(two_gpus, [*small, waiting(9, 2), task], NodeTable.uniform(1, 4)))
    assert given_way(plan) == [4, 3]
    assert given_way(decided(world(two_gpus, [wide, waiting(9, 2), task], NodeTable.uniform(1, 4)))) == [5]


def test_one_that_starts_for_ever_counts_as_failed() -> None:
    for since_s, count in ((1799.0, 1), (1831.0, 2)):
        plan = decided(world(table(ON_GPU, 10.0, instances(Device.GPU, 1, STARTING, NOW_S - since_s))))
        assert scaled(plan) == {"GPU": count}


def test_tasks_of_one_device_that_are_too_few_run_on_the_other() -> None:
    plan = decided(world(table(BOTH, 500.0, waiting=(20, 1))))
    assert scaled(plan) == {"CPU": 6, "GPU": 1}


def test_without_services_the_plan_is_left_alone() -> None:
    snapshot = world(table(BOTH, 1.0))
    bare = replace(snapshot, services=type(snapshot.services)())
    assert decided(bare).actions == ()


def test_reasons_say_the_figures() -> None:
    plan = decided(world(table(BOTH, 33.0, forecast_qps=20.0)))
    (reason,) = {one.reason for one in plan.actions}
    assert reason == (
        "load 33 q/s (seen 33, expected 20); an instance answers 40 q/s on cores or 400 q/s on a GPU, 80% of it counted; "
        "needed: 2 on cores (1 to 20 allowed): within the switching point of 320 q/s"
    )


def test_profiles_are_as_the_cases_say() -> None:
    assert (CPU.capacity_qps, GPU.capacity_qps) == (40.0, 400.0)
    assert isinstance(CPU, DeviceProfile)
    assert READY < DRAINING


def test_a_queue_that_comes_and_goes_moves_a_service_once() -> None:
    site = site_of(cpu_batch=2, gpu_batch=20, least=1, most=10)
    jobs = [{"job_id": 5, "gpus": 0, "cpus": 1, "waited_s": 100.0}]
    for cycle in range(12):
        site.cycle(10.0, jobs if cycle % 2 else ())
    assert site.changes == 3, "an instance on cores, one on a GPU in its place, and nothing more"
    assert site.devices() == [0, 1]
    for _ in range(15):
        site.cycle(10.0)
    assert site.devices() == [1, 0], "back on cores once nobody has waited for the cool-down"
