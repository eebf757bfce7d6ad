"""soda where GPUs are free, but on no node enough of them: who moves, for whom, and what it must gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from slurm_soda.policies.waiting.bounded import decide_bounded
from tests.policies.cases import cluster, mixed_nodes, preempted, running, verdicts, waiting
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_soda import decide, job, on
from tests.policies.worlds import carried_out, on_some_worlds, worlds

SODA = Soda(change_s=10.0)


def whole(job_id: int, gpus: int = 4, nodes: int = 1, **columns: Any) -> dict[str, Any]:
    """A waiting job that wants so many GPUs on each node."""
    return waiting(job_id, gpus * nodes, nodes=nodes, gpus_per_node=gpus, **{"remaining_s": 1e5, **columns})


def one_each(left_s: float, *others: dict[str, Any], **second: Any) -> ClusterSnapshot:
    """Two nodes of 4 GPUs, on each a job of one GPU with so long left; others wait."""
    jobs = [
        running(1, (0, 1), remaining_s=left_s, preemptible=False),
        running(2, (1, 1), **{"remaining_s": left_s, **second}),
    ]
    return cluster([*jobs, *others], NodeTable.uniform(2, 4))


def nodes_of(plan: Plan, job_id: int) -> list[int]:
    return [piece.node for piece in plan.places.get(job_id, ())]


def test_a_job_moves_so_that_one_that_needs_a_whole_node_starts() -> None:
    plan = SODA.decide(one_each(1000.0, whole(9)))
    assert preempted(plan) == {2: (9,)}
    assert verdicts(plan) == {1: "RUN", 2: "PREEMPT", 9: "WAIT_FOR_PREEMPTION"}
    assert (nodes_of(plan, 9), nodes_of(plan, 2)) == ([1], [0])
    assert plan.preempts[0].reason == "it moves to other free GPUs, so that job 9 fits, which would wait for 1000 s"


def test_nobody_moves_where_the_admin_does_not_want_it() -> None:
    assert not preempted(Soda(change_s=10.0, moves=False).decide(one_each(1000.0, whole(9))))


def test_nobody_moves_for_less_than_it_costs() -> None:
    # To move costs 10 s, and the one job that waits ends later by an eighth of that: 11.25 s.
    assert not preempted(SODA.decide(one_each(11.0, whole(9))))
    assert preempted(SODA.decide(one_each(11.5, whole(9)))) == {2: (9,)}


def test_the_longer_the_queue_the_more_a_move_gains() -> None:
    queue = [whole(job_id, submit_s=1000.0 + job_id) for job_id in range(9, 19)]
    # Ten wait: to move costs 10 (1 + 10 / 8) = 22.5 s, and gains 4 s (1 + 9 x 4 / 8) = 22 s, or with 4.5 s 24.75 s.
    assert not preempted(SODA.decide(one_each(4.0, *queue)))
    assert preempted(SODA.decide(one_each(4.5, *queue))) == {2: (9,)}


def test_whoever_is_about_to_end_is_waited_for() -> None:
    # The first node is whole in 5 s.
    jobs = [
        running(1, (0, 1), remaining_s=5.0),
        running(2, (1, 1), remaining_s=1e4),
        whole(9),
    ]
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))))


@pytest.mark.parametrize(
    ("second", "ninth"),
    [
        ({"preemptible": False}, {}),
        ({}, {"may_preempt": False}),
        ({}, {"may_start": False}),
        ({"time_limit_s": 1005.0}, {}),
        ({"remaining_s": float("nan")}, {}),
        ({"band": 0}, {"band": 1}),
    ],
    ids=["cannot checkpoint", "nobody may leave for it", "cannot start", "limit", "nobody knows", "a better band"],
)
def test_who_stays(second: dict[str, Any], ninth: dict[str, Any]) -> None:
    columns = set(second) | set(ninth)
    first = {"band": 0} if "band" in columns else {}
    jobs = [
        running(1, (0, 1), remaining_s=1e4, preemptible=False, **first),
        running(2, (1, 1), **{"remaining_s": 1e4, **second}),
        whole(9, **ninth),
    ]
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))))


def test_a_job_of_a_better_band_may_ask_those_of_worse_ones() -> None:
    snapshot = one_each(1000.0, whole(9, band=0), band=1)
    assert preempted(SODA.decide(snapshot)) == {2: (9,)}


def test_who_starts_in_this_decision_is_about_to_end_as_well() -> None:
    # The third node goes to a job of 5 s, and then to the one that waits.
    jobs = [running(1, (0, 1), remaining_s=1e5), running(2, (1, 1), remaining_s=1e5)]
    short = whole(8, remaining_s=5.0)
    plan = SODA.decide(cluster([*jobs, short, whole(9)], NodeTable.uniform(3, 4)))
    assert (verdicts(plan)[8], preempted(plan)) == ("START", {})
    assert preempted(SODA.decide(cluster([*jobs, {**short, "remaining_s": 1e4}, whole(9)], NodeTable.uniform(3, 4))))


def test_nobody_moves_who_would_go_back() -> None:
    """It ranks before the other one and fits on its old node more tightly, whose cores the other one needs."""
    nodes = replace(mixed_nodes(8, 4), cpus=np.array([8, 32]))
    jobs = [running(1, (1, 1), remaining_s=1e3), whole(9, cpus=28)]
    assert not preempted(SODA.decide(cluster(jobs, nodes)))
    # Nor does one that ranks behind it, as it would start later.
    jobs[0]["remaining_s"] = 1e6
    plan = SODA.decide(cluster(jobs, nodes))
    assert preempted(plan) == {1: (9,)}
    after = carried_out(cluster(jobs, nodes), plan, leaving=False)
    assert verdicts(SODA.decide(after)) == {1: "START", 9: "START"}


def test_nobody_moves_for_what_goes_to_another_job() -> None:
    jobs = [running(1, (0, 2), remaining_s=1e3, preemptible=False), running(2, (1, 2), remaining_s=1e3), whole(9)]
    assert preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4)))) == {2: (9,)}
    # It goes first, and nobody may be preempted for it.
    jobs.append(whole(8, 3, remaining_s=1.0, may_preempt=False))
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))))


def test_nobody_moves_for_what_another_job_would_take_by_preempting_others() -> None:
    jobs = [
        running(1, (0, 1), remaining_s=1e3, preemptible=False),
        running(2, (1, 1), remaining_s=100.0),
        running(3, (2, 4), remaining_s=1e6),
        whole(9, remaining_s=1e7),
    ]
    assert preempted(SODA.decide(cluster(jobs, NodeTable.uniform(3, 4)))) == {2: (9,)}
    # It wants two whole nodes, goes first, and preempts the third job, but not the second, which goes before it.
    jobs.append(whole(8, 4, 2, remaining_s=10.0))
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(3, 4))))


def test_nobody_moves_while_others_leave_the_node() -> None:
    jobs = [
        running(1, (0, 1), remaining_s=1e3, preemptible=False),
        running(2, (1, 1), remaining_s=1e3),
        {**running(3, (1, 1)), "state": JobState.COMPLETING},
        whole(9),
    ]
    # It would take the two GPUs that are free there by now.
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))))


def test_who_may_not_have_its_new_places_stays() -> None:
    """A job without GPUs is overdue, and waits for all cores of the node to which another one would move."""
    nodes = NodeTable.uniform(2, 4, cpus=16, partitions=3)
    nodes = replace(nodes, in_partition=np.array([[True, True, False], [False, True, True]]))
    jobs = [
        {**running(1, (0, 0), partition="p0", time_limit_s=1100.0), "gpus": 0, "cpus": 8, "alloc": [(0, 0, 8)]},
        running(2, (1, 1), remaining_s=1e4, partition="p1", time_limit_s=1e5),
        waiting(7, 0, partition="p0", cpus=16, time_limit_s=1e4),
        whole(9, partition="p2"),
    ]
    snapshot = cluster(jobs, nodes)
    assert preempted(decide_bounded(SODA, snapshot)) == {2: (9,)}
    late = replace(snapshot, jobs=snapshot.jobs.with_columns(overdue=snapshot.jobs.job_id == 7), passing_limit_s=3600.0)
    plan = decide_bounded(SODA, late)
    assert (preempted(plan), plan.places) == ({}, {})
    assert verdicts(plan) == {1: "RUN", 2: "RUN", 7: "WAIT", 9: "WAIT"}


def test_nobody_moves_where_nothing_else_is_free() -> None:
    jobs = [
        running(1, (0, 3), remaining_s=1e4, preemptible=False),
        running(2, (1, 2), remaining_s=1e4),
        whole(9, 3),
    ]
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))))


def test_the_cheapest_ones_move_and_nobody_who_need_not() -> None:
    beside = [
        running(1, (0, 2), remaining_s=1e4),
        running(2, (0, 1), remaining_s=1e4),
        running(3, (0, 1), remaining_s=1e4),
    ]
    other = running(4, (1, 4), remaining_s=1e4, preemptible=False)
    for gpus, movers in ((5, {2}), (6, {1}), (7, {1, 2}), (8, {1, 2, 3})):
        assert set(preempted(SODA.decide(cluster([*beside, other, whole(9, gpus)], mixed_nodes(8, 8))))) == movers


def test_a_gang_over_several_nodes_clears_as_many_as_it_lacks() -> None:
    jobs = [
        running(1, (0, 1), remaining_s=1e4),
        running(2, (1, 1), remaining_s=1e4),
        running(3, (2, 1), remaining_s=1e4),
        whole(9, 4, 2),
    ]
    plan = SODA.decide(cluster(jobs, NodeTable.uniform(4, 4)))
    assert len(preempted(plan)) == 1
    assert len(set(nodes_of(plan, 9))) == 2
    jobs.append(running(4, (3, 1), remaining_s=1e4))
    assert len(preempted(SODA.decide(cluster(jobs, NodeTable.uniform(4, 4))))) == 2


def test_a_gang_does_not_move_to_more_nodes() -> None:
    jobs = [
        running(1, (0, 3), remaining_s=1e4, preemptible=False),
        running(2, (1, 2), remaining_s=1e4),
        running(3, (2, 3), remaining_s=1e4, preemptible=False),
        whole(9, 4),
    ]
    # Two single GPUs are free elsewhere.
    assert not preempted(SODA.decide(cluster(jobs, NodeTable.uniform(3, 4))))


def test_who_shares_a_gpu_stays() -> None:
    jobs = [
        on(1, 1e4, 0, preemptible=False),
        on(2, 1e4, 4),
        job(9, 1e5, 4, gpus_per_node=4, shares=False),
    ]
    alone = decide(scene(jobs, NodeTable.uniform(2, 4), Table(else_xi=1.1)))
    assert preempted(alone) == {2: (9,)}
    shared = decide(scene([*jobs, on(3, 1e4, 4, preemptible=False)], NodeTable.uniform(2, 4), Table(else_xi=1.1)))
    assert not preempted(shared)


@given(worlds())
@on_some_worlds
def test_whoever_moves_has_a_place_at_once_and_so_has_the_one_it_moves_for(snapshot: ClusterSnapshot) -> None:
    plan, jobs = SODA.decide(snapshot), snapshot.jobs
    for action in plan.preempts:
        if not action.reason.startswith("it moves"):
            continue
        row = jobs.row(action.job_id)
        assert jobs.preemptible[row]
        assert plan.notes.verdict[row] == JobVerdict.PREEMPT
        assert sum(piece.gpus for piece in plan.places[action.job_id]) == jobs.gpus[row]
        assert len(plan.places[action.job_id]) <= jobs.alloc_start[row + 1] - jobs.alloc_start[row]
        (served,) = action.for_jobs
        assert plan.notes.verdict[jobs.row(served)] == JobVerdict.WAIT_FOR_PREEMPTION
