"""Hints of slowdowns for jobs that tell no progress: from reports through a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.sharing.observed_pairs import ALONE_FOR_S
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.sodactl.live.slowdown_hints import hints_of_jobs
from slurm_soda.wire.records import JobUsage, NodeReport, ReportedProgress, SmUse

SUBMIT_S = 1_700_000_000.0
ALONE = SmUse((), 40.0, 32.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    with store.write() as session:
        session.add(Job(job_id=7, submit_s=SUBMIT_S, user="alice", state="RUNNING", gpus=1, last_seen_s=SUBMIT_S))
    yield store
    store.close()


def report(
    store: Store, *uses: SmUse, node: str = "n1", restart: int = 0, first_s: float = 10.0, tells: bool = False
) -> None:
    began_s = SUBMIT_S + first_s
    usage = JobUsage(7, restart, node, began_s, began_s + 100, 9, 0.8, 0.8, 1000.0, 1, 5.0, 100.0, "cgroup/v1", uses)
    told = (ReportedProgress(7, restart, node, began_s, began_s + 50, 50.0, 0.0, 100.0),) if tells else ()
    with store.write() as session:
        store_report(session, NodeReport(node, "a", 1, began_s, usage=(usage,), progress=told), began_s)


def hints(store: Store) -> list[tuple[tuple[int, ...], float]] | None:
    with store.read() as session:
        found = hints_of_jobs(session, [7]).get(7)
    return None if found is None else [(hint.co_runners, pytest.approx(hint.slowdown)) for hint in found]


@pytest.mark.parametrize(
    ("uses", "found"),
    [
        ([ALONE, SmUse((8,), 20.0, 8.0)], [((8,), 2.0)]),
        ([ALONE, SmUse((8,), 20.0, 8.0), SmUse((8, 9), 30.0, 6.0)], [((8,), 2.0), ((8, 9), 4.0)]),
        ([ALONE, SmUse((8,), 20.0, 18.0)], [((8,), 1.0)]),  # nobody is faster beside another
        ([ALONE, SmUse((8,), ALONE_FOR_S - 1, 4.0)], []),
        ([SmUse((), ALONE_FOR_S - 1, 4.0), SmUse((8,), 20.0, 8.0)], []),
        ([ALONE, SmUse((8,), 20.0, 0.0)], []),  # as where a driver names the server of MPS alone
        ([SmUse((), 40.0, 0.0), SmUse((8,), 20.0, 8.0)], []),
        ([], []),
    ],
)
def test_the_slowdown_is_use_alone_over_use_beside_others(
    store: Store, uses: list[SmUse], found: list[tuple[tuple[int, ...], float]]
) -> None:
    report(store, *uses)
    assert hints(store) == found


def test_runs_add_up_on_each_node_and_the_slowest_node_counts(store: Store) -> None:
    report(store, ALONE)
    report(store, SmUse((8,), 20.0, 8.0), restart=1)
    report(store, ALONE, SmUse((8,), 20.0, 4.0), node="n2", restart=1)
    report(store, SmUse((8,), 20.0, 1.0), node="n3", restart=1)  # never alone there
    report(store, SmUse((8,), 900.0, 1.0), restart=2, first_s=-5000.0)  # an earlier job's of this id
    assert hints(store) == [((8,), 4.0)]


def test_who_tells_his_progress_needs_no_hint(store: Store) -> None:
    report(store, ALONE, SmUse((8,), 20.0, 8.0), tells=True)
    assert hints(store) is None
