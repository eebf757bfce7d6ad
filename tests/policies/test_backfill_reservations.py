"""Backfill that delays none of several blocked jobs, as Slurm's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from slurm_soda.policies.backfill import Backfill
from slurm_soda.policies.snapshot import NodeTable

from tests.policies.cases import cluster, running, waiting


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
