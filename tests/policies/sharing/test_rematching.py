"""soda where another host of a guest would do better: who goes to whom, and what it must gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.engine.plan_check import check_sharing_plan
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import NodeTable
from slurm_soda.policies.waiting.bounded import decide_bounded
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S, mark_overdue
from tests.policies.cases import NOW_S, preempted, verdicts
from tests.policies.sharing.scenes import Table
from tests.policies.sharing.scenes import scene as shared_scene
from tests.policies.sharing.test_soda import by_slurm, decide, job, on

BAD, GOOD, GUEST, THIRD = "bad", "good", "guest", "third"
PAIRS = Table(
    {(BAD, GUEST): (1.3, 1.9), (GOOD, GUEST): (1.05, 1.1), (GOOD, THIRD): (1.0, 1.0), (BAD, THIRD): (1.6, 1.9)}
)
SODA = Soda(change_s=10.0)


def two_hosts(
    *others: dict[str, Any], table: Table = PAIRS, bad: dict[str, Any] | None = None, **guest: Any
) -> SharingSnapshot:
    """A guest beside the bad one of two hosts, each on the only GPU of its node; a job that shares with nobody waits."""
    jobs = [
        on(1, 9000.0, 0, **{"model": BAD, "preemptible": False, **(bad or {})}),
        on(2, 9000.0, 1, model=GOOD, preemptible=False),
        on(3, 9000.0, 0, model=GUEST, **guest),
        job(4, 20_000.0, shares=False),
        *others,
    ]
    return shared_scene(jobs, NodeTable.uniform(2, 1), table)


def plan_of(*others: dict[str, Any], policy: Soda = SODA, **more: Any) -> SharingPlan:
    return decide(two_hosts(*others, **more), policy)


def test_a_guest_goes_to_a_host_beside_which_all_gain_more() -> None:
    plan = plan_of()
    assert preempted(plan) == {3: ()}
    assert plan.devices == {3: (1,)}
    assert [piece.node for piece in plan.places[3]] == [1]
    assert plan.preempts[0].reason.startswith("it goes to another host: all jobs together end ")


@pytest.mark.parametrize(
    "more",
    [
        {"preemptible": False},
        {"policy": Soda(change_s=9000.0)},
        {"start_s": NOW_S - 30.0},
        {"max_slowdown": 1.05},
        {"table": replace(PAIRS, pairs={**PAIRS.pairs, (GOOD, GUEST): (1.3, 1.9)})},
        {"table": replace(PAIRS, misfits=frozenset({frozenset({GOOD, GUEST})}))},
    ],
    ids=["it may not be stopped", "that costs too much", "it has just come", "its bound", "no better", "no memory"],
)
def test_it_stays(more: dict[str, Any]) -> None:
    plan = plan_of(**more)
    assert 3 not in plan.devices
    assert all(one.reason.find("another host") < 0 for one in plan.preempts)


def test_it_stays_while_nobody_knows_what_the_two_do_to_each_other() -> None:
    plan = plan_of(table=replace(PAIRS, source=Source.PRIOR), start_s=NOW_S - 70.0)
    assert not preempted(plan)


def test_who_waits_has_the_place_where_it_gains_more() -> None:
    plan = plan_of(job(5, 5000.0, model=THIRD))
    assert plan.devices == {5: (1,)}
    assert not preempted(plan)


def test_a_host_that_is_about_to_leave_does_not_count() -> None:
    """The host is preempted for a short job, and its guest with it."""
    plan = plan_of(job(5, 60.0, shares=False), bad={"preemptible": True, "remaining_s": 90_000.0})
    assert set(preempted(plan)) == {1, 3}
    assert 3 not in plan.devices


def seeing(snapshot: SharingSnapshot, guest: int, slowdown: float) -> SharingSnapshot:
    """The guest is observed to be slowed so much."""
    observed = np.where(snapshot.jobs.job_id == guest, slowdown, np.nan)
    lasted_s = np.where(snapshot.jobs.job_id == guest, 100.0, np.nan)
    return replace(snapshot, sharing=replace(snapshot.sharing, observed_slowdown=observed, together_s=lasted_s))


def test_by_slurms_mechanism_it_does_not_go() -> None:
    """There a guest joins others once it waits, and they may have another one by then."""
    plan = decide(by_slurm(two_hosts()))
    assert 3 not in plan.places
    assert all(one.reason.find("another host") < 0 for one in plan.preempts)


def test_another_gpu_of_its_own_host_is_no_other_host() -> None:
    jobs = [
        on(1, 9000.0, 0, 1, model=GOOD, preemptible=False),
        on(3, 9000.0, 0, model=GUEST),
        job(4, 20_000.0, 2, shares=False),
    ]
    snapshot = seeing(shared_scene(jobs, NodeTable.uniform(1, 2), PAIRS), 3, 1.5)
    assert not preempted(decide(snapshot, Soda(change_s=0.0)))


def test_it_never_goes_back_to_a_host_that_slows_it_more_than_anybody_could_know() -> None:
    plan = decide(seeing(two_hosts(bad={"model": GOOD}), 3, 1.7))
    assert plan.devices == {3: (1,)}
    assert [one.parted_from for one in plan.preempts] == [(1,)]


def test_it_stays_where_who_joins_in_the_same_decision_would_be_left_alone() -> None:
    """A third job joins the guest on a GPU of its own."""
    jobs = [
        on(1, 9000.0, 0, model=BAD, preemptible=False),
        on(2, 9000.0, 2, 3, model=GOOD, preemptible=False, max_slowdown=1.2),
        on(3, 9000.0, 0, 1, model=GUEST),
        job(4, 20_000.0, shares=False),
    ]
    third = job(5, 19_000.0, model=THIRD)
    table = replace(PAIRS, pairs={**PAIRS.pairs, (GUEST, THIRD): (1.0, 1.0), (GOOD, THIRD): (1.5, 1.5)})
    for waits, goes in (([], True), ([third], False)):
        snapshot = shared_scene([*jobs, *waits], NodeTable.uniform(1, 4), table)
        snapshot = replace(
            snapshot, devices=replace(snapshot.devices, guest=snapshot.jobs.job_id[snapshot.devices.owner] == 3)
        )
        plan = decide(snapshot)
        assert (3 in plan.devices) == goes
        assert (plan.devices.get(5) == (1,)) == (not goes)
        check_sharing_plan(snapshot, plan, {one: plan.places[one] for one in plan.starts.tolist()}, most=2)


def test_it_stays_where_all_gain_more_a_second() -> None:
    """Once it waits it would be put beside the same host again."""
    table = replace(PAIRS, pairs={**PAIRS.pairs, (BAD, GUEST): (1.02, 1.05), (GOOD, GUEST): (1.1, 1.1)})
    assert 3 not in plan_of(bad={"remaining_s": 1500.0}, table=table).devices


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MilderByHalf(Table):
    """A guest with half of its batch of 8 disturbs less than with all of it; less than half does not pay."""

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        batch = next(one.batch for one in (slowed, *others) if one.model == GUEST)
        its, own = {8: (1.33, 1.71), 4: (1.02, 1.77)}.get(batch, (3.0, 3.0))
        return Estimate(own if slowed.model == GUEST else its, 0.0, Source.MEASURED)


@pytest.mark.parametrize("price_s", [0.0, 10.0])
def test_it_does_not_go_from_one_host_to_its_like_and_back(price_s: float) -> None:
    """With half its batch all would gain more beside either; it would go there with all of it."""
    table = MilderByHalf(throughputs={GUEST: Throughput(0.24, 0.095)})
    jobs = [
        on(1, 20_000.0, 0, model=GOOD, preemptible=False),
        on(2, 20_000.0, 1, model=GOOD, preemptible=False),
        on(3, 9000.0, 0, model=GUEST, batch=8),
        *(job(job_id, 20_000.0, shares=False) for job_id in range(4, 7)),
    ]
    snapshot = shared_scene(jobs, NodeTable.uniform(2, 1), table)
    assert 3 not in decide(snapshot, Soda(change_s=price_s)).devices


@dataclass(frozen=True, slots=True, weakref_slot=True)
class OneIsUnknown(Table):
    """Of the good one it is only assumed that others take turns with it."""

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        if GOOD in {one.model for one in (slowed, *others)}:
            return Estimate(2.0, 0.0, Source.PRIOR)
        return Estimate(1.3 if slowed.model == BAD else 1.9, 0.0, Source.MEASURED)


@pytest.mark.parametrize(("price_s", "goes"), [(0.0, True), (10.0, False)])
def test_it_tries_another_host_where_it_costs_nothing_to_go(price_s: float, goes: bool) -> None:
    snapshot = two_hosts(table=OneIsUnknown())
    triable = replace(snapshot, sharing=replace(snapshot.sharing, triable=np.ones(4, dtype=np.bool_)))
    assert (3 in decide(triable, Soda(change_s=price_s)).devices) == goes


def test_it_stays_where_gpus_of_its_own_are_kept_for_an_overdue_job() -> None:
    jobs = [on(1, 26_000.0, 0, preemptible=False), on(3, 5000.0, 0)]
    late = job(4, 140.0, 2, shares=False, waited_s=2.0 * DEFAULT_PASSING_LIMIT_S, may_preempt=False)
    snapshot = by_slurm(shared_scene(jobs, NodeTable.uniform(2, 1), Table(else_xi=1.3)))
    assert preempted(decide(snapshot)) == {3: ()}
    snapshot = by_slurm(shared_scene([*jobs, late], NodeTable.uniform(2, 1), Table(else_xi=1.3)))
    plan = decide_bounded(SODA, mark_overdue(snapshot, DEFAULT_PASSING_LIMIT_S))
    assert not preempted(plan)
    assert verdicts(plan)[3] == "RUN"


def test_one_of_which_nobody_knows_how_much_is_left_stays() -> None:
    """A distribution of run times is no number of seconds."""
    unknown = {"remaining_s": np.nan}
    for snapshot in (two_hosts(bad=unknown), two_hosts(**unknown)):
        likely = np.full((1, BINS), 1.0 / BINS)
        kind = np.where(np.isnan(snapshot.jobs.remaining_s), 0, -1)
        learned = replace(snapshot, run_times=ExpectedRunTimes(likely, kind, np.zeros(4)))
        assert 3 not in decide(learned, Soda(change_s=0.0)).devices
