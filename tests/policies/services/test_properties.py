"""What holds whatever the load, the profile and the state of the instances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.instances import USABLE, ready_qps
from slurm_soda.policies.services.service import Device, DeviceProfile, InstanceState, Service
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.policies.snapshot_file.document import plan_bytes
from tests.policies.cases import NOW_S, waiting
from tests.policies.services.cases import FAILED, READY, decided, drained, scaled, table, world
from tests.policies.services.site import Site, site_of, state_of
from tests.sampling import examples

some = settings(max_examples=examples(120), deadline=None)
loads = st.one_of(st.just(0.0), st.floats(0.01, 5000.0))


@st.composite
def services(draw: st.DrawFn) -> Service:
    def profile(device: Device, batch: int) -> DeviceProfile:
        return DeviceProfile(
            device, batch, draw(st.sampled_from([10.0, 50.0, 70.0, 90.0])), cores=draw(st.integers(1, 8))
        )

    most = draw(st.integers(1, 12))
    cpu = draw(st.one_of(st.none(), st.just(profile(Device.CPU, draw(st.integers(0, 8))))))
    gpu = draw(st.one_of(st.just(()), st.just((profile(Device.GPU, draw(st.integers(0, 64))),))))
    return Service("ann", "chat", least=draw(st.integers(0, most)), most=most, cpu=cpu, gpu=gpu)


@st.composite
def snapshots(draw: st.DrawFn, *, known: bool = False) -> ClusterSnapshot:
    states = st.sampled_from([READY, READY, READY, *InstanceState])
    since = st.sampled_from([NOW_S - 5.0, NOW_S - 100.0, 0.0, math.nan])
    running = draw(st.lists(st.tuples(st.sampled_from(Device), states, since), max_size=14))
    low = draw(st.sampled_from([math.nan, NOW_S - 5.0, 0.0]))
    load = draw(loads if known else st.one_of(loads, st.just(math.nan)))
    tasks = draw(st.tuples(st.integers(0, 14), st.integers(0, 14)))
    forecast = draw(st.one_of(st.just(math.nan), loads))
    others: list[dict[str, Any]] = [{"job_id": 5, "gpus": 0, "waited_s": 100.0}] if draw(st.booleans()) else []
    others += [waiting(6, 4)] if draw(st.booleans()) else []
    nodes = NodeTable.uniform(draw(st.integers(1, 4)), draw(st.integers(0, 4)), cpus=draw(st.sampled_from([2, 8, 28])))
    return world(
        table(draw(services()), load, running, waiting=tasks, low_since_s=low, forecast_qps=forecast), others, nodes
    )


def left_of(snapshot: ClusterSnapshot, plan: Plan) -> list[Any]:
    gone = set(drained(plan))
    return [one for one in state_of(snapshot).instances if one.job_id not in gone]


@some
@given(snapshots())
def test_who_stays_answers_the_load_or_as_much_as_before(snapshot: ClusterSnapshot) -> None:
    state = state_of(snapshot)
    before, after = ready_qps(state.instances), ready_qps(left_of(snapshot, decided(snapshot)))
    usable = sum(one.state in USABLE for one in state.instances)
    if usable > state.service.most or math.isnan(state.load_qps):
        return
    assert after >= min(before, state.load_qps / state.settings.headroom) * (1 - 1e-6)


@some
@given(snapshots())
def test_never_fewer_than_least_nor_more_than_most(snapshot: ClusterSnapshot) -> None:
    state, plan = state_of(snapshot), decided(snapshot)
    service = state.service
    usable = sum(one.state in USABLE for one in state.instances)
    left = left_of(snapshot, plan)
    stays = sum(one.state in USABLE for one in left)
    assert stays >= min(usable, service.least)
    assert (
        sum(one.state is READY for one in left)
        >= min(sum(one.state is READY for one in state.instances), service.least)
        or usable > service.most
    )
    total = sum(scaled(plan).values())
    running = {device: sum(one.device is device for one in left) for device in Device}
    started = {device: scaled(plan).get(device.name, 0) - running[device] for device in Device}
    assert all(0 <= count <= state.waiting[device] for device, count in started.items())
    if sum(started.values()):
        old = sum(running[device] for device in Device if not started[device])  # in a hand-over they run in addition
        assert total - old <= service.most
    on_cores = not state.profiled or math.isnan(state.load_qps) or state.cpu_qps  # else the target does not hold there
    tasks = (state.waiting[0] if on_cores else 0) + state.waiting[1]
    if tasks >= service.least and not any(one.state is FAILED for one in left):
        assert total >= service.least


@some
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan_with_actions_of_their_own(snapshot: ClusterSnapshot) -> None:
    plan = decided(snapshot)
    assert plan_bytes(plan) == plan_bytes(decided(snapshot))
    ids = [action.id for action in plan.actions]
    assert len(ids) == len(set(ids))


@some
@given(snapshots(known=True), st.tuples(loads, loads))
def test_more_load_never_gets_less(snapshot: ClusterSnapshot, two: tuple[float, float]) -> None:
    found = []
    for load in sorted(two):
        services_ = replace(snapshot.services, load_qps=np.array([load]), forecast_qps=np.array([math.nan]))
        found.append(scaled(decided(replace(snapshot, services=services_))))
    low, high = found
    state = state_of(snapshot)
    if state.profiled:
        assert high.get("GPU", 0) >= low.get("GPU", 0)
        assert high.get("GPU", 0) > low.get("GPU", 0) or high.get("CPU", 0) >= low.get("CPU", 0) or not high["CPU"]


sites = st.builds(site_of, st.integers(1, 8), st.integers(8, 64), st.integers(0, 3), st.integers(3, 20))


@some
@given(sites, st.floats(0.0, 2000.0), st.lists(st.floats(0.97, 1.03), min_size=40, max_size=40), st.floats(0.0, 2000.0))
def test_a_steady_load_with_noise_changes_nothing_once_it_is_served(
    site: Site, load_qps: float, noise: list[float], earlier_qps: float
) -> None:
    for _ in range(6):
        site.cycle(earlier_qps)
    for part in noise[:26]:  # all that the noise may ask for has been asked, and the cool-down is over
        site.cycle(load_qps * part)
    site.cycle(load_qps * 1.03)
    for _ in range(14):
        site.cycle(load_qps)
    site.changes = 0
    for part in noise:
        site.cycle(load_qps * part)
    assert site.changes == 0


@some
@given(sites, st.lists(st.tuples(st.floats(0.0, 2000.0), st.integers(1, 20)), min_size=2, max_size=6))
def test_capacity_never_falls_below_what_is_needed_whatever_the_load_does(
    site: Site, course: list[tuple[float, int]]
) -> None:
    most = site.services.services[0].most
    for load_qps, cycles in course:
        for _ in range(cycles):
            before = site.ready_qps
            site.cycle(load_qps)
            assert site.ready_qps >= min(before, load_qps / 0.8) * (1 - 1e-6)
        state = state_of(world(site.services, (), site.nodes, site.now_s))
        assert (
            min(state.usable(Device.CPU), state.usable(Device.GPU)) == 0
            or sum((state.usable(Device.CPU), state.usable(Device.GPU))) <= 2 * most
        )


@some
@given(sites, st.floats(0.0, 2000.0))
def test_in_the_end_the_load_is_answered_on_one_device_within_the_bounds(site: Site, load_qps: float) -> None:
    for _ in range(20):
        site.cycle(load_qps)
    state = state_of(world(site.services, (), site.nodes, site.now_s))
    counts = [state.usable(device) for device in Device]
    assert min(counts) == 0
    assert state.service.least <= sum(counts) <= state.service.most
    assert site.ready_qps >= min(load_qps / 0.8, state.service.most * state.gpu_qps) * (1 - 1e-6)
    assert (load_qps <= 0.8 * state.gpu_qps) or not counts[0]
