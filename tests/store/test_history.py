"""What finished jobs used: sums, peaks, sources, and time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete
from sqlalchemy.orm import make_transient

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.finished_jobs import FinishedJob, finished_jobs
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from tests.sampling import examples

SUBMIT_S = 1_700_000_000.0


def job(job_id: int = 7, **values: Any) -> Job:
    defaults: dict[str, Any] = {"submit_s": SUBMIT_S, "user": "alice", "state": "COMPLETED", "gpus": 2, "nodes": 1,
                                "cpus": 8, "end_s": SUBMIT_S + 100}  # fmt: skip
    return Job(job_id=job_id, **{**defaults, **values})


def run(restart: int, start: float, end: float | None) -> JobRun:
    return JobRun(restart=restart, start_s=SUBMIT_S + start, end_s=None if end is None else SUBMIT_S + end, gpus=2)


def usage(restart: int = 0, node: str = "n1", first: float = 0, last: float = 10, **values: Any) -> JobNodeUsage:
    defaults: dict[str, Any] = {"job_id": 7, "samples": 5, "gpu_count": 2, "gpu_util_ratio": 0.5, "cpu_s": 10.0,
                                "gpu_util_last_ratio": 0.5, "gpu_memory_peak_mib": 1000.0,
                                "memory_peak_mib": 300.0}  # fmt: skip
    times = {"first_s": SUBMIT_S + first, "last_s": SUBMIT_S + last}
    return JobNodeUsage(restart=restart, node=node, **times, **{**defaults, **values})


def put(store: Store, entry: Job, runs: list[JobRun], records: list[JobNodeUsage]) -> None:
    with store.write() as session:
        session.add(entry)
        session.flush()
        for one in runs:
            one.job_pk = entry.id
        session.add_all([*runs, *records])


def only(store: Store, **filters: Any) -> FinishedJob:
    with store.read() as session:
        (row,) = finished_jobs(session, **filters)
    return row


def test_a_preempted_job_waits_before_and_between_its_runs(store: Store) -> None:
    put(store, job(preemptions=1), [run(0, 10, 30), run(1, 50, 100)], [])
    row = only(store)
    assert (row.jct_s, row.run_s, row.queue_s, row.first_wait_s) == (100, 70, 30, 10)
    assert (row.runs, row.preemptions, row.start_s, row.last_start_s) == (2, 1, SUBMIT_S + 10, SUBMIT_S + 50)


def test_a_job_cancelled_while_waiting_never_ran(store: Store) -> None:
    put(store, job(state="CANCELLED"), [], [])
    row = only(store)
    assert (row.run_s, row.queue_s, row.first_wait_s, row.start_s, row.runs) == (0, 100, 100, None, 0)
    assert (row.gpu_util_ratio, row.gpu_memory_peak_mib, row.cpu_s, row.memory_peak_mib) == (None, None, None, None)
    assert row.sources == {"gpu": None, "cpu_s": None, "memory_peak_mib": None}


def test_a_run_without_an_end_ends_with_the_job(store: Store) -> None:
    put(store, job(), [run(0, 40, None)], [])
    assert only(store).run_s == 60


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([usage()], (0.5, 1000, 10, 300)),
        ([usage(node="n1"), usage(node="n2", gpu_util_ratio=1.0)], (0.75, 2000, 20, 300)),
        ([usage(0), usage(1, first=50, last=80, gpu_util_ratio=1.0, gpu_memory_peak_mib=1500, memory_peak_mib=100)],
         (0.875, 1500, 20, 300)),
        ([usage(gpu_count=0, gpu_util_ratio=0, gpu_memory_peak_mib=0)], (None, None, 10, 300)),
        ([usage(first=0, last=0)], (0.5, 1000, 10, 300)),
        ([usage(cpu_s=4), usage(first=5, cpu_s=9)], (0.5, 1000, 9, 300)),
        ([usage(first=-4000, last=-3900, gpu_util_ratio=1, cpu_s=99), usage()], (0.5, 1000, 10, 300)),
        ([usage(first=4000, last=4100, cpu_s=99)], (None, None, None, None)),
    ],
    ids=["one node", "two nodes", "two runs by their time", "no GPU", "one sample", "one run reported twice",
         "an older job of this id", "a later job of this id"],
)  # fmt: skip
def test_usage_adds_up(
    store: Store, records: list[JobNodeUsage], expected: tuple[float | None, float | None, float | None, float | None]
) -> None:
    for record in records:
        make_transient(record)  # it may be in another store already
    put(store, job(), [run(0, 10, 30), run(1, 50, 100)], records)
    row = only(store)
    assert (row.gpu_util_ratio, row.gpu_memory_peak_mib, row.cpu_s, row.memory_peak_mib) == expected


def test_accounting_wins_where_it_knows(store: Store) -> None:
    put(store, job(cpu_s=42.0), [run(0, 10, 100)], [usage()])
    row = only(store)
    assert (row.cpu_s, row.memory_peak_mib) == (42.0, 300.0)
    assert row.sources == {"gpu": "agent", "cpu_s": "accounting", "memory_peak_mib": "agent"}


def test_filters_and_order(store: Store) -> None:
    for number in range(1, 6):
        user = "bob" if number == 3 else "alice"
        put(store, job(number, user=user, end_s=SUBMIT_S + 10 * number), [], [])
    put(store, job(6, end_s=None, state="RUNNING"), [], [])

    def ids(**filters: Any) -> list[int]:
        with store.read() as session:
            return [row.job_id for row in finished_jobs(session, **filters)]

    assert ids() == [1, 2, 3, 4, 5]
    assert ids(limit=2) == [4, 5]
    assert ids(user="bob") == [3]
    assert ids(job_id=4) == [4]
    assert ids(since_s=SUBMIT_S + 40) == [4, 5]


def test_more_jobs_than_one_query_holds(store: Store) -> None:
    with store.write() as session:
        session.add_all([job(number) for number in range(1, 1203)])
        session.flush()
        session.add_all([usage(), *(usage(cpu_s=5.0, job_id=n) for n in (1, 1202))])
    with store.read() as session:
        rows = {row.job_id: row for row in finished_jobs(session)}
    assert len(rows) == 1202
    assert (rows[1].cpu_s, rows[7].cpu_s, rows[1202].cpu_s, rows[600].cpu_s) == (5.0, 10.0, 5.0, None)


_RUNS = st.lists(st.floats(0, 1000), max_size=12).map(sorted)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=_RUNS, late=st.floats(0, 500))
def test_run_and_queue_time_are_the_completion_time(store: Store, edges: list[float], late: float) -> None:
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    end = (edges[-1] if edges else 0) + late
    with store.write() as session:
        session.execute(delete(JobRun))
        session.execute(delete(Job))
    put(store, job(end_s=SUBMIT_S + end), [run(i, start, stop) for i, (start, stop) in enumerate(pairs)], [])
    row = only(store)
    assert row.run_s + row.queue_s == pytest.approx(row.jct_s)
    assert 0 <= row.first_wait_s <= row.queue_s + 1e-6 or not pairs
    assert row.runs == len(pairs)


def test_keys_are_stable(store: Store) -> None:
    put(store, job(hints={"model": "resnet50"}), [run(0, 10, 100)], [usage()])
    assert sorted(asdict(only(store))) == sorted(
        ["job_id", "user", "account", "partition", "name", "state", "exit_code", "submit_s", "start_s", "last_start_s",
         "end_s", "queue_s", "run_s", "jct_s", "first_wait_s", "gpus", "nodes", "cpus", "gpu_util_ratio",
         "gpu_memory_peak_mib", "cpu_s", "memory_peak_mib", "sources", "runs", "preemptions", "hints"]
    )  # fmt: skip


def test_a_reused_id_means_the_newest_job(store: Store) -> None:
    put(store, job(7), [], [])
    put(store, job(7, submit_s=SUBMIT_S + 5000, end_s=None, state="PENDING"), [], [])
    with store.read() as session:
        newest = queries.find_job(session, 7)
        older = queries.find_job(session, 7, SUBMIT_S)
        assert newest is not None
        assert older is not None
        assert (newest.submit_s, older.state) == (SUBMIT_S + 5000, "COMPLETED")
        assert queries.find_job(session, 8) is None
        assert [entry.job_id for entry in queries.live_jobs(session)] == [7]
