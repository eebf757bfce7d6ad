"""Plans ask for no more than the mechanism can do, whatever it is; and what it refuses, by table."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.engine.plan_check import SharingPlanError, check_sharing_plan
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.mechanism.guest_check import find_guest_fault
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism, find_mechanism
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.seats import broken_rules
from tests.sampling import examples
from tests.simulator.sharing.players import plan_of

ALIKE = Table(else_xi=1.1)
NODES = NodeTable.uniform(2, 4, cpus=16)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "srsf-share": {"min_run_s": 60.0}, "ojpap": {"min_run_s": 60.0, "interference": 0.1},
    "ojpp": {"interference": 0.6},
}  # fmt: skip
on_some_worlds = settings(max_examples=examples(400), deadline=None)


def draw_mechanism(rng: random.Random) -> Mechanism:
    """Any, the named ones among them."""
    if rng.random() < 0.3:
        return rng.choice((IDEAL, SLURM, SLURM))
    rules = ("starts_together", "different_users", "guests_need_requeue", "guests_host", "several_hosts", "part_of_host",
             "with_own_gpus", "equal_indices", "revokes", "preempts_hosts")  # fmt: skip
    return Mechanism(
        name="drawn", jobs_per_gpu=rng.choice((1, 2, 2, 3, np.inf)), start_s=rng.choice((0.0, 1.0, 50.0)),
        readmit_s=rng.choice((0.0, 5.0)), **{rule: rng.random() < 0.5 for rule in rules},
    )  # fmt: skip


def draw_scene(rng: random.Random) -> SharingSnapshot:
    """Hosts, some of them with guests on all or on some of their GPUs, and jobs that wait; slowdowns are mostly mild."""
    nodes = NodeTable.uniform(rng.randint(1, 3), 4, cpus=rng.choice((8, 16)))
    free = list(range(len(nodes) * 4))
    rows: list[dict[str, Any]] = []

    def add(**more: Any) -> None:
        rows.append({
            "job_id": len(rows) + 1, "model": rng.choice("aab"), "shares": rng.random() < 0.95,
            "remaining_s": rng.choice((10.0, 100.0, 1000.0, rng.uniform(10.0, 1000.0), float("nan"))),
            "user": rng.choice("iij"), "preemptible": rng.random() < 0.8, **more,
        })  # fmt: skip

    for _ in range(rng.randint(0, 6)):
        taken, free = free[: (size := rng.choice((1, 1, 2, 4)))], free[size:]
        if taken:
            add(on=tuple(taken), start_s=NOW_S - rng.choice((5.0, 500.0)))
    used = [device for row in rows for device in row["on"]]
    for _ in range(rng.randint(0, 3) if used else 0):
        on = rows[rng.randrange(len(rows))]["on"] if rng.random() < 0.7 else (rng.choice(used), *free[:1])
        if set(on) <= {*used, *free}:
            used, free = [one for one in used if one not in on], [one for one in free if one not in on]
            add(on=tuple(sorted(on)), start_s=NOW_S - rng.choice((5.0, 500.0)))
        if not used:
            break
    for _ in range(rng.randint(1, 10)):
        gpus = rng.choice((1, 1, 1, 2, 2, 4, 4, 6))
        add(gpus=gpus, cpus=gpus, nodes=rng.choice((1, 1, 2)) if gpus > 1 else 1, submit_s=rng.random())
    xi = {pair: (rng.choice((1.0, 1.05, 1.1, 1.5)), rng.choice((1.0, 1.05, 1.15))) for pair in ("aa", "ab", "bb")}
    known = Sure({(pair[0], pair[1]): slowed for pair, slowed in xi.items()})
    return seat(scene(rows, nodes, known), rng)


class Sure(Table):
    """Everything fits."""

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        return True


def seat(snapshot: SharingSnapshot, rng: random.Random) -> SharingSnapshot:
    """On each GPU the job of the lowest id is the host."""
    devices, rows = snapshot.devices, len(snapshot.jobs)
    owner = np.repeat(np.arange(rows), np.diff(devices.held_start))
    guest = [owner[at] != owner[devices.held == device].min() for at, device in enumerate(devices.held)]
    sharing = replace(
        snapshot.sharing,
        requeueable=np.array([rng.random() < 0.8 for _ in range(rows)], dtype=np.bool_),
        saves_every_s=np.array([rng.choice((np.inf, 5.0, 60.0)) for _ in range(rows)]),
    )
    mechanism, devices = draw_mechanism(rng), replace(devices, guest=np.array(guest, dtype=np.bool_))
    return replace(snapshot, devices=devices, sharing=sharing, mechanism=mechanism)


@pytest.mark.parametrize("name", policy_names())
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_no_plan_asks_for_more_than_the_mechanism_can_do(name: str, seed: int) -> None:
    snapshot, policy = draw_scene(random.Random(seed)), make_policy(name, SETTINGS.get(name, {}))
    plan = policy.decide(snapshot)
    assert find_guest_fault(snapshot, plan) is None
    assert not broken_rules(snapshot, plan)
    if isinstance(plan, SharingPlan):
        assert isinstance(policy, SharingPolicy)
        starts = {job_id: plan.places[job_id] for job_id in plan.places if job_id in set(plan.starts.tolist())}
        check_sharing_plan(snapshot, plan, starts, policy.jobs_per_gpu)
        assert all(decision.reason for decision in plan.decisions.values())


RULES: Mapping[str, Any] = {
    "jobs_per_gpu": 2, "starts_together": False, "different_users": False, "guests_need_requeue": True,
    "guests_host": False, "several_hosts": False, "part_of_host": False, "with_own_gpus": False, "equal_indices": True,
    "revokes": True, "preempts_hosts": False,
}  # fmt: skip
"""Each rule of a mechanism as it limits, alone."""


def draw_plan(snapshot: SharingSnapshot, rng: random.Random) -> SharingPlan:
    """Jobs start, leave and move as if there were no rules: on GPUs of others mostly, some of them in the same decision."""
    jobs, first = snapshot.jobs, snapshot.devices.first.tolist()
    ids = jobs.job_id.tolist()
    running_ids = jobs.job_id[jobs.state == JobState.RUNNING].tolist()
    preempts = rng.sample(running_ids, min(len(running_ids), rng.choice((0, 0, 1, 1, 2))))
    movers = [one for one in ids if one not in running_ids or (one in preempts and rng.random() < 0.4)]
    devices: dict[int, Sequence[int]] = {}
    for job_id in rng.sample(movers, min(len(movers), rng.choice((1, 1, 2, 3)))):
        count = int(jobs.gpus[jobs.row(job_id)])
        held = sorted({*snapshot.devices.held.tolist(), *(one for mine in devices.values() for one in mine)})
        if len(first) > 2 and rng.random() < 0.4:  # the same GPUs of each node, as a gang would have them
            indices = rng.sample(range(4), min(count, 4))
            mine = [start + index for start in first[:2] for index in indices]
        else:
            pool = held if held and rng.random() < 0.7 else list(range(first[-1]))
            mine = rng.sample(pool, min(count, len(pool)))
        if rng.random() < 0.3:  # all that a running job has
            row = rng.randrange(len(ids))
            mine = snapshot.devices.of(row).tolist() or mine
        devices[job_id] = mine
    return plan_of(snapshot, devices, preempts)


@pytest.mark.parametrize("rule", [*RULES, "apart", "all"])
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_a_plan_is_refused_where_it_breaks_a_rule_and_nowhere_else(rule: str, seed: int) -> None:
    rng = random.Random(seed)
    snapshot = draw_scene(rng)
    if rule in RULES:
        snapshot = replace(snapshot, mechanism=replace(IDEAL, **{rule: RULES[rule]}))
    elif rule == "apart":
        ids = snapshot.jobs.job_id.tolist()
        pairs = [(one, other) for one in ids for other in ids if one < other and rng.random() < 0.3]
        snapshot = replace(snapshot, mechanism=IDEAL, sharing=replace(snapshot.sharing, apart=tuple(pairs)))
    plan = draw_plan(snapshot, rng)
    assert bool(find_guest_fault(snapshot, plan)) == bool(broken_rules(snapshot, plan))


def running(job_id: int, *on: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "on": on, **more}


def waiting(job_id: int, gpus: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, **more}


def on_slurm(*jobs: dict[str, Any], mechanism: Mechanism = SLURM) -> SharingSnapshot:
    guests = {row["job_id"] for row in jobs if row.pop("guest", False)}
    bound = {row["job_id"] for row in jobs if row.pop("interactive", False)}
    snapshot = scene(jobs, NODES, ALIKE)
    ids = snapshot.jobs.job_id
    owner = np.repeat(ids, np.diff(snapshot.devices.held_start))
    return replace(
        snapshot, mechanism=mechanism, devices=replace(snapshot.devices, guest=np.isin(owner, list(guests))),
        sharing=replace(snapshot.sharing, requeueable=~np.isin(ids, list(bound))),
    )  # fmt: skip


HOSTS = (running(1, 0, 1), running(2, 2), running(3, 4, 5), running(4, 6))


@pytest.mark.parametrize(("jobs", "devices", "mechanism", "problem"), [
    ([waiting(9, 2)], {9: (0, 1)}, SLURM, ""),
    ([waiting(9, 1)], {9: (0,)}, SLURM, ""),
    ([waiting(9, 2)], {9: (1, 2)}, SLURM, ""),
    ([waiting(9, 2)], {9: (2, 3)}, SLURM, ""),
    ([waiting(9, 2)], {9: (0, 4)}, SLURM, ""),
    ([waiting(9, 2)], {9: (0, 5)}, SLURM, "other indices on one node than on another"),
    ([waiting(9, 2)], {9: (2, 7)}, SLURM, "other indices on one node than on another"),
    ([waiting(9, 1)], {9: (0,)}, Mechanism(name="m", part_of_host=False), "a part of its host's GPUs"),
    ([waiting(9, 2)], {9: (1, 2)}, Mechanism(name="m", several_hosts=False), "several hosts"),
    ([waiting(9, 2)], {9: (2, 3)}, Mechanism(name="m", with_own_gpus=False), "GPUs of its own beside shared ones"),
    ([waiting(9, 1, user="else")], {9: (2,)}, SLURM, "a job of another user is there"),
    ([waiting(9, 1, user="else")], {9: (3,)}, SLURM, ""),
    ([waiting(9, 1, interactive=True)], {9: (2,)}, SLURM, "it cannot be requeued"),
    ([waiting(9, 1), waiting(10, 1)], {9: (3,), 10: (3,)}, SLURM, "in the same decision"),
    ([waiting(9, 1), waiting(10, 1)], {9: (3,), 10: (3,)}, replace(SLURM, starts_together=True), ""),
    ([waiting(9, 1), waiting(10, 1)], {9: (2,), 10: (2,)}, replace(SLURM, starts_together=True), "all 2 places are taken"),
    ([running(8, 2, guest=True), waiting(9, 1)], {9: (2,)}, SLURM, "all 2 places are taken"),
    ([running(8, 2, 3, guest=True), waiting(9, 1)], {9: (3,)}, SLURM, "a guest itself"),
    ([running(8, 2, 3, guest=True), waiting(9, 1)], {9: (3,)}, replace(SLURM, guests_host=True), ""),
])  # fmt: skip
def test_what_a_mechanism_refuses(
    jobs: list[dict[str, Any]], devices: dict[int, tuple[int, ...]], mechanism: Mechanism, problem: str
) -> None:
    snapshot = on_slurm(*(dict(row) for row in (*HOSTS, *jobs)), mechanism=mechanism)
    plan = plan_of(snapshot, devices)
    if problem:
        with pytest.raises(SharingPlanError, match=problem):
            check_sharing_plan(snapshot, plan, plan.places, 3)
    else:
        assert check_sharing_plan(snapshot, plan, plan.places, 3).keys() == devices.keys()


def test_a_seat_that_is_left_in_the_decision_is_taken_by_the_next_one() -> None:
    snapshot = on_slurm(running(1, 0), running(8, 0, guest=True), waiting(9, 1))
    plan = replace(plan_of(snapshot, {9: (0,)}), actions=(PreemptJob(8, (9,), "leaves"),))
    fault = find_guest_fault(snapshot, plan)
    assert fault is not None
    assert "in the same decision" in fault.problem
    assert find_guest_fault(replace(snapshot, mechanism=replace(SLURM, starts_together=True)), plan) is None


def test_a_host_leaves_with_its_guests_or_not_at_all() -> None:
    snapshot = on_slurm(running(1, 0), running(8, 0, guest=True))
    alone, both = (plan_of(snapshot, {}, preempted) for preempted in ([1], [1, 8]))
    fault = find_guest_fault(snapshot, alone)
    assert fault is not None
    assert (fault.job_id, fault.preempts) == (1, True)
    assert "job 8, would lose its seat" in fault.problem
    with pytest.raises(SharingPlanError, match="preempts job 1, which cannot be: its guest"):
        check_sharing_plan(snapshot, alone, {}, 2)
    assert find_guest_fault(snapshot, both) is None
    assert find_guest_fault(snapshot, plan_of(snapshot, {}, [8])) is None
    kept = replace(snapshot, mechanism=replace(SLURM, preempts_hosts=False))
    assert find_guest_fault(kept, both) is not None
    assert find_guest_fault(replace(snapshot, mechanism=IDEAL), alone) is None


def test_a_guest_that_moves_to_a_seat_starts_in_a_later_decision() -> None:
    snapshot = on_slurm(running(1, 0), running(2, 1), running(8, 0, guest=True))
    fault = find_guest_fault(snapshot, plan_of(snapshot, {8: (1,)}, [8]))
    assert fault is not None
    assert "moves in the same decision" in fault.problem
    assert find_guest_fault(snapshot, plan_of(snapshot, {8: (2,)}, [8])) is None, "on GPUs of its own"


def test_a_mechanism_is_known_by_its_name_and_has_sensible_numbers() -> None:
    assert find_mechanism("slurm") is SLURM
    with pytest.raises(PolicyError, match="no mechanism 'mps'; choose one of: ideal, slurm"):
        find_mechanism("mps")
    with pytest.raises(PolicyError, match="jobs_per_gpu = 0 is not allowed"):
        Mechanism(name="none", jobs_per_gpu=0)
    with pytest.raises(PolicyError, match=r"start_s = -1.0 is not allowed"):
        Mechanism(name="early", start_s=-1.0)
    assert IDEAL.unlimited
    assert not SLURM.unlimited
