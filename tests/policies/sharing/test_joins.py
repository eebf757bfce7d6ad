"""Plans that put jobs on GPUs of others become actions that can be carried out; whatever else they ask for is left out."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.actions import JoinGpus, OrderJobs, PreemptJob, ResizeRequest
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.engine.join_running_jobs import JoinRunningJobs
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import JobState, UnknownNodes
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.policies.sharing.test_mechanism import SETTINGS, draw_scene, on_slurm, on_some_worlds, running, waiting
from tests.simulator.sharing.players import plan_of

SHARING = [name for name in policy_names() if isinstance(make_policy(name), SharingPolicy)]
STAGE = JoinRunningJobs()


def draw_site(rng: random.Random) -> SharingSnapshot:
    """Slurm's mechanism with all that may bar a guest, and guests that wait."""
    snapshot = draw_scene(rng)
    devices, jobs, rows = snapshot.devices, snapshot.jobs, len(snapshot.jobs)
    columns: dict[str, Any] = {
        "meets_others": np.array([rng.random() < 0.5 for _ in range(rows)], dtype=np.bool_),
        "obstacle": np.array([-(rng.random() < 0.9) for _ in range(rows)], dtype=np.int64),
        "obstacles": ("--cpus-per-gpu",),
    }
    unknown = [UnknownNodes.FEATURES if rng.random() < 0.1 else UnknownNodes.KNOWN for _ in range(rows)]
    shareable = np.array([rng.random() < 0.9 for _ in range(len(devices))], dtype=np.bool_)
    snapshot = replace(
        snapshot,
        mechanism=SLURM,
        jobs=jobs.with_columns(unknown_nodes=np.array(unknown, dtype=np.int64)),
        devices=replace(devices, shareable=shareable),
        sharing=replace(snapshot.sharing, **columns),
    )
    return with_waiting_guest(snapshot, rng) if rng.random() < 0.5 else snapshot


def with_waiting_guest(snapshot: SharingSnapshot, rng: random.Random) -> SharingSnapshot:
    """One of the waiting jobs is to start on a GPU where one other job runs."""
    jobs, devices = snapshot.jobs, snapshot.devices
    alone = [device for device, count in Counter(devices.held.tolist()).items() if count == 1]
    rows = np.flatnonzero((jobs.state == JobState.PENDING) & (jobs.gpus == 1)).tolist()
    if not alone or not rows:
        return snapshot
    row, device = rng.choice(rows), rng.choice(alone)
    at = int(devices.held_start[row])
    state, waits = jobs.state.copy(), np.zeros(len(jobs), dtype=np.bool_)
    state[row], waits[row] = JobState.BLOCKED, True
    held = replace(
        devices,
        held=np.insert(devices.held, at, device),
        guest=np.insert(devices.guest, at, True),
        held_start=devices.held_start + (np.arange(len(jobs) + 1) > row),
    )
    return replace(
        snapshot,
        jobs=jobs.with_columns(state=state),
        devices=held,
        sharing=replace(snapshot.sharing, waits_as_guest=waits),
    )


def list_faults(snapshot: SharingSnapshot, plan: SharingPlan) -> list[str]:
    """What of a plan's joins cannot be, from the definitions."""
    jobs, sharing, devices = snapshot.jobs, snapshot.sharing, snapshot.devices
    joins = [action for action in plan.actions if isinstance(action, JoinGpus)]
    leaving, faults = {one.job_id for one in plan.preempts}, []
    users = Counter(devices.held.tolist())
    cpus = snapshot.nodes.cpus_free.copy()
    for job_id in plan.starts.tolist():
        if job_id not in plan.refused_joins:
            for piece in plan.places[job_id]:
                cpus[piece.node] -= piece.cpus
    if cpus.min() < 0:
        faults.append("CPUs are given twice")
    for join in joins:
        row = jobs.row(join.job_id)
        nodes = [snapshot.nodes.name.index(name) for name in join.nodes]
        seats = [int(devices.first[node]) + index for node in nodes for index in join.gpus]
        users.update(seats)
        wanted = plan.devices[join.job_id]
        own = sorted(set(wanted) - set(seats))
        if not set(seats) <= set(wanted) or len(own) != join.own * len(nodes):
            faults.append(f"{join}: other GPUs than the policy's {wanted}")
        if any(int(devices.first[node]) <= one < devices.first[node + 1] for one in own for node in ()) or any(
            users[one] for one in own
        ):
            faults.append(f"{join}: own GPUs that somebody holds")
        hosts = {int(jobs.job_id[host]) for host in range(len(jobs)) if set(devices.of(host).tolist()) & set(seats)}
        if set(join.hosts) != hosts or list(join.hosts) != sorted(hosts):
            faults.append(f"{join}: hosts are {hosts}")
        for host in map(jobs.row, join.hosts):
            meets = jobs.user[host] == jobs.user[row] or (sharing.meets_others[host] and sharing.meets_others[row])
            if jobs.state[host] != JobState.RUNNING or not sharing.shares[host] or not meets:
                faults.append(f"{join}: no host")
            if len(devices.guest_on(host)) or int(jobs.job_id[host]) in leaving:
                faults.append(f"{join}: its host is a guest, or leaves")
        able = sharing.requeueable[row] and sharing.shares[row] and sharing.obstacle[row] < 0
        if not able or jobs.unknown_nodes[row] or jobs.state[row] != JobState.PENDING:
            faults.append(f"{join}: no guest")
        if not devices.shareable[seats].all() or max(users[one] for one in seats) > 2:
            faults.append(f"{join}: no free seat")
        if join.steps != (1 if not join.sub_batch else math.ceil(sharing.batch[row] / join.sub_batch)):
            faults.append(f"{join}: steps")
    return faults


