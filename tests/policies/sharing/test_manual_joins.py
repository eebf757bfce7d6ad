"""What an admin wants shared: the plan has it whatever the policy, and has it only where a policy could have it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.actions import JoinGpus, PreemptJob
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState, NodeTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, read_dump, write_dump
from tests.policies.sharing.scenes import scene
from tests.policies.sharing.test_joins import draw_site, list_faults
from tests.policies.sharing.test_mechanism import SETTINGS, Sure, on_some_worlds

KNOWN = Sure({("m", "m"): (1.2, 1.1)}, else_xi=1.2)
HOST: dict[str, Any] = {"job_id": 1, "on": (0, 1, 2), "remaining_s": 1000.0, "user": "i", "preemptible": False}
GUEST: dict[str, Any] = {"job_id": 2, "gpus": 2, "cpus": 2, "remaining_s": 100.0, "user": "i", "submit_s": 1.0}


def site(guest: dict[str, Any], host: dict[str, Any], *more: dict[str, Any], **columns: Any) -> SharingSnapshot:
    """One node of four GPUs, of which the host has three; job 2 is to join job 1."""
    made = scene([HOST | host, GUEST | guest, *more], NodeTable.uniform(1, 4, cpus=16), KNOWN)
    sharing = replace(made.sharing, **{"manual_joins": ((2, 1),), **columns})
    return replace(made, mechanism=SLURM, sharing=sharing)


def planned(snapshot: SharingSnapshot, policy: str = "tiresias-las") -> SharingPlan:
    plan = pipeline_of(make_policy(policy, SETTINGS.get(policy, {}))).decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def joins(plan: SharingPlan) -> list[JoinGpus]:
    return [action for action in plan.actions if isinstance(action, JoinGpus)]


@pytest.mark.parametrize("policy", policy_names())
def test_whatever_the_policy_a_pair_is_made(policy: str) -> None:
    (join,) = joins(planned(site({}, {}), policy))
    assert (join.job_id, join.hosts, join.gpus, join.own) == (2, (1,), (0, 1), 0)
    assert join.reason.startswith("by hand: guest of job 1")


def test_a_job_of_which_only_the_batch_is_known_joins_with_all_of_it() -> None:
    plan = planned(site({"batch": 64, "accumulates": False}, {"batch": 64}))
    assert (len(joins(plan)), plan.sub_batches) == (1, {})


def test_without_an_admins_word_nothing_changes() -> None:
    plan = pipeline_of(make_policy("tiresias-las")).decide(site({}, {}, manual_joins=()))
    assert not [action for action in plan.actions if isinstance(action, JoinGpus)]
    assert not isinstance(plan, SharingPlan)


def test_it_need_not_pay_but_what_it_costs_is_told() -> None:
    plan = planned(site({"remaining_s": 1e5}, {"remaining_s": 10.0}))
    assert len(joins(plan)) == 1
    assert plan.notes.of(2).verdict == JobVerdict.JOIN
    chosen = plan.decisions[2].chosen  # type: ignore[union-attr]
    assert chosen is not None
    assert chosen.together is not None
    assert chosen.together.lost_s > 0


@pytest.mark.parametrize("unknown", [({"remaining_s": np.nan}, {}), ({}, {"remaining_s": np.nan})])
def test_nobody_needs_to_know_how_long_they_run(unknown: tuple[dict[str, Any], dict[str, Any]]) -> None:
    plan = planned(site(*unknown))
    assert len(joins(plan)) == 1
    assert 2 not in plan.decisions, "then there is no arithmetic"


def test_more_gpus_than_its_host_has_are_taken_beside_it() -> None:
    (join,) = joins(planned(site({"gpus": 4, "cpus": 4}, {})))
    assert (join.gpus, join.own) == ((0, 1, 2), 1)


def test_whose_guest_it_is_an_admin_knows_better_than_the_policy() -> None:
    other = {**HOST, "job_id": 3, "on": (4, 5, 6, 7), "remaining_s": 2000.0}
    made = scene([HOST | {"on": (0, 1, 2, 3)}, GUEST, other], NodeTable.uniform(2, 4, cpus=16), KNOWN)
    for host in (1, 3):
        sharing = replace(made.sharing, manual_joins=((2, host),))
        (join,) = joins(planned(replace(made, mechanism=SLURM, sharing=sharing), "sjf-bsbf"))
        assert join.hosts == (host,)


@pytest.mark.parametrize(
    ("guest", "host", "columns", "why"),
    [
        ({"shares": False}, {}, {}, "not everybody allows sharing"),
        ({}, {"shares": False}, {}, "not everybody allows sharing"),
        ({"user": "j"}, {}, {}, "a job of another user is there"),
        ({"max_slowdown": 1.15}, {}, {}, "slows a job 1.200 times, allowed 1.150"),
        ({}, {"max_slowdown": 1.05}, {}, "slows a job 1.200 times, allowed 1.050"),
        ({"model": ""}, {}, {}, "nobody knows the model of job 2"),
        ({}, {"model": ""}, {}, "nobody knows the model of job 1"),
        ({"remaining_s": np.nan, "max_slowdown": 1.15}, {}, {}, "slows a job 1.200 times, allowed 1.150"),
        ({"cpus": 14}, {}, {}, "too few GPUs, CPUs or MiB of memory are left for it there"),
        ({"state": JobState.BLOCKED}, {}, {}, "it does not wait for GPUs, or something else holds it back"),
        ({}, {"state": JobState.SUSPENDED}, {}, "job 1 does not run on GPUs"),
        ({"gpus": 1, "cpus": 1}, {}, {}, "it starts on GPUs of its own"),
        ({}, {}, {"apart": ((1, 2),)}, "it was parted from job 1"),
        ({}, {}, {"manual_joins": ((2, 9),)}, "job 9 does not run on GPUs"),
        ({}, {}, {"obstacle": np.array([-1, 0]), "obstacles": ("--cpus-per-gpu",)}, "--cpus-per-gpu"),
        ({}, {}, {"requeueable": np.array([True, False])}, "it cannot be requeued, so it cannot be a guest"),
    ],
)
def test_what_a_policy_could_not_have_an_admin_cannot_have(
    guest: dict[str, Any], host: dict[str, Any], columns: dict[str, Any], why: str
) -> None:
    plan = planned(site(guest, host, **columns))
    assert joins(plan) == []
    assert why in plan.refused_joins[2]
    assert plan.notes.of(2).verdict != JobVerdict.JOIN


@pytest.mark.parametrize("name", policy_names())
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_every_join_by_hand_can_be_carried_out(name: str, seed: int) -> None:
    rng = random.Random(seed)
    snapshot = draw_site(rng)
    ids, state = snapshot.jobs.job_id, snapshot.jobs.state
    waiting, runs = ids[state == JobState.PENDING].tolist(), ids[state == JobState.RUNNING].tolist()
    pairs = {(rng.choice(waiting), rng.choice(runs)) for _ in range(3)} if waiting and runs else set()
    snapshot = replace(snapshot, sharing=replace(snapshot.sharing, manual_joins=tuple(sorted(pairs))))
    plan = pipeline_of(make_policy(name, SETTINGS.get(name, {}))).decide(snapshot)
    if not isinstance(plan, SharingPlan):
        assert not pairs
        return
    assert list_faults(snapshot, plan) == []
    for guest, host in pairs:
        join = next((one for one in joins(plan) if one.job_id == guest), None)
        if join is not None and guest not in plan.refused_joins:
            assert set(join.hosts) & {one for other, one in pairs if other == guest}, host


def running_guest(**columns: Any) -> SharingSnapshot:
    guest = {**HOST, "job_id": 2, "on": (0, 1), "start_s": 50.0, "preemptible": columns.pop("preemptible", True)}
    made = scene([HOST, guest], NodeTable.uniform(1, 4, cpus=16), KNOWN)
    seats = np.array([False, False, False, True, True])
    sharing = replace(made.sharing, **{"manual_partings": (2,), **columns})
    return replace(made, mechanism=SLURM, devices=replace(made.devices, guest=seats), sharing=sharing)


def parted(snapshot: SharingSnapshot) -> Sequence[PreemptJob]:
    return pipeline_of(make_policy("tiresias-las")).decide(snapshot).preempts


def test_a_running_guest_is_sent_back() -> None:
    (one,) = parted(running_guest())
    assert (one.job_id, one.for_jobs, one.parted_from) == (2, (), (1,))
    assert one.reason.startswith("by hand")


def test_only_a_guest_that_saves_its_state_is_sent_back_and_never_a_host() -> None:
    assert not parted(running_guest(preemptible=False))
    assert not parted(running_guest(manual_partings=(1,)))
    assert not parted(running_guest(manual_partings=()))


def test_a_file_holds_what_admins_want() -> None:
    snapshot = site({}, {}, apart=(), manual_partings=(1,))
    snapshot = replace(snapshot, known=KindProfiles(()))
    told = read_dump(write_dump(SnapshotDump(snapshot, make_policy("fifo")))).snapshot
    assert isinstance(told, SharingSnapshot)
    assert (told.sharing.manual_joins, told.sharing.manual_partings) == (((2, 1),), (1,))
