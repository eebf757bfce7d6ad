"""Backfill that delays none of several blocked jobs, as Slurm's does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.baselines.backfill import Backfill, find_next_turn_s
from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.backfill_reservations import (
    STATES_HOLDING_RESOURCES,
    BackfillReservation,
    ReservationCalendar,
)
from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.run_time_estimates import LIMIT, estimate_ends_s, estimate_runs_s
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from tests.policies.cases import cluster, running, waiting
from tests.policies.worlds import on_some_worlds, worlds

Stay = tuple[float, float, list[NodeAllocation]]
"""From when until when a job holds which places."""


def busy(job_id: int, *alloc: tuple[int, int], ends_in_s: float) -> dict[str, Any]:
    return running(job_id, *alloc, since_s=100.0, time_limit_s=100.0 + ends_in_s)


def job(job_id: int, gpus: int, limit_s: float) -> dict[str, Any]:
    return waiting(job_id, gpus, time_limit_s=limit_s, submit_s=float(job_id))


# Ten GPUs, six of them busy for 100 s; job 2 needs eight, due in 100 s; job 3 needs all, due when job 2 is over.
JOBS = [busy(1, (0, 6), ends_in_s=100), job(2, 8, 50), job(3, 10, 10)]


@pytest.mark.parametrize(
    ("reservations", "behind", "starts", "due"),
    [
        (1, job(4, 2, 9999), [4], {2: 100}),
        (2, job(4, 2, 9999), [], {2: 100, 3: 150}),
        (2, job(4, 2, 150), [4], {2: 100, 3: 150}),
        (3, job(4, 2, 151), [], {2: 100, 3: 150, 4: 160}),
    ],
)
def test_nobody_delays_a_job_with_a_reservation(
    reservations: int, behind: dict[str, Any], starts: list[int], due: dict[int, float]
) -> None:
    snapshot = cluster([*JOBS, behind], NodeTable.uniform(1, 10))
    plan = Backfill(reservations=reservations).decide(snapshot)
    notes = [plan.notes.of(job_id) for job_id in plan.notes.job_id.tolist()]
    assert plan.starts.tolist() == starts
    assert {note.job_id: note.reserved_in_s for note in notes if not np.isnan(note.reserved_in_s)} == due


# Two nodes of ten GPUs, the first with eight busy for 100 s, the second for 300 s; job 2 needs eight, due on the first.
@pytest.mark.parametrize(
    ("whole_nodes", "limit_s", "node"),
    [(False, 9999, 0), (True, 100, 0), (True, 101, 1)],
)
def test_a_whole_node_is_kept_from_those_that_outlast_its_start(whole_nodes: bool, limit_s: float, node: int) -> None:
    """Slurm plans with sets of nodes: two GPUs that stay free beside the reservation are not given away for longer."""
    busy_nodes = [busy(1, (0, 8), ends_in_s=100), busy(5, (1, 8), ends_in_s=300)]
    snapshot = cluster([*busy_nodes, job(2, 8, 50), job(3, 2, limit_s)], NodeTable.uniform(2, 10))
    plan = Backfill(whole_nodes=whole_nodes).decide(snapshot)
    assert plan.notes.of(2).reserved_in_s == 100
    assert [piece.node for piece in plan.places[3]] == [node]


@pytest.mark.parametrize(("limit_s", "due_s"), [(200.0, 100.0), (201.0, 350.0)])
def test_a_job_gets_the_gap_before_an_earlier_reservation_if_it_ends_within_it(limit_s: float, due_s: float) -> None:
    """As sched/backfill plans; jobs behind it that would delay it wait, though the earlier reservation is far off."""
    busy_nodes = [busy(1, (0, 6), ends_in_s=100), busy(5, (0, 4), ends_in_s=300)]
    snapshot = cluster([*busy_nodes, job(2, 10, 50), job(3, 6, limit_s)], NodeTable.uniform(1, 10))
    plan = Backfill(reservations=2, whole_nodes=True).decide(snapshot)
    assert plan.notes.of(2).reserved_in_s == 300
    assert plan.notes.of(3).reserved_in_s == due_s


@pytest.mark.parametrize("left_s", [0.0, -5.0])
def test_a_job_that_says_that_nothing_is_left_keeps_nobody_waiting(left_s: float) -> None:
    """Its reservation lasts for a moment: what others may have beside it is counted once."""
    told = job(2, 8, 9999) | {"remaining_s": 50.0}, job(3, 8, 9999) | {"remaining_s": left_s}
    snapshot = cluster([JOBS[0], *told, job(4, 1, 9999) | {"remaining_s": 9999.0}], NodeTable.uniform(1, 10))
    plan = Backfill(estimate="predicted", reservations=4).decide(snapshot)
    assert plan.starts.tolist() == [4]


@pytest.mark.parametrize(
    ("now_s", "starts", "asked_again_s"),
    [(210.0, [2, 4], float("inf")), (239.9, [2], 240.0), (240.0, [2, 4], float("inf")), (240.1, [2], 270.0)],
)
def test_behind_a_blocked_job_there_are_turns(now_s: float, starts: list[int], asked_again_s: float) -> None:
    """The first in line start whenever something happens; job 4, behind job 3, only at multiples of thirty seconds."""
    jobs = [busy(1, (0, 6), ends_in_s=900), job(2, 1, 50), job(3, 9, 50), job(4, 1, 50)]
    plan = Backfill(interval_s=30.0).decide(replace(cluster(jobs, NodeTable.uniform(1, 10)), now_s=now_s))
    assert plan.starts.tolist() == starts
    assert plan.next_event_s == asked_again_s


@pytest.mark.parametrize(
    ("now_s", "turn_s"), [(0.3 / 0.1 * 0.1, 0.30000000000000004), (0.31, 0.4), (7e8 + 0.1, 7e8 + 0.1)]
)
def test_a_turn_missed_by_rounding_is_that_turn(now_s: float, turn_s: float) -> None:
    assert find_next_turn_s(now_s, 0.1) == pytest.approx(turn_s, abs=1e-9)


def free_beside(
    free: FreeNodes, held: list[Stay], kept: list[BackfillReservation], moment: float, run_s: float
) -> FreeNodes:
    """What a job has that runs from a moment on, beside all that holds or is to hold anything at any time until it ends."""
    there = free.copy()
    for _, end, pieces in held:
        if end <= moment:
            there.give(pieces)
    for item in kept:
        if item.start_s < moment + run_s and item.end_s > moment:
            there.take(item.pieces)
    return there


@on_some_worlds
@given(snapshot=worlds(), whole_nodes=st.booleans())
def test_nothing_is_promised_twice_at_any_time_nor_later_than_it_could_be(
    snapshot: ClusterSnapshot, whole_nodes: bool
) -> None:
    """All waiting jobs start now or get the earliest reservation; all that runs and is promised fits at every moment."""
    jobs, nodes, demand = snapshot.jobs, snapshot.nodes, group_snapshot_requests(snapshot)
    ends, runs = estimate_ends_s(snapshot, LIMIT), estimate_runs_s(snapshot, LIMIT)
    free = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
    calendar = ReservationCalendar(snapshot, free, ends, whole_nodes=whole_nodes)
    behind: list[tuple[int, Stay]] = []
    """Whoever got its places after so many reservations had been made."""
    stays: list[Stay] = [
        (snapshot.now_s, float(ends[row]), list_allocations(jobs, row))
        for row in np.flatnonzero(np.isin(jobs.state, STATES_HOLDING_RESOURCES)).tolist()
    ]
    held = stays.copy()
    for row in np.flatnonzero(jobs.state == JobState.PENDING).tolist():
        shape, run_s = demand.shapes[int(demand.code[row])], float(runs[row])
        pieces = calendar.lane(calendar.find_delayed(shape, snapshot.now_s + run_s)).find(shape)
        if pieces is not None:
            free.take(pieces)
            calendar.start(pieces, snapshot.now_s + run_s)
            held.append((snapshot.now_s, snapshot.now_s + run_s, pieces))
            stays.append(held[-1])
            behind.append((len(calendar.reservations), stays[-1]))
        elif made := calendar.reserve(shape, run_s):
            earlier = calendar.reservations[:-1]
            for moment in {end for _, end, _ in stays if end < made.start_s} if not whole_nodes else ():
                assert free_beside(free, held, earlier, moment, run_s).find(shape) is None
            stays.append((made.start_s, made.end_s, made.pieces))
            behind.append((len(calendar.reservations) - 1, stays[-1]))
    whole = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    for moment in {start for start, _, _ in stays}:
        there = whole.copy()
        for start, end, pieces in stays:
            if start <= moment < end:
                there.take(pieces)
        assert min(there.gpus.min(), there.cpus.min(), there.memory_mib.min()) >= 0
    if whole_nodes:
        for number, item in enumerate(calendar.reservations):
            kept = {piece.node for piece in item.pieces}
            for start, end, pieces in (stay for before, stay in behind if before > number):
                assert end <= item.start_s or item.end_s <= start or kept.isdisjoint(piece.node for piece in pieces)
