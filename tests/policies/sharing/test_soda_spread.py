"""soda where it is measured how much slower jobs run on more nodes than they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.engine.plan_check import check_sharing_plan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.policies.snapshot_file.values import EncodingError
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES, SpreadSlowdowns
from slurm_soda.policies.waiting.bounded import decide_bounded
from slurm_soda.policies.waiting.overdue import mark_overdue
from tests.policies.cases import cluster, preempted, running, verdicts, waiting
from tests.policies.sharing.test_soda_properties import odd_scenes, where_sharing_pays
from tests.policies.test_properties import assert_not_overdrawn, free_now, vacated
from tests.policies.worlds import on_some_worlds, worlds

SODA = Soda(change_s=10.0)


def known(snapshot: ClusterSnapshot, slowdowns: dict[int, float], *, binding: bool = True) -> ClusterSnapshot:
    """The snapshot with slowdowns of jobs by id, measured without error."""
    values = sorted(set(slowdowns.values()))
    table = np.array([[value] * EXTRA_NODES for value in values]).reshape(-1, EXTRA_NODES)
    ids = snapshot.jobs.job_id.tolist()
    kind = np.array([values.index(slowdowns[one]) if one in slowdowns else -1 for one in ids], dtype=np.int64)
    return replace(snapshot, spread=SpreadSlowdowns(table, table, kind, binding=binding))


def two_half_free(left_s: float, *others: dict[str, Any], **gang: Any) -> ClusterSnapshot:
    """Two nodes of 4 GPUs with 2 free on each; job 1 leaves the first in so long; job 9 wants 4."""
    jobs = [
        running(1, (0, 2), remaining_s=left_s, preemptible=False),
        running(2, (1, 2), remaining_s=1e6, preemptible=False),
        waiting(9, **{"gpus": 4, "cpus": 4, "remaining_s": 1000.0, **gang}),
    ]
    return cluster([*jobs, *others], NodeTable.uniform(2, 4))


def nodes_of(plan: Plan, job_id: int) -> list[int]:
    return sorted(piece.node for piece in plan.places.get(job_id, ()))


def test_who_loses_more_than_it_would_wait_waits_for_one_node() -> None:
    for left_s, slowdown, starts in (
        (100.0, 2.0, False),
        (2000.0, 2.0, True),
        (100.0, 1.05, True),
        (100.0, 1.2, False),
    ):
        plan = SODA.decide(known(two_half_free(left_s), {9: slowdown}))
        assert (nodes_of(plan, 9) == [0, 1]) == starts, (left_s, slowdown)
        assert (plan.next_event_s < np.inf) != starts, "it is looked at anew when the place should be there"


def test_what_it_waits_for_is_kept_and_the_rest_is_not() -> None:
    snapshot = known(two_half_free(100.0, waiting(10, gpus=2, remaining_s=5000.0)), {9: 2.0})
    assert nodes_of(SODA.decide(snapshot), 10) == [1]
    snapshot = known(two_half_free(100.0, waiting(10, gpus=4, remaining_s=5000.0)), {9: 2.0})
    assert verdicts(SODA.decide(snapshot))[10] == "WAIT"


def test_those_behind_count_what_idles_and_what_takes_longer() -> None:
    """It loses 800 s on four GPUs by starting now, and 900 s by waiting, in which two GPUs idle."""
    behind = [waiting(20 + at, gpus=4, remaining_s=1e5) for at in range(40)]
    assert nodes_of(SODA.decide(known(two_half_free(900.0), {9: 1.8})), 9) == [0, 1]
    assert nodes_of(SODA.decide(known(two_half_free(900.0, *behind), {9: 1.8})), 9) == []


def test_who_is_slowed_little_leaves_whole_nodes() -> None:
    jobs = [
        running(1, (0, 2), remaining_s=1e6), running(2, (1, 2), remaining_s=1e6), waiting(9, gpus=4, remaining_s=1000.0),
    ]  # fmt: skip
    snapshot = cluster(jobs, NodeTable.uniform(3, 4))
    assert nodes_of(SODA.decide(snapshot), 9) == [2]
    assert nodes_of(SODA.decide(known(snapshot, {9: 1.0})), 9) == [0, 1]
    assert nodes_of(SODA.decide(known(snapshot, {9: 1.5})), 9) == [2]
    unsure = known(snapshot, {9: 1.0})
    unsure = replace(unsure, spread=replace(unsure.spread, at_most=unsure.spread.at_most + 0.2))
    assert nodes_of(SODA.decide(unsure), 9) == [2]


def test_others_make_way_where_that_costs_less() -> None:
    jobs = [
        running(1, (0, 2), remaining_s=1e6), running(2, (1, 2), remaining_s=2e6, preemptible=False),
        waiting(9, gpus=4, remaining_s=1000.0),
    ]  # fmt: skip
    snapshot = cluster(jobs, NodeTable.uniform(2, 4))
    assert preempted(SODA.decide(snapshot)) == {}
    plan = SODA.decide(known(snapshot, {9: 2.0}))
    assert preempted(plan) == {1: (9,)}
    assert nodes_of(plan, 9) == [0]
    assert preempted(SODA.decide(known(snapshot, {9: 1.001}))) == {}


def test_a_running_job_moves_where_that_gains_more_than_it_costs() -> None:
    for left_s, moves in ((1000.0, True), (5.0, False)):
        snapshot = cluster([running(1, (0, 2), (1, 2), remaining_s=left_s, nodes=1)], NodeTable.uniform(3, 4))
        plan = SODA.decide(known(snapshot, {1: 2.0}))
        assert set(preempted(plan)) == ({1} if moves else set())
        assert nodes_of(plan, 1) == ([2] if moves else [])
    held = cluster(
        [running(1, (0, 2), (1, 2), remaining_s=1000.0, nodes=1, preemptible=False)], NodeTable.uniform(3, 4)
    )
    assert not preempted(SODA.decide(known(held, {1: 2.0})))


def test_nobody_waits_for_a_place_that_nobody_will_leave() -> None:
    for change in ({"remaining_s": float("nan")}, {"remaining_s": 1e9, "time_limit_s": float("inf")}):
        snapshot = two_half_free(float("inf"))
        jobs = snapshot.jobs.with_columns(
            remaining_s=np.where(snapshot.jobs.job_id == 9, change["remaining_s"], np.inf)
        )
        assert nodes_of(SODA.decide(known(replace(snapshot, jobs=jobs), {9: 5.0})), 9) == [0, 1]


def test_whose_work_nobody_knows_starts_at_once() -> None:
    assert nodes_of(SODA.decide(known(two_half_free(10.0, remaining_s=float("nan")), {9: 5.0})), 9) == [0, 1]


def test_a_time_limit_bounds_what_is_lost() -> None:
    snapshot = two_half_free(500.0, remaining_s=1e5, time_limit_s=300.0)
    assert nodes_of(SODA.decide(known(snapshot, {9: 2.0})), 9) == [0, 1]


@pytest.mark.parametrize("gang", [{"gpus_per_node": 2, "nodes": 2}, {"nodes": 2}, {"gpus": 1}])
def test_what_was_asked_for_is_respected(gang: dict[str, Any]) -> None:
    snapshot = two_half_free(100.0, **gang)
    expected = nodes_of(SODA.decide(snapshot), 9)
    assert expected
    assert nodes_of(SODA.decide(known(snapshot, {9: 5.0})), 9) == expected


SLOWDOWNS = st.sampled_from([1.0, 1.05, 1.3, 2.0, 5.0])


@st.composite
def known_worlds(draw: st.DrawFn, *, binding: bool = True) -> ClusterSnapshot:
    snapshot = draw(worlds())
    ids = [one for one in snapshot.jobs.job_id.tolist() if draw(st.booleans())]
    return known(snapshot, {one: draw(SLOWDOWNS) for one in ids}, binding=binding)


@on_some_worlds
@given(snapshot=known_worlds(binding=False))
def test_where_slurm_chooses_nodes_nothing_changes(snapshot: ClusterSnapshot) -> None:
    assert plan_bytes(SODA.decide(snapshot)) == plan_bytes(SODA.decide(replace(snapshot, spread=SpreadSlowdowns())))


@on_some_worlds
@given(snapshot=worlds())
def test_where_nothing_is_measured_nothing_changes(snapshot: ClusterSnapshot) -> None:
    unknown = known(snapshot, {})
    assert plan_bytes(SODA.decide(unknown)) == plan_bytes(SODA.decide(snapshot))


@on_some_worlds
@given(snapshot=known_worlds())
def test_plans_are_sound(snapshot: ClusterSnapshot) -> None:
    plan, jobs = SODA.decide(snapshot), snapshot.jobs
    pool = free_now(snapshot)
    starts = set(plan.starts.tolist())
    for job_id in starts:
        pool.take(list(plan.places[job_id]))
    assert_not_overdrawn(pool)
    pool = free_now(snapshot)
    for pieces in vacated(snapshot, plan):
        pool.give(pieces)
    for pieces in plan.places.values():
        pool.take(list(pieces))
    assert_not_overdrawn(pool)
    demand = group_snapshot_requests(snapshot)
    for job_id, pieces in plan.places.items():
        shape = demand.shapes[int(demand.code[jobs.row(job_id)])]
        assert sum(piece.gpus for piece in pieces) == jobs.gpus[jobs.row(job_id)]
        assert len(pieces) >= (min(shape.nodes, shape.units) if shape.units else shape.nodes)
    leaving = [jobs.row(item.job_id) for item in plan.preempts]
    assert len(set(leaving)) == len(leaving)
    assert jobs.preemptible[leaving].all()
    assert (jobs.state[leaving] == JobState.RUNNING).all()
    assert set(plan.order.tolist()) == set(jobs.job_id[jobs.state == JobState.PENDING].tolist())
    assert plan.next_event_s > snapshot.now_s
    assert plan_bytes(SODA.decide(snapshot)) == plan_bytes(plan)


@on_some_worlds
@given(snapshot=known_worlds())
def test_only_the_sensitive_wait_though_they_fit(snapshot: ClusterSnapshot) -> None:
    """A job that is not measured as slower, and fits beside the plan, is not left waiting unless nodes are kept."""
    plan, jobs = SODA.decide(snapshot), snapshot.jobs
    slow = [row for row in range(len(jobs)) if snapshot.spread.expect(row, 1) > 1.0]
    if any(jobs.state[row] == JobState.PENDING and plan.notes.verdict[row] == JobVerdict.WAIT for row in slow):
        return
    demand, pool = group_snapshot_requests(snapshot), free_now(snapshot)
    for job_id, pieces in plan.places.items():
        if job_id in set(plan.starts.tolist()):
            pool.take(list(pieces))
    if plan.preempts:
        return
    for row in np.flatnonzero((plan.notes.verdict == JobVerdict.WAIT) & (jobs.gpus > 0)).tolist():
        assert pool.find(demand.shapes[int(demand.code[row])]) is None


@on_some_worlds
@given(snapshot=known_worlds())
def test_files_hold_what_is_known(snapshot: ClusterSnapshot) -> None:
    read = read_dump(write_dump(SnapshotDump(snapshot, SODA)))
    assert plan_bytes(read.decide()) == plan_bytes(SnapshotDump(snapshot, SODA).decide())


@pytest.mark.parametrize(("column", "value"), [
    ("kind", np.array([7, 0, 0])), ("kind", np.array([0])), ("expected", np.array([[0.5] * EXTRA_NODES])),
    ("at_most", np.array([[np.nan] * EXTRA_NODES])), ("expected", np.array([[1.5]])),
])  # fmt: skip
def test_files_with_odd_slowdowns_are_refused(column: str, value: Any) -> None:
    snapshot = known(two_half_free(100.0), {9: 2.0})
    odd = replace(snapshot, spread=replace(snapshot.spread, **{column: value}))
    with pytest.raises(EncodingError, match=f"snapshot.spread.{column}|snapshot.spread"):
        read_dump(write_dump(SnapshotDump(odd, SODA)))


@st.composite
def known_scenes(draw: st.DrawFn) -> SharingSnapshot:
    """Jobs that share GPUs, some of kinds that were measured on more nodes than they need."""
    snapshot = draw(st.one_of(odd_scenes(), odd_scenes().map(where_sharing_pays)))
    ids = [one for one in snapshot.jobs.job_id.tolist() if draw(st.booleans())]
    found = known(snapshot, {one: draw(SLOWDOWNS) for one in ids})
    assert isinstance(found, SharingSnapshot)
    return found


@on_some_worlds
@given(snapshot=known_scenes(), change_s=st.sampled_from([0.0, 60.0]))
def test_plans_of_jobs_that_share_can_be_carried_out(snapshot: SharingSnapshot, change_s: float) -> None:
    plan = Soda(change_s).decide(snapshot)
    check_sharing_plan(snapshot, plan, {one: plan.places[one] for one in plan.starts.tolist()}, most=2)
    leaving = [snapshot.jobs.row(item.job_id) for item in plan.preempts]
    assert len(set(leaving)) == len(leaving)
    assert snapshot.jobs.preemptible[leaving].all()
    assert plan.next_event_s >= snapshot.now_s


@on_some_worlds
@given(snapshot=known_worlds())
def test_who_is_overdue_starts_where_it_can(snapshot: ClusterSnapshot) -> None:
    """Under the passing limit a job that waited too long is served first, however slow it is there."""
    overdue = mark_overdue(snapshot, 1000.0)
    plan = decide_bounded(SODA, overdue)
    same = decide_bounded(SODA, replace(overdue, spread=SpreadSlowdowns()))
    for row in np.flatnonzero(overdue.jobs.overdue & (overdue.jobs.state == JobState.PENDING)).tolist():
        job_id = int(overdue.jobs.job_id[row])
        assert plan.places.get(job_id) == same.places.get(job_id)