@pytest.mark.parametrize("name", SHARING)
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_every_join_can_be_carried_out(name: str, seed: int) -> None:
    snapshot = draw_site(random.Random(seed))
    policy = make_policy(name, SETTINGS.get(name, {}))
    plain, plan = policy.decide(snapshot), pipeline_of(policy).decide(snapshot)
    assert isinstance(plan, SharingPlan)
    assert isinstance(plain, SharingPlan)
    assert list_faults(snapshot, plan) == []
    assert not plan.refused_joins, "policies ask for nothing that the mechanism cannot do"
    joins = [action.job_id for action in plan.actions if isinstance(action, JoinGpus)]
    held = set(snapshot.devices.held.tolist())
    assert joins == [one for one in plain.starts.tolist() if held & set(plain.devices.get(one, ()))]
    assert (plan.starts.tolist(), plan.places, plan.devices) == (plain.starts.tolist(), plain.places, plain.devices)
    (order,) = (action for action in plan.actions if isinstance(action, OrderJobs))
    assert order.guests.tolist() == snapshot.jobs.job_id[snapshot.sharing.waits_as_guest].tolist()
    assert not set(order.guests.tolist()) & {*order.others.tolist(), *order.job_ids.tolist()}
    waiting_ids = snapshot.jobs.job_id[snapshot.jobs.state <= JobState.BLOCKED].tolist()
    parts = (order.job_ids, order.others, order.guests, order.unranked)
    assert sorted(np.concatenate(parts).tolist()) == waiting_ids


