from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.snapshot import JobState, JobTable
from slurm_soda.slurm_ext.write.site_factors import (
    PRIORITY_CEILING,
    SITE_FACTOR_LIMIT,
    UNKNOWN_SITE_FACTOR,
    compute_site_factors,
)
from tests.sampling import examples

BASE = 1000


def table(rows: list[tuple[int, int, int]], blocked: frozenset[int] = frozenset()) -> JobTable:
    """Rows of ``(job_id, other, site_factor)``; Slurm never lets a priority fall below 1."""
    return build_job_table(
        [
            {"job_id": i, "priority": max(1, o + f), "site_factor": f,
             "state": JobState.BLOCKED if i in blocked else JobState.PENDING}
            for i, o, f in rows
        ]
    )  # fmt: skip


def rows_of(jobs: JobTable) -> list[tuple[int, int, int]]:
    """The inverse of :func:`table`."""
    columns = (jobs.job_id, jobs.priority - jobs.site_factor, jobs.site_factor)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def applied(jobs: JobTable, changes: dict[int, int]) -> JobTable:
    """What Slurm shows after the writes."""
    factor = np.array([changes.get(i, f) for i, f in zip(jobs.job_id.tolist(), jobs.site_factor.tolist(), strict=True)])
    return jobs.with_columns(priority=jobs.priority - jobs.site_factor + factor, site_factor=factor)


def slurm_order(jobs: JobTable) -> list[int]:
    """Job ids as Slurm would try them."""
    return [i for _, i in sorted(zip((-jobs.priority).tolist(), jobs.job_id.tolist(), strict=True))]


@st.composite
def queues(draw: st.DrawFn) -> tuple[JobTable, list[int], int]:
    ids = draw(st.lists(st.integers(1, 500), unique=True, min_size=1, max_size=40))
    others = st.integers(1, 50) | st.integers(1, 10**6)
    factors = st.just(0) | st.integers(0, 200) | st.integers(0, 10**8)
    jobs = table([(i, draw(others), draw(factors)) for i in ids])
    order = draw(st.permutations(ids))
    return jobs, order, draw(st.integers(1, 45))


@given(queues())
@settings(max_examples=examples(300), deadline=None)
def test_after_the_writes_slurms_order_is_the_plans(queue: tuple[JobTable, list[int], int]) -> None:
    jobs, order, depth = queue
    after = applied(jobs, compute_site_factors(jobs, order, depth=depth, base=BASE))
    assert slurm_order(after)[:depth] == order[:depth]


@given(queues())
@settings(max_examples=examples(200), deadline=None)
def test_ten_cycles_over_an_unchanged_queue_write_nothing(queue: tuple[JobTable, list[int], int]) -> None:
    jobs, order, depth = queue
    after = applied(jobs, compute_site_factors(jobs, order, depth=depth, base=BASE))
    for age in range(10):
        older = after.with_columns(priority=after.priority + 7 * age)
        assert compute_site_factors(older, order, depth=depth, base=BASE) == {}


