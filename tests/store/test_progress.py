"""What runs tell of their progress: kept once, and counted for the co-runners beside whom it was done. On each database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.progress import CoRunners, RunId, co_runners_name, runs_of_name, take_progress
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.wire.records import ReportedProgress

ALONE = CoRunners((), 0.0)


def told(at_s: float, iterations: float, job_id: int = 7, saved: float = -1.0, idle_s: float = 0.0) -> ReportedProgress:
    return ReportedProgress(job_id, 0, "n1", 90.0, at_s, at_s - 50.0, idle_s, iterations, 1000.0, saved, 64)


def take(store: Store, *records: ReportedProgress, **co_runners_of: CoRunners) -> None:
    """One report after the other; ``j7``: the co-runners of job 7's first run."""
    found = {RunId(int(name[1:]), 0): found for name, found in co_runners_of.items()}
    for one in records:
        with store.write() as session:
            take_progress(session, [one], found)


def paces(store: Store, job_id: int = 7) -> dict[str, tuple[float, float]]:
    """Iterations and seconds by co-runners."""
    with store.read() as session:
        rows = session.scalars(select(JobPaceRow).where(JobPaceRow.job_id == job_id))
        return {row.co_runners: (row.iterations, row.clock_s) for row in rows}


def test_a_run_alone_is_counted_from_its_first_line_on(store: Store) -> None:
    take(store, told(100, 10), told(110, 30), told(110, 30), told(105, 20), told(130, 70, idle_s=2.0), j7=ALONE)
    assert paces(store) == {"": (60.0, 30.0)}
    with store.read() as session:
        (row,) = session.scalars(select(JobProgressRow))
    assert (row.iterations, row.began_iterations, row.began_s, row.idle_s, row.saves) == (70, 10, 100, 2, 0)


@pytest.mark.parametrize("iterations", [30.0, 29.0, 0.0])
def test_counts_that_do_not_grow_count_for_nothing(store: Store, iterations: float) -> None:
    take(store, told(100, 10), told(110, 30), told(120, iterations), told(130, 40), j7=ALONE)
    assert paces(store) == {"": (20.0 + 40.0 - iterations, 20.0)}


def test_checkpoints_are_counted(store: Store) -> None:
    take(store, told(100, 10), told(110, 30, saved=25), told(120, 30, saved=25), told(130, 60, saved=55))
    with store.read() as session:
        (row,) = session.scalars(select(JobProgressRow))
    assert (row.saves, row.saved, row.saved_s) == (2, 55.0, 130.0)


def test_nobody_is_counted_whose_co_runners_are_not_known(store: Store) -> None:
    take(store, told(100, 10), told(110, 30), j8=ALONE)
    assert paces(store) == {}


def test_an_interval_in_which_somebody_came_counts_for_nobody(store: Store) -> None:
    pair = CoRunners((RunId(8, 0),), 115.0)
    take(store, told(100, 10), told(110, 30), j7=ALONE)
    take(store, told(120, 40), j7=pair)
    assert paces(store) == {"": (20.0, 10.0)}
    take(store, told(130, 45), told(140, 50), j7=pair)
    assert paces(store) == {"": (20.0, 10.0), "8.0": (10.0, 20.0)}


def test_co_runners_count_from_when_all_that_tell_it_iterate(store: Store) -> None:
    """While a guest loads its data its host is as fast as alone."""
    pair, other = CoRunners((RunId(8, 0),), 100.0), CoRunners((RunId(7, 0),), 100.0)
    take(store, told(100, 10), told(110, 30), told(120, 50), j7=pair)
    assert paces(store) == {"8.0": (40.0, 20.0)}
    take(store, told(121, 0, job_id=8), j8=other)
    take(store, told(130, 55), told(140, 60), told(150, 65), j7=pair)
    take(store, told(131, 10, job_id=8), told(141, 20, job_id=8), j8=other)
    assert paces(store) == {"8.0": (10.0, 20.0)}
    assert paces(store, 8) == {"7.0": (20.0, 20.0)}


def test_an_agent_that_was_restarted_elsewhere_in_its_clock_begins_anew(store: Store) -> None:
    take(store, told(100, 10), told(110, 30), replace(told(120, 50), clock_s=1.0), j7=ALONE)
    take(store, replace(told(130, 70), clock_s=11.0), j7=ALONE)
    assert paces(store) == {"": (40.0, 20.0)}


def test_co_runners_have_names() -> None:
    runs = (RunId(7, 0), RunId(12, 3))
    assert co_runners_name(reversed(runs)) == "7.0+12.3"
    assert runs_of_name("7.0+12.3") == runs
    assert runs_of_name("") == ()
