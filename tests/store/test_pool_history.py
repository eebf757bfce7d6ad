"""The jobs that shares are derived from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.jobs.past_pool_jobs import past_pool_jobs
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob

NOW_S = 100_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    yield store
    store.close()


def add_job(
    store: Store, job_id: int, runs: list[tuple[float, float | None, str]], end_s: float | None = None, **values: Any
) -> None:
    """``restarts`` numbers the runs."""
    restarts = values.pop("restarts", range(len(runs)))
    with store.write() as session:
        counts = {"submit_s": 1.0, "gpus": 1, "nodes": 1, "cpus": 4, **values}
        job = Job(job_id=job_id, user="alice", state="COMPLETED", last_seen_s=NOW_S, end_s=end_s, **counts)
        session.add(job)
        session.flush()
        for restart, (start_s, ended_s, nodes) in zip(restarts, runs, strict=True):
            session.add(
                JobRun(job_pk=job.id, restart=restart, start_s=start_s, end_s=ended_s, node_names=nodes, gpus=1)
            )


def add_fit(store: Store, job_id: int, search: int, cores: int, node: str = "n1", **values: Any) -> None:
    known = {
        "submit_s": 1.0, "restart": 0, "at_s": 110.0 + search, "user": "alice", "nodes": 1, "gpus": 1, "asked_cores": 4,
        "start_cores": 4, "most_cores": 8, "steps": 2, "start_ratio": 0.5, "utilisation_ratio": 0.9, "reason": "best_fit",
    }  # fmt: skip
    with store.write() as session:
        session.add(CpuFitRow(job_id=job_id, search=search, cores=cores, node=node, **{**known, **values}))


def ask(store: Store, since_s: float = 0.0) -> list[PastPoolJob]:
    with store.read() as session:
        return past_pool_jobs(session, since_s=since_s, now_s=NOW_S, gpu_types={"n1": "a100", "h1": "h100"})


def test_runs_are_summed_up_and_the_last_node_tells_the_type(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1"), (300.0, 350.0, "h1")], gpus=2, cpus=9)
    add_job(store, 2, [(NOW_S - 10, None, "n[1-3]")], gpus=4, nodes=3)
    add_job(store, 3, [(0.0, 10.0, "gone")], gpus=0)
    add_job(store, 4, [])
    assert ask(store) == [
        PastPoolJob(2, 1, 9, 150.0, None, "h100"), PastPoolJob(4, 3, 4, 10.0, None, "a100"), PastPoolJob(0, 1, 4, 10.0),
    ]  # fmt: skip


def test_what_ended_earlier_is_left_out(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1"), (300.0, 350.0, "n1")])
    add_job(store, 2, [(100.0, 200.0, "n1")])
    assert [job.run_s for job in ask(store, since_s=250.0)] == [50.0]


def test_only_what_lies_within_the_time_counts(store: Store) -> None:
    add_job(store, 1, [(100.0, 400.0, "n1")])
    assert [job.run_s for job in ask(store, since_s=250.0)] == [150.0]


def test_a_run_that_nobody_saw_end_was_over_when_its_job_was(store: Store) -> None:
    add_job(store, 1, [(100.0, None, "n1")], end_s=180.0)
    add_job(store, 2, [(100.0, None, "n1")])
    assert [job.run_s for job in ask(store)] == [80.0, NOW_S - 100.0]
    assert [job.run_s for job in ask(store, since_s=200.0)] == [NOW_S - 200.0]


def test_a_run_that_was_found_later_is_not_the_last_one(store: Store) -> None:
    add_job(store, 1, [(300.0, 350.0, "h1"), (100.0, 200.0, "n1")], restarts=(1, 0))
    assert [job.gpu_type for job in ask(store)] == ["h100"]


def test_the_newest_search_of_a_job_counts_and_its_hungriest_node(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1")])
    for search, cores, node in ((0, 9, "n1"), (1, 5, "n1"), (1, 6, "n2")):
        add_fit(store, 1, search, cores, node)
    add_fit(store, 2, 7, 1)
    assert [job.best_cores for job in ask(store)] == [6]


def test_ends_that_tell_nothing_are_no_best(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1")])
    add_job(store, 2, [(100.0, 200.0, "n1")])
    add_fit(store, 1, 0, 3)
    for search, reason in enumerate(("cut_short", "independent", "idle"), start=1):
        add_fit(store, 1, search, 8, reason=reason)
        add_fit(store, 2, search, 8, reason=reason)
    assert [job.best_cores for job in ask(store)] == [3, None]


def test_a_later_run_counts_though_its_searches_are_numbered_anew(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1"), (300.0, 400.0, "n1")])
    add_fit(store, 1, 4, 9)
    add_fit(store, 1, 0, 5, restart=1, at_s=350.0)
    assert [job.best_cores for job in ask(store)] == [5]


def test_an_agent_that_lost_its_records_numbers_its_searches_anew(store: Store) -> None:
    add_job(store, 1, [(100.0, 900.0, "n1")])
    add_fit(store, 1, 0, 9, at_s=200.0)
    add_fit(store, 1, 1, 8, at_s=300.0)
    add_fit(store, 1, 0, 5, at_s=400.0)
    assert [job.best_cores for job in ask(store)] == [5]


def test_a_fit_belongs_to_the_job_of_its_time(store: Store) -> None:
    """Agents tell what they spooled before a restarted sodad's first cycle; and a submission may be corrected later."""
    add_job(store, 1, [(100.0, 200.0, "n1")], end_s=200.0, submit_s=90.0)
    add_job(store, 1, [(5100.0, 5200.0, "n1")], end_s=5200.0, submit_s=5090.0)
    add_fit(store, 1, 0, 3, at_s=150.0, submit_s=None)
    add_fit(store, 1, 0, 7, at_s=5150.0, submit_s=5095.0)
    assert [job.best_cores for job in ask(store)] == [3, 7]
