"""srsf-share on hand-made clusters: who runs, with whom, who leaves for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.co_runners.report import CoRunnersReport
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.sharing.srsf_share.policy import SrsfShare
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import NOW_S, cluster, mixed_nodes, preempted, running, verdicts, waiting
from tests.policies.sharing.scenes import Table, scene

MILD = Table(else_xi=1.2)
HARSH = Table(else_xi=2.1)
AT_ONCE = SrsfShare(min_run_s=0.0)


def job(job_id: int, left_s: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, "remaining_s": left_s, "preemptible": True, **more}


def on(job_id: int, left_s: float, *devices: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "remaining_s": left_s, "on": devices, **more}


def decide(snapshot: SharingSnapshot, policy: SrsfShare = AT_ONCE) -> SharingPlan:
    plan = policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def test_is_a_policy_of_pairs() -> None:
    assert isinstance(AT_ONCE, Policy)
    assert isinstance(AT_ONCE, SharingPolicy)
    assert AT_ONCE.jobs_per_gpu == 2


def test_a_waiting_job_joins_where_both_get_more_done() -> None:
    jobs = [on(1, 100.0, 0), job(2, 120.0), job(3, 130.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert plan.devices == {2: (0,)}
    assert verdicts(plan) == {1: "RUN", 2: "START", 3: "WAIT"}


def test_without_gain_the_shortest_runs_alone() -> None:
    jobs = [on(1, 500.0, 0), job(2, 100.0), job(3, 130.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), HARSH))
    assert plan.devices == {2: (0,)}
    assert preempted(plan) == {1: (2,)}
    assert verdicts(plan)[2] == "WAIT_FOR_PREEMPTION"


def test_two_that_start_meet_in_the_next_decision() -> None:
    first = decide(scene([job(1, 100.0), job(2, 120.0)], NodeTable.uniform(1, 1), MILD))
    assert first.devices == {1: (0,)}
    assert first.next_event_s == NOW_S
    second = decide(scene([on(1, 100.0, 0), job(2, 120.0)], NodeTable.uniform(1, 1), MILD))
    assert second.devices == {2: (0,)}
    assert second.next_event_s == float("inf")


def test_pairs_change_when_others_suit_better() -> None:
    known = Table({("a", "b"): (1.1, 1.1), ("c", "d"): (1.1, 1.1)}, else_xi=1.9)
    jobs = [
        on(1, 100.0, 0, model="a"),
        on(2, 110.0, 1, model="b"),
        on(3, 120.0, 0, model="c"),
        on(4, 130.0, 1, model="d"),
    ]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), known))
    moved = set(preempted(plan))
    assert moved in ({2, 3}, {1, 4})
    assert set(plan.devices) == moved
    settled = {1: 0, 2: 1, 3: 0, 4: 1} | {one: devices[0] for one, devices in plan.devices.items()}
    assert settled[1] == settled[2] != settled[3] == settled[4]


def test_moves_only_where_that_pays() -> None:
    known = Table({("a", "b"): (1.1, 1.1), ("c", "d"): (1.1, 1.1)}, else_xi=1.3)
    jobs = [
        on(1, 100.0, 0, model="a"),
        on(2, 110.0, 1, model="b"),
        on(3, 120.0, 0, model="c"),
        on(4, 130.0, 1, model="d"),
    ]
    snapshot = scene(jobs, NodeTable.uniform(1, 2), known)
    assert preempted(decide(snapshot))
    assert not preempted(decide(snapshot, SrsfShare(min_run_s=0.0, change_s=60.0)))


@pytest.mark.parametrize(
    "more", [{"preemptible": False}, {"start_s": NOW_S - 10.0}], ids=["cannot checkpoint", "has just started"]
)
def test_some_stay_but_may_be_joined(more: dict[str, Any]) -> None:
    jobs = [on(1, 900.0, 0, **more), job(2, 10.0)]
    policy = SrsfShare(min_run_s=60.0)
    mild, harsh = (decide(scene(jobs, NodeTable.uniform(1, 1), known), policy) for known in (MILD, Table(else_xi=4.0)))
    assert mild.devices == {2: (0,)}
    assert not preempted(mild)
    assert not harsh.devices
    assert not preempted(harsh)


def test_two_that_stay_and_share_are_left_alone() -> None:
    jobs = [on(1, 900.0, 0, preemptible=False), on(2, 900.0, 0, preemptible=False), job(3, 10.0), job(4, 12.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), MILD))
    assert plan.devices == {3: (1,)}
    assert not preempted(plan)


def test_gangs_share_all_their_gpus_with_gangs_of_their_size() -> None:
    jobs = [on(1, 100.0, 0, 1), job(2, 100.0, 2), job(3, 450.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), MILD))
    assert plan.devices == {2: (0, 1)}
    assert [piece.gpus for piece in plan.places[2]] == [2]


def test_large_and_small_jobs_share_the_cluster_by_service() -> None:
    jobs = [job(1, 1000.0, 4), job(2, 100.0), job(3, 100.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 4), HARSH))
    assert set(plan.devices) == {2, 3}
    assert decide(scene(jobs, NodeTable.uniform(2, 4), HARSH)).devices.keys() == {1, 2, 3}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"shares": False}, {}), ({}, {"shares": False}), ({"max_slowdown": 1.1}, {}), ({}, {"max_slowdown": 1.1}),
        ({"model": ""}, {}), ({}, {"model": ""}), ({"model": "odd"}, {}),
    ],
)  # fmt: skip
def test_nobody_shares_against_bounds_consent_or_knowledge(old: dict[str, Any], new: dict[str, Any]) -> None:
    known = Table({("m", "m"): (1.2, 1.2)})
    snapshot = scene([on(1, 100.0, 0, **old), job(2, 110.0, **new)], NodeTable.uniform(1, 1), known)
    assert not decide(snapshot).devices
    willing = scene([on(1, 100.0, 0), job(2, 110.0)], NodeTable.uniform(1, 1), known)
    assert decide(willing).devices == {2: (0,)}


def test_a_bound_that_is_broken_already_separates() -> None:
    """Such as after a user has lowered it, or after a pair turned out worse than predicted."""
    jobs = [on(1, 100.0, 0, max_slowdown=1.1), on(2, 110.0, 0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert set(preempted(plan)) == {2}
    assert not plan.devices


def test_who_shares_without_need_gets_a_free_gpu() -> None:
    plan = decide(scene([on(1, 100.0, 0), on(2, 110.0, 0)], NodeTable.uniform(1, 2), MILD))
    assert set(preempted(plan)) == {2}
    assert plan.devices == {2: (1,)}


def test_cpus_of_the_node_limit_company() -> None:
    jobs = [on(1, 100.0, 0), job(2, 110.0)]
    assert not decide(scene(jobs, NodeTable.uniform(1, 1, cpus=1), MILD)).devices


def test_a_gang_without_room_leaves_the_gpus_to_others() -> None:
    jobs = [on(1, 1.0, 0, preemptible=False), job(2, 10.0, 2, gpus_per_node=2), job(3, 900.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), Table()))
    assert plan.devices == {3: (1,)}


def test_jobs_without_gpus_get_what_is_left() -> None:
    jobs = [on(1, 100.0, 0), job(2, 10.0, gpus=0, cpus=1, model=""), job(3, 20.0, gpus=0, cpus=1, model="")]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1, cpus=2), MILD))
    assert plan.starts.tolist() == [2]
    assert 2 not in plan.devices


def test_unknown_run_times_go_last() -> None:
    jobs = [job(1, float("nan")), job(2, 10.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), HARSH))
    assert plan.devices == {2: (0,)}


def test_without_single_gpus_it_is_srsf_and_says_so() -> None:
    rows = [running(1, (0, 1), remaining_s=90.0), waiting(2, remaining_s=10.0)]
    plan = AT_ONCE.decide(cluster(rows, mixed_nodes(1)))
    assert preempted(plan) == {1: (2,)}
    assert (plan.policy, plan.facts["sharing_known"]) == ("srsf-share", 0.0)


def test_an_empty_cluster() -> None:
    assert not decide(scene([], NodeTable.uniform(1, 2), MILD)).devices
    plan = decide(scene([job(1, 1.0)], NodeTable.uniform(1, 0), MILD))
    assert verdicts(plan) == {1: "TOO_LARGE"}
    assert np.isinf(plan.next_event_s)


def test_what_is_told_of_a_pair_is_what_decided() -> None:
    jobs = [on(1, 100.0, 0), job(2, 120.0), job(3, 130.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert list(plan.decisions) == [2]
    told = plan.decisions[2]
    assert isinstance(told, CoRunnersReport)
    assert (told.share, told.devices, told.alone_s) == (True, (0,), (120.0, 100.0))
    (co_runner,) = told.co_runners
    assert co_runner.job_id == 1
    assert co_runner.xi is not None
    assert (co_runner.xi.new.value, co_runner.xi.partner.value) == (1.2, 1.2)
    # One GPU, jobs of 100, 120 and 130 s: weights 3, 2 and 1.
    (worth,) = told.bound_checks
    assert (worth.value, worth.bound, worth.least, worth.holds) == (pytest.approx((3 + 2) / 1.2), 3.0, True, True)
    assert told.together is not None
    assert told.together.ends_s == pytest.approx((120.0,))
    assert told.together.new_end_s == pytest.approx(120.0 + (120.0 - 100.0))
    assert any("worth for all that wait" in line for line in explain_sharing(told).sentences)


def test_a_job_that_gets_gpus_of_its_own_is_told_so() -> None:
    told = decide(scene([job(1, 100.0)], NodeTable.uniform(1, 1), MILD)).decisions[1]
    assert isinstance(told, CoRunnersReport)
    assert (told.share, told.co_runners, told.bound_checks) == (False, (), ())


def test_who_leaves_is_nobodys_mate() -> None:
    jobs = [on(1, 500.0, 0), job(2, 100.0), job(3, 130.0)]
    told = decide(scene(jobs, NodeTable.uniform(1, 1), HARSH)).decisions[2]
    assert isinstance(told, CoRunnersReport)
    assert told.co_runners == ()
