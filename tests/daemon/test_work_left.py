"""Run time left by the progress that jobs tell, over a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.learning.kept_words import KEPT_WITHIN, KeptWords, ReportingRun
from slurm_soda.daemon.learning.work_left import work_left
from slurm_soda.daemon.sharing.observed_pairs import ALONE_FOR_S, LATE_S
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.records import record

SUBMIT_S = 1_700_000_000.0
KIND = Estimate(0.5, 0.1, Source.MEASURED)


@pytest.fixture
def store(fresh_store: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    with store.write() as session:
        session.add(Job(job_id=7, submit_s=SUBMIT_S, user="alice", state="RUNNING", gpus=1, last_seen_s=SUBMIT_S))
    yield store
    store.close()


def tell(store: Store, restart: int = 0, **values: Any) -> None:
    """What a run of job 7 said."""
    with store.write() as session:
        session.add(JobProgressRow(**{
            "job_id": 7, "restart": restart, "node": "n1", "first_s": SUBMIT_S + 10, "began_s": SUBMIT_S + 11,
            "began_iterations": 0.0, "at_s": SUBMIT_S + 100, "clock_s": 89.0, "idle_s": 0.0, "iterations": 400.0,
            "total": 1000.0, "batch": 64, "saved": -1.0, "saves": 0, "saved_s": None, **values,
        }))  # fmt: skip


def left_of(
    store: Store, job: SlurmJob, now_s: float = SUBMIT_S + 100, words: KeptWords | None = None
) -> tuple[float, float] | None:
    work = work_left(store, [job], lambda _job: KIND, now_s, words or KeptWords()).get(7)
    return None if work is None else (work.left, work.each.value)


def running(restarts: int = 0, iterations: int | None = None) -> SlurmJob:
    hints = Hints(iterations=iterations)
    return record(7, state="RUNNING", gpus=1, restarts=restarts, hints=hints, start_s=SUBMIT_S + 10)


def waiting(restarts: int) -> SlurmJob:
    return record(7, state="PENDING", gpus=1, restarts=restarts)


def test_a_running_job_has_what_it_has_not_done_yet(store: Store) -> None:
    assert left_of(store, running()) is None
    tell(store)
    assert left_of(store, running()) == (600.0, KIND.value)
    assert left_of(store, running(iterations=500)) == (100.0, KIND.value), "its owner's word on the whole counts"
    assert left_of(store, running(restarts=1)) is None, "another run said it"


@pytest.mark.parametrize(("later_s", "left"), [(-5.0, 600.0), (4.0, 592.0), (LATE_S, 580.0), (60.0, 580.0)])
def test_a_running_job_has_gone_on_since_it_told(store: Store, later_s: float, left: float) -> None:
    """For as long as a reading may be old; one from the future is of a node whose clock is ahead."""
    tell(store, saved=300.0)
    assert left_of(store, running(), SUBMIT_S + 100 + later_s) == (pytest.approx(left), KIND.value)
    assert left_of(store, waiting(1), SUBMIT_S + 100 + later_s) == (700.0, KIND.value), "one that waits has not"


def test_a_job_that_should_just_have_ended_has_nothing_left(store: Store) -> None:
    tell(store, iterations=999.0)
    assert left_of(store, running(), SUBMIT_S + 105) == (0.0, KIND.value)


@pytest.mark.parametrize(
    "told",
    [
        {"total": 0.0},
        {"iterations": 1000.0},
        {"iterations": 1200.0},
        {"idle_s": LATE_S + 1},
        {"first_s": SUBMIT_S - 99},
    ],
)
def test_what_says_too_little_is_not_believed(store: Store, told: dict[str, float]) -> None:
    tell(store, **told)
    assert left_of(store, running()) is None


def test_a_requeued_job_begins_where_it_saved_its_state(store: Store) -> None:
    tell(store, saved=300.0)
    assert left_of(store, waiting(1)) == (700.0, KIND.value)
    assert left_of(store, waiting(2)) is None, "nobody knows what its last run did"


def test_a_requeued_job_that_saved_nothing_begins_anew(store: Store) -> None:
    tell(store)
    assert left_of(store, waiting(1)) == (1000.0, KIND.value)


def test_its_own_time_alone_counts_before_its_kinds(store: Store) -> None:
    tell(store)
    pace = {"job_id": 7, "restart": 0, "first_s": SUBMIT_S + 10, "began_s": SUBMIT_S + 11, "at_s": SUBMIT_S + 90}
    with store.write() as session:
        session.add(JobPaceRow(**pace, co_runners="8.0", iterations=10.0, clock_s=50.0))
    assert left_of(store, running()) == (600.0, KIND.value)
    with store.write() as session:
        session.add(JobPaceRow(**pace, co_runners="", iterations=100.0, clock_s=2 * ALONE_FOR_S))
    assert left_of(store, running()) == (600.0, 2 * ALONE_FOR_S / 100.0)


def tell_on(store: Store, after_s: float, done: float, total: float, each_s: float = 0.5) -> float:
    """What run 0 says when it has run so long, with iterations of ``each_s`` alone by its own word; the time."""
    at_s = SUBMIT_S + 10 + after_s
    with store.write() as session:
        session.query(JobProgressRow).delete()
        session.query(JobPaceRow).delete()
        pace = {"job_id": 7, "restart": 0, "first_s": SUBMIT_S + 10, "began_s": SUBMIT_S + 11, "at_s": at_s}
        session.add(JobPaceRow(**pace, co_runners="", iterations=100.0, clock_s=100.0 * each_s))
    tell(store, at_s=at_s, iterations=done, total=total, saved=done)
    return at_s


@pytest.mark.parametrize("each_s", [0.2, 0.5, 2.0])
def test_whoever_always_says_that_little_is_left_is_found_out(store: Store, each_s: float) -> None:
    """His whole grows with what he has done, so that ten iterations are always left."""
    words, believed_s = KeptWords(), 0.0
    for after_s in range(10, 200, 5):
        now_s = tell_on(store, after_s, after_s / each_s, after_s / each_s + 10.0, each_s)
        if left_of(store, running(), now_s, words) is not None:
            believed_s = after_s
    assert believed_s <= 10 + KEPT_WITHIN * (10.0 * each_s + LATE_S)
    assert left_of(store, waiting(1), words=words) is None, "nor is he believed while he waits for his next run"
    tell(store, restart=1)
    assert left_of(store, running(restarts=1), words=words) == (600.0, each_s), "which may be another one"


@pytest.mark.parametrize("slowed", [0.5, 1.0, 1.9])
def test_whoever_keeps_his_word_is_believed_to_the_end(store: Store, slowed: float) -> None:
    """Also one who takes nearly twice as long as he says, for instance as others are beside him."""
    words = KeptWords()
    for done in range(20, 1000, 49):
        now_s = tell_on(store, done * 0.5 * slowed, float(done), 1000.0)
        assert left_of(store, running(), now_s, words) is not None
    assert left_of(store, waiting(1), words=words) is not None


def test_words_of_jobs_that_are_gone_are_forgotten() -> None:
    words = KeptWords()
    for job_id in range(2000):
        assert words.is_kept(ReportingRun(job_id, 0, 0.0), 10.0, 5.0)
    assert not words.is_kept(ReportingRun(7, 0, 0.0), 60.0, 5.0)
    words.forget({7})
    assert len(words._until_s) == 1
    assert not words.was_kept(ReportingRun(7, 0, 0.0))
