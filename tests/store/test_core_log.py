"""What is told of jobs' cores, from a store that holds years of them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from slurm_soda.daemon.store import cpu_fit_report
from slurm_soda.daemon.store.cpu_fit_report import CpuFitFilters, read_cpu_fit_jobs, read_cpu_fit_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.cpu_fit import CpuMeasurementRow
from slurm_soda.daemon.store.tables.scheduling import Job


def add(store: Store, job_id: int, submit_s: float, category: str = "cv", **values: Any) -> None:
    hints = {"category": category, "model": "resnet50"} if category else {}
    known = {"user": "alice", "state": "PENDING", "gpus": 1, "hints": hints}
    with store.write() as session:
        session.add(Job(job_id=job_id, submit_s=submit_s, **{**known, **values}))


@pytest.fixture
def jobs(store: Store) -> Store:
    """Nine jobs, submitted in another order than that of their ids, two of them at once."""
    for job_id in range(1, 10):
        add(store, job_id, 1000.0 - 10 * min(job_id, 8), ("cv", "nlp", "")[job_id % 3], user=f"u{job_id % 2}")
    add(store, 20, 2000.0, gpus=0)
    return store


def listed(store: Store, limit: int = 0, **filters: Any) -> list[int]:
    with store.read() as session:
        return [job.job_id for job in read_cpu_fit_jobs(session, CpuFitFilters(**filters), limit)]


@pytest.mark.parametrize(
    ("filters", "limit", "ids"),
    [
        ({}, 0, [8, 9, 7, 6, 5, 4, 3, 2, 1]),
        ({}, 3, [3, 2, 1]),
        ({}, 8, [9, 7, 6, 5, 4, 3, 2, 1]),
        ({"user": "u1"}, 2, [3, 1]),
        ({"category": "nlp"}, 2, [4, 1]),
        ({"category": "cv"}, 0, [9, 6, 3]),
        ({"category": ""}, 0, [8, 5, 2]),
        ({"model": "resnet50", "user": "u0"}, 0, [6, 4]),
        ({"category": "x' OR 1=1"}, 0, []),
        ({"since_s": 980.0}, 0, [2, 1]),
        ({"job_id": 7}, 1, [7]),
    ],
)
def test_the_newest_jobs_that_are_meant(jobs: Store, filters: dict[str, Any], limit: int, ids: list[int]) -> None:
    assert listed(jobs, limit, **filters) == ids


def test_the_store_looks_for_them(jobs: Store) -> None:
    rows: list[int] = []

    def hear(job: Job, _: object) -> None:
        rows.append(job.job_id)

    event.listen(Job, "load", hear)
    try:
        assert listed(jobs, 2, category="cv") == [6, 3]
    finally:
        event.remove(Job, "load", hear)
    assert sorted(rows) == [3, 6]


def test_of_one_job_the_newest_measurements_are_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_fit_report, "MAX_MEASUREMENTS", 5)
    add(store, 7, 100.0)
    with store.write() as session:
        for search in range(4):
            for step in range(3):
                session.add(
                    CpuMeasurementRow(
                        job_id=7, restart=0, node="n1", at_s=200.0 + 10 * search + step, search=search, step=step,
                        cores=1, most_cores=4, gpus=1, utilisation_ratio=0.5, spread_ratio=0.0, samples=9,
                    )
                )  # fmt: skip
    with store.read() as session:
        report = read_cpu_fit_report(session, CpuFitFilters(job_id=7), 1)
    assert [(row.search, row.step) for row in report.measurements] == [(2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]
