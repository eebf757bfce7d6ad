"""The jobs that shares are derived from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_soda.daemon.store.array_history import past_jobs
from slurm_soda.daemon.store.cores_schema import CoreFitted
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.schema import Job, Run
from slurm_soda.policies.arrays.history import PastJob

NOW_S = 100_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    yield store
    store.close()


def add_job(store: Store, job_id: int, runs: list[tuple[float, float | None, str]], **values: int) -> None:
    with store.write() as session:
        counts = {"gpus": 1, "nodes": 1, "cpus": 4, **values}
        job = Job(job_id=job_id, submit_s=1.0, user="alice", state="COMPLETED", last_seen_s=NOW_S, **counts)
        session.add(job)
        session.flush()
        for restart, (start_s, end_s, nodes) in enumerate(runs):
            session.add(Run(job_pk=job.id, restart=restart, start_s=start_s, end_s=end_s, node_names=nodes, gpus=1))


def add_fit(store: Store, job_id: int, search: int, cores: int, node: str = "n1", submit_s: float | None = 1.0) -> None:
    with store.write() as session:
        session.add(
            CoreFitted(
                job_id=job_id,
                submit_s=submit_s,
                restart=0,
                node=node,
                at_s=search + 1.0,
                search=search,
                user="alice",
                nodes=1,
                gpus=1,
                asked_cores=4,
                start_cores=4,
                most_cores=8,
                cores=cores,
                steps=2,
                start_ratio=0.5,
                utilisation_ratio=0.9,
                reason="settled",
            )
        )


def ask(store: Store, since_s: float = 0.0) -> list[PastJob]:
    with store.read() as session:
        return past_jobs(session, since_s=since_s, now_s=NOW_S, gpu_types={"n1": "a100", "h1": "h100"})


def test_runs_are_summed_up_and_the_last_node_tells_the_type(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1"), (300.0, 350.0, "h1")], gpus=2, cpus=9)
    add_job(store, 2, [(NOW_S - 10, None, "n[1-3]")], gpus=4, nodes=3)
    add_job(store, 3, [(0.0, 10.0, "gone")], gpus=0)
    add_job(store, 4, [])
    assert ask(store) == [
        PastJob(2, 1, 9, 150.0, None, "h100"), PastJob(4, 3, 4, 10.0, None, "a100"), PastJob(0, 1, 4, 10.0),
    ]  # fmt: skip


def test_what_ended_earlier_is_left_out(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1"), (300.0, 350.0, "n1")])
    add_job(store, 2, [(100.0, 200.0, "n1")])
    assert [job.run_s for job in ask(store, since_s=250.0)] == [50.0]


def test_the_newest_search_of_a_job_counts_and_its_hungriest_node(store: Store) -> None:
    add_job(store, 1, [(100.0, 200.0, "n1")])
    for search, cores, node in ((0, 9, "n1"), (1, 5, "n1"), (1, 6, "n2")):
        add_fit(store, 1, search, cores, node)
    add_fit(store, 1, 7, 1, submit_s=None)
    add_fit(store, 2, 7, 1)
    assert [job.best_cores for job in ask(store)] == [6]
