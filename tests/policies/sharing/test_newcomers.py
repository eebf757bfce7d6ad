"""For whom a long job leaves free GPUs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.sjf.shorter_jobs import MUCH_LONGER, PATIENCE, ShorterJobs

Job = tuple[float, int, str]
"""Run time, GPUs, and whether it wants GPUs, runs, or neither."""
JOBS = st.lists(
    st.tuples(st.floats(1.0, 1e5), st.integers(0, 64), st.sampled_from(("wants", "runs", "neither"))), max_size=20
)


def newcomers(jobs: list[Job], lacks: float = 1.0, least_loss: float = 0.0) -> ShorterJobs:
    run_s, gpus, does = (list(column) for column in zip(*jobs, strict=True)) if jobs else ([], [], [])
    return ShorterJobs(
        np.array(run_s, np.float64), np.array(gpus, np.int64),
        np.array([one == "wants" for one in does], np.bool_), np.full(len(jobs), lacks),
        np.array([one == "runs" for one in does], np.bool_), least_loss=least_loss,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "gpus", "wanted"),
    [
        ([], 8, 0),
        ([(10.0, 4, "wants")], 8, 4),
        ([(10.0, 4, "neither")], 8, 0),
        ([(50.0, 4, "wants")], 8, 0),  # half as long is not much shorter
        ([(math.nan, 4, "wants"), (math.inf, 4, "wants")], 8, 0),
        ([(10.0, 1, "runs")] * 7, 1, 0),  # one job in the place of one
        ([(10.0, 1, "runs")] * 7, 4, 3),
        ([(10.0, 1, "runs")] * 2, 4, 2),
        ([(10.0, 2, "wants"), (10.0, 6, "runs")], 8, 2 + 4),
    ],
)
def test_gpus_wanted_by_much_shorter_jobs(jobs: list[Job], gpus: int, wanted: float) -> None:
    assert newcomers(jobs).wanted_gpus(100.0, gpus) == wanted


@given(JOBS, st.floats(1.0, 1e5), st.integers(1, 64))
def test_it_is_what_the_definition_says(jobs: list[Job], run_s: float, gpus: int) -> None:
    shorter = [
        (size, does) for time_s, size, does in jobs if size and does != "neither" and time_s < run_s / MUCH_LONGER
    ]
    want, held = (sum(size for size, does in shorter if does == what) for what in ("wants", "runs"))
    mean = (want + held) / len(shorter) if shorter else 0.0
    assert newcomers(jobs).wanted_gpus(run_s, gpus) == pytest.approx(want + min(held, max(gpus - mean, 0.0)))


def test_it_goes_when_there_is_room_for_both_and_when_it_waited_long() -> None:
    few = newcomers([(10.0, 1, "wants"), (10.0, 3, "wants")])
    assert few.should_leave_gpus(100.0, 8, 0.0, 11)
    assert not few.should_leave_gpus(100.0, 8, 0.0, 12)
    assert not few.should_leave_gpus(100.0, 8, PATIENCE * 100.0, 11)
    assert not few.should_leave_gpus(15.0, 8, 0.0, 8)
    assert not few.should_leave_gpus(math.nan, 8, 0.0, 8)
    assert not few.should_leave_gpus(100.0, 8, math.nan, 8)
    assert not newcomers([]).should_leave_gpus(100.0, 8, 0.0, 8)


def test_it_waits_only_for_those_who_lose_more_than_it_does_together() -> None:
    assert not newcomers([(10.0, 4, "wants")], 1.0, 2.0).should_leave_gpus(100.0, 8, 0.0, 8)
    assert newcomers([(10.0, 4, "wants")] * 2, 1.0, 2.0).should_leave_gpus(100.0, 8, 0.0, 8)
    assert not newcomers([(10.0, 1, "wants")] * 7, 0.25, 2.0).should_leave_gpus(100.0, 8, 0.0, 8)
    assert newcomers([(10.0, 1, "wants")] * 8, 0.25, 2.0).should_leave_gpus(100.0, 8, 0.0, 8)
    assert newcomers([(10.0, 1, "runs")] * 7, 1.0, 2.0).should_leave_gpus(100.0, 8, 0.0, 8), (
        "nobody is in want, but more come"
    )


def test_it_waits_the_shorter_the_less_those_in_want_lose() -> None:
    jobs = [*[(10.0, 1, "wants")] * 8, (10.0, 4, "runs")]
    assert newcomers(jobs, 0.25).max_wait_s(100.0) == pytest.approx(PATIENCE * 25.0)
    assert newcomers(jobs, 0.25).should_leave_gpus(100.0, 8, PATIENCE * 24.0, 8)
    assert not newcomers(jobs, 0.25).should_leave_gpus(100.0, 8, PATIENCE * 25.0, 8)
    assert not newcomers(jobs, 0.0).should_leave_gpus(100.0, 8, 0.0, 8), "they share for nothing"
    # Nobody is in want, but a gang takes the GPUs that those who come next would have.
    assert newcomers([(10.0, 1, "runs")] * 7, 0.25).max_wait_s(100.0) == pytest.approx(PATIENCE * 100.0)


def test_what_those_in_want_lose_counts_by_their_gpus() -> None:
    columns = (np.array([10.0, 10.0]), np.array([1, 3]), np.array([True, True]), np.array([1.0, 0.0]))
    assert ShorterJobs(*columns, np.array([False, True])).max_wait_s(100.0) == pytest.approx(PATIENCE * 25.0)
