"""Backfill that delays none of several blocked jobs, as Slurm's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from slurm_soda.policies.backfill import Backfill
from slurm_soda.policies.demand import demand_of
from slurm_soda.policies.estimates import LIMIT, expected_ends_s, expected_runs_s
from slurm_soda.policies.holders import held_by
from slurm_soda.policies.placement import NodeClasses, NodePool, Piece
from slurm_soda.policies.reservations import HOLDING, Calendar
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable

from tests.policies.cases import cluster, running, waiting
from tests.policies.worlds import on_some_worlds, worlds


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


@on_some_worlds
@given(snapshot=worlds())
def test_nothing_is_promised_twice_at_any_time(snapshot: ClusterSnapshot) -> None:
    """All waiting jobs start now or get a reservation; all that runs and all that is promised fits at every moment."""
    jobs, nodes, demand = snapshot.jobs, snapshot.nodes, demand_of(snapshot)
    ends, runs = expected_ends_s(snapshot, LIMIT), expected_runs_s(snapshot, LIMIT)
    free = NodePool(NodeClasses(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
    calendar = Calendar(snapshot, free, ends)
    stays: list[tuple[float, float, list[Piece]]] = [
        (snapshot.now_s, float(ends[row]), held_by(jobs, row))
        for row in np.flatnonzero(np.isin(jobs.state, HOLDING)).tolist()
    ]
    for row in np.flatnonzero(jobs.state == JobState.PENDING).tolist():
        shape, run_s = demand.shapes[int(demand.code[row])], float(runs[row])
        pieces = calendar.lane(calendar.minded(shape, snapshot.now_s + run_s)).find(shape)
        if pieces is not None:
            free.take(pieces)
            calendar.start(pieces, snapshot.now_s + run_s)
            stays.append((snapshot.now_s, snapshot.now_s + run_s, pieces))
        elif made := calendar.reserve(shape, run_s):
            stays.append((made.start_s, made.end_s, made.pieces))
    whole = NodePool(NodeClasses(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    for moment in {start for start, _, _ in stays}:
        there = whole.copy()
        for start, end, pieces in stays:
            if start <= moment < end:
                there.take(pieces)
        assert min(there.gpus.min(), there.cpus.min(), there.memory_mib.min()) >= 0
