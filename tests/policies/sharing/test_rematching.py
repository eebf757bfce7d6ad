"""soda where another host of a guest would do better: who goes to whom, and what it must gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import NOW_S, preempted
from tests.policies.sharing.scenes import Table
from tests.policies.sharing.scenes import scene as shared_scene
from tests.policies.sharing.test_soda import decide, job, on

BAD, GOOD, GUEST, THIRD = "bad", "good", "guest", "third"
PAIRS = Table(
    {(BAD, GUEST): (1.3, 1.9), (GOOD, GUEST): (1.05, 1.1), (GOOD, THIRD): (1.0, 1.0), (BAD, THIRD): (1.6, 1.9)}
)
SODA = Soda(change_s=10.0)


def plan_of(
    *others: dict[str, Any], policy: Soda = SODA, table: Table = PAIRS, bad: dict[str, Any] | None = None, **guest: Any
) -> SharingPlan:
    """A guest beside the bad one of two hosts, each on the only GPU of its node; a job that shares with nobody waits."""
    jobs = [
        on(1, 9000.0, 0, model=BAD, **{"preemptible": False, **(bad or {})}),
        on(2, 9000.0, 1, model=GOOD, preemptible=False),
        on(3, 9000.0, 0, model=GUEST, **{"preemptible": True, **guest}),
        job(4, 20_000.0, shares=False),
        *others,
    ]
    return decide(shared_scene(jobs, NodeTable.uniform(2, 1), table), policy)


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