@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_whatever_a_plan_asks_for_only_what_can_be_is_left(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = draw_site(rng)
    jobs = snapshot.jobs
    devices: dict[int, Sequence[int]] = {}
    for row in np.flatnonzero(jobs.state == JobState.PENDING).tolist():
        if rng.random() < 0.8:
            gpus = min(int(jobs.gpus[row]), len(snapshot.devices))
            devices[int(jobs.job_id[row])] = rng.sample(range(len(snapshot.devices)), gpus)
    preempts = [int(one) for one in jobs.job_id[jobs.state == JobState.RUNNING] if rng.random() < 0.1]
    wanted = plan_of(snapshot, devices, preempts)
    plan = STAGE.apply(snapshot, wanted)
    assert isinstance(plan, SharingPlan)
    assert [one for one in list_faults(snapshot, plan) if "twice" not in one and "own GPUs" not in one] == []
    held = set(snapshot.devices.held.tolist())
    joining = {one for one in wanted.starts.tolist() if held & set(wanted.devices[one])}
    joins = {action.job_id for action in plan.actions if isinstance(action, JoinGpus)}
    assert joins | set(plan.refused_joins) == joining
    assert not joins & set(plan.refused_joins)
    assert all(plan.refused_joins.values())
    assert plan.starts.tolist() == [one for one in wanted.starts.tolist() if one not in plan.refused_joins]
    if plan.refused_joins:
        assert plan.order[: len(plan.starts)].tolist() == plan.starts.tolist()
    assert sorted(plan.order.tolist()) == sorted(wanted.order.tolist())


@pytest.mark.parametrize("name", SHARING)
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_a_file_decides_the_same(name: str, seed: int) -> None:
    rng = random.Random(seed)
    snapshot = draw_site(rng)
    rows = len(snapshot.jobs)
    ids = snapshot.jobs.job_id.tolist()
    seen = {
        key: np.array([rng.choice((np.nan, 1.5)) for _ in range(rows)]) for key in ("observed_slowdown", "together_s")
    }
    seen["behind_s"] = np.array([rng.choice((0.0, 7.5)) for _ in range(rows)])
    apart = tuple(sorted({(one, other) for one in ids for other in ids if one < other and rng.random() < 0.1}))
    snapshot = replace(snapshot, known=KindProfiles(()), sharing=replace(snapshot.sharing, apart=apart, **seen))
    dump = decided(snapshot, make_policy(name, SETTINGS.get(name, {})))
    raw = write_dump(dump)
    again = read_dump(raw)
    assert write_dump(again) == raw
    assert plan_bytes(again.decide()) == plan_bytes(dump.plan or dump.decide())
    assert isinstance(again.snapshot, SharingSnapshot)
    for part in ("sharing", "devices"):
        for key in getattr(snapshot, part).__slots__:
            ours, theirs = (getattr(getattr(one, part), key) for one in (snapshot, again.snapshot))
            assert (
                np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
                if hasattr(ours, "dtype")
                else ours == theirs
            )
    assert again.snapshot.mechanism == SLURM
    masked = read_dump(write_dump(dump.with_stand_ins()))
    assert plan_bytes(masked.decide()) == plan_bytes(masked.plan or dump.decide())
    assert isinstance(masked.snapshot, SharingSnapshot)
    rank = {job_id: at for at, job_id in enumerate(ids, 1)}
    assert masked.snapshot.sharing.apart == tuple((rank[one], rank[other]) for one, other in apart)


def decided(snapshot: SharingSnapshot, policy: Policy) -> SnapshotDump:
    dump = SnapshotDump(snapshot, policy, mode="enforce", made_by="0.1.0")
    return replace(dump, plan=dump.decide())


def joined(snapshot: SharingSnapshot, plan: SharingPlan) -> tuple[dict[int, JoinGpus], SharingPlan]:
    found = STAGE.apply(snapshot, plan)
    assert isinstance(found, SharingPlan)
    return {action.job_id: action for action in found.actions if isinstance(action, JoinGpus)}, found


HOSTS = (running(1, 0, 1), running(2, 2), running(3, 4, 5), running(4, 6))


def test_a_join_says_all_that_a_request_needs() -> None:
    snapshot = on_slurm(*HOSTS, waiting(9, 2, batch=20), waiting(10, 4))
    snapshot = replace(snapshot, sharing=replace(snapshot.sharing, requeueable=np.ones(6, dtype=np.bool_)))
    plan = plan_of(snapshot, {9: (1, 2), 10: (0, 3, 4, 7)}, sub_batches={9: 8})
    joins, after = joined(snapshot, plan)
    assert joins[9] == JoinGpus(
        9, (1, 2), ("n1",), (1, 2), 0, "player: guest of job 1, 2, on GPU 1, 2 of node n1", sub_batch=8, steps=3
    )
    assert joins[10] == JoinGpus(10, (1, 3), ("n1", "n2"), (0,), 1, joins[10].reason)
    assert {after.notes.of(one).verdict for one in (9, 10)} == {JobVerdict.JOIN}
    assert {key: after.facts[key] for key in ("joins", "joins_refused")} == {"joins": 2.0, "joins_refused": 0.0}
    assert joined(replace(snapshot, mechanism=IDEAL), plan)[0] == {}, "there is no request to rewrite"


@pytest.mark.parametrize(("change", "why"), [
    ({"jobs": {"overdue": [0, 0, 0, 0, 1, 0]}}, "before a job that nobody may pass"),
    ({"jobs": {"node_set": [-1, -1, -1, -1, -1, 0]}, "node_sets": [[False], [True]]}, "node n1 will not do for it"),
    ({"jobs": {"unknown_nodes": [0, 0, 0, 0, 0, 1]}}, "nobody knows which nodes would do"),
    ({"jobs": {"whole_nodes": [0, 0, 0, 0, 0, 1]}}, "it wants whole nodes"),
    ({"sharing": {"obstacle": [-1, -1, -1, -1, -1, 0], "obstacles": ("--cpus-per-gpu",)}}, "--cpus-per-gpu"),
    ({"sharing": {"requeueable": [1, 1, 1, 1, 1, 0]}}, "it cannot be requeued"),
    ({"sharing": {"shares": [1, 0, 1, 1, 1, 1]}}, "job 2 does not allow sharing"),
    ({"devices": {"shareable": [1, 1, 0, 1, 1, 1, 1, 1]}}, "nobody can join others on GPU 2"),
    ({"actions": (PreemptJob(2, (8,), ""),)}, "shall make way for others"),
    ({"actions": (ResizeRequest(9, 1, 1, 1, 1, None, ""),)}, "is changed first"),  # type: ignore[arg-type]
    ({"cpus": 0}, "CPUs of node row 0 would be given twice"),
])  # fmt: skip
def test_what_cannot_be_is_left_out_with_its_reason(change: dict[str, Any], why: str) -> None:
    snapshot = on_slurm(*HOSTS, waiting(8, 8), waiting(9, 2))
    dtypes = {"node_set": np.int64, "unknown_nodes": np.int64, "obstacle": np.int64}
    for part in ("jobs", "sharing", "devices"):
        columns = {
            key: value if isinstance(value, tuple) else np.array(value, dtype=dtypes.get(key, np.bool_))
            for key, value in change.get(part, {}).items()
        }
        snapshot = replace(snapshot, **{part: replace(getattr(snapshot, part), **columns)})
    if "node_sets" in change:
        snapshot = replace(snapshot, nodes=replace(snapshot.nodes, node_sets=np.array(change["node_sets"])))
    if "cpus" in change:
        snapshot = replace(snapshot, nodes=replace(snapshot.nodes, cpus_free=np.zeros(2, dtype=np.int64)))
    plan = replace(plan_of(snapshot, {9: (2, 3)}), actions=change.get("actions", ()))
    joins, after = joined(snapshot, plan)
    assert joins == {}
    assert why in after.refused_joins[9]
    assert after.facts["joins_refused"] == 1.0
    if set(change) <= {"jobs", "sharing", "devices"} and "overdue" not in change.get("jobs", {}):
        assert after.notes.of(9).verdict != JobVerdict.JOIN


def test_jobs_of_different_users_meet_where_both_may() -> None:
    snapshot = on_slurm(*HOSTS, waiting(9, 1, user="else"))
    plan = plan_of(snapshot, {9: (2,)})
    for both, allowed in (([1, 4], True), ([4], False), ([1], False)):
        meets = np.isin(np.arange(5), both)
        site = replace(snapshot, sharing=replace(snapshot.sharing, meets_others=meets))
        assert (9 in joined(site, plan)[0]) == allowed


def test_one_fault_takes_no_other_join_with_it() -> None:
    snapshot = on_slurm(*HOSTS, waiting(9, 1), waiting(10, 1, user="else"), waiting(11, 1))
    joins, after = joined(snapshot, plan_of(snapshot, {9: (0,), 10: (2,), 11: (4,)}))
    assert list(joins) == [9, 11]
    assert list(after.refused_joins) == [10]


def test_a_waiting_guest_goes_before_all_and_one_that_joins_is_in_nobodys_way() -> None:
    """Job 8 is overdue and does not fit: nobody but a guest passes it, and it goes before one that is no guest yet."""
    more: dict[str, Any] = {"priority": 100, "waited_s": 1e6}
    snapshot = on_slurm(*HOSTS, waiting(7, 1, priority=5), waiting(8, 8, **more), waiting(9, 2, priority=200))
    jobs = snapshot.jobs
    guest = jobs.row(7)
    waits = np.arange(len(jobs)) == guest
    devices = replace(
        snapshot.devices, held=np.append(snapshot.devices.held, 2), guest=np.append(snapshot.devices.guest, True),
        held_start=snapshot.devices.held_start + (np.arange(len(jobs) + 1) > guest),
    )  # fmt: skip
    state = np.where(waits, np.int8(JobState.BLOCKED), jobs.state)
    snapshot = replace(
        snapshot, devices=devices, sharing=replace(snapshot.sharing, waits_as_guest=waits),
        jobs=jobs.with_columns(state=state, overdue=jobs.job_id == 8),
    )  # fmt: skip
    order = OrderJobs("player", job_ids=np.array([9, 8]), others=np.array([7]))
    plan = replace(plan_of(snapshot, {9: (0, 1)}), actions=(order,))
    joins, after = joined(snapshot, plan)
    assert list(joins) == [9]
    (changed,) = (action for action in after.actions if isinstance(action, OrderJobs))
    assert [part.tolist() for part in (changed.guests, changed.job_ids, changed.others)] == [[7], [9, 8], []]
    lift, other = order_changes(after, snapshot)
    assert (lift.job_id, 5 + int(lift.new["SiteFactor"]) > 100 + int(other.new["SiteFactor"]) > 200) == (7, True)
    assert ("starts now" in lift.reason, other.job_id, "is overdue and waits" in other.reason) == (True, 8, True)