@given(queues(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_new_job_costs_one_write_while_there_is_room(
    queue: tuple[JobTable, list[int], int], data: st.DataObject
) -> None:
    jobs, order, _ = queue
    jobs = applied(jobs, compute_site_factors(applied(jobs, {}), order, depth=99, base=BASE))
    jobs = applied(jobs, _spread_wide(jobs, order))
    place = data.draw(st.integers(0, len(order)))
    grown = table([*rows_of(jobs), (501, 1, 0)])
    wanted = [*order[:place], 501, *order[place:]]
    changes = compute_site_factors(grown, wanted, depth=99, base=BASE)
    assert set(changes) <= {501}
    assert slurm_order(applied(grown, changes)) == wanted


def _spread_wide(jobs: JobTable, order: list[int]) -> dict[int, int]:
    """Priorities a million apart, in order."""
    other = dict(zip(jobs.job_id.tolist(), (jobs.priority - jobs.site_factor).tolist(), strict=True))
    return {i: (len(order) - rank) * 1_000_000 + 10**7 - other[i] for rank, i in enumerate(order)}


@given(queues())
@settings(max_examples=examples(100), deadline=None)
def test_jobs_in_the_right_relative_order_are_never_written_twice_as_often_as_needed(
    queue: tuple[JobTable, list[int], int],
) -> None:
    jobs, order, depth = queue
    changes = compute_site_factors(jobs, order, depth=depth, base=BASE)
    assert len(changes) <= len(order)
    assert all(abs(factor) <= SITE_FACTOR_LIMIT for factor in changes.values())


def test_an_order_that_slurm_has_already_needs_no_write() -> None:
    jobs = table([(1, 5, 0), (2, 5, 0), (3, 5, 0), (4, 9, 0)])
    assert compute_site_factors(jobs, [4, 1, 2, 3], depth=1000, base=BASE) == {}


def test_one_job_moved_to_the_front_is_one_write() -> None:
    jobs = table([(i, 100, 0) for i in range(1, 201)])
    changes = compute_site_factors(jobs, [150, *(i for i in range(1, 201) if i != 150)], depth=1000, base=BASE)
    assert list(changes) == [150]


def test_only_the_first_jobs_are_written_and_all_others_stay_behind_them() -> None:
    jobs = table([(i, i, 0) for i in range(1, 10_001)])
    order = list(range(1, 10_001))
    changes = compute_site_factors(jobs, order, depth=50, base=BASE)
    assert len(changes) == 50
    assert slurm_order(applied(jobs, changes))[:50] == order[:50]


def test_a_first_numbering_leaves_room_below_and_between() -> None:
    changes = compute_site_factors(table([(1, 0, 0), (2, 0, 0), (3, 0, 0)]), [3, 2, 1], depth=10, base=100_000)
    values = sorted(changes.values())
    assert len(values) == 2 or values[0] >= 100_000
    assert min(np.diff(values)) >= 65_536


def test_an_old_high_factor_behind_the_depth_is_withdrawn() -> None:
    jobs = table([(1, 10, 0), (2, 10, 0), (3, 10, 5_000_000)])
    changes = compute_site_factors(jobs, [1, 2, 3], depth=2, base=BASE)
    after = applied(jobs, changes)
    assert slurm_order(after) == [1, 2, 3]
    assert changes == {3: 0}


def test_a_harmless_old_factor_behind_the_depth_is_left_alone() -> None:
    jobs = table([(1, 10, 9_000), (2, 10, 8_000), (3, 10, 70)])
    assert compute_site_factors(jobs, [1, 2, 3], depth=2, base=BASE) == {}


def test_a_blocked_job_that_becomes_eligible_later_would_not_overtake() -> None:
    jobs = table([(1, 10, 0), (2, 900_000, 0)], blocked=frozenset({2}))
    after = applied(jobs, compute_site_factors(jobs, [1], depth=10, base=BASE))
    assert slurm_order(after) == [1, 2]


def test_a_job_whose_factor_slurm_does_not_tell_is_passed_over() -> None:
    jobs = build_job_table(
        [{"job_id": 1, "priority": 900, "site_factor": UNKNOWN_SITE_FACTOR}, {"job_id": 2, "priority": 5}]
    )
    assert compute_site_factors(jobs, [1, 2], depth=10, base=BASE) == {}


def test_endless_insertions_at_the_front_stay_below_the_ceiling() -> None:
    rows = [(1, 10, PRIORITY_CEILING - 100), (2, 10, PRIORITY_CEILING - 50)]
    jobs = table([*rows, (3, 10, 0)])
    order = [3, 2, 1]
    after = applied(jobs, compute_site_factors(jobs, order, depth=10, base=BASE))
    assert slurm_order(after) == order
    assert int(after.priority.max()) <= PRIORITY_CEILING


@pytest.mark.parametrize("insertions", [40])
def test_repeated_insertions_at_one_place_stay_right_and_cheap(insertions: int) -> None:
    jobs = table([(1, 10, 0), (2, 10, 0)])
    order, written = [2, 1], 0
    for job_id in range(3, 3 + insertions):
        jobs = table([*rows_of(jobs), (job_id, 10, 0)])
        order.insert(1, job_id)
        changes = compute_site_factors(jobs, order, depth=1000, base=BASE)
        written += len(changes)
        jobs = applied(jobs, changes)
        assert slurm_order(jobs) == order
    assert written <= 3 * insertions


def test_no_pending_job_is_no_write() -> None:
    assert compute_site_factors(build_job_table([]), [], depth=10, base=BASE) == {}


BAND = 1_000_000_000
"""Where the GPU arrays' priorities begin."""


@given(queues())
@settings(max_examples=examples(200), deadline=None)
def test_a_band_holds_the_whole_head_and_keeps_its_order(queue: tuple[JobTable, list[int], int]) -> None:
    jobs, order, _ = queue
    above = applied(jobs, compute_site_factors(jobs, order, depth=99, base=BAND, least=BAND))
    assert slurm_order(above) == order
    assert above.priority.min() >= BAND
    assert compute_site_factors(above, order, depth=99, base=BAND, least=BAND) == {}
    below = applied(above, compute_site_factors(above, order, depth=99, base=BASE, ceiling=BAND - 1))
    assert slurm_order(below) == order
    assert below.priority.max() < BAND
