"""What jobs that have not ended tell: against the definitions, and without harm from others' lies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.run_times.outliving import find_survival, outlive
from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.snapshot import FloatColumn
from tests.sampling import examples

WEIGHTS = st.lists(st.floats(1e-3, 10.0), min_size=BINS, max_size=BINS).map(np.array)
REACHED = st.dictionaries(st.integers(1, BINS - 1), st.floats(0.0, 20.0), max_size=6).map(lambda found: at_bins(found))  # noqa: PLW0108 - defined below


def at_bins(weights: dict[int, float]) -> FloatColumn:
    found = np.zeros(BINS)
    found[list(weights)] = list(weights.values())
    return found


def normalised(weights: FloatColumn) -> FloatColumn:
    found: FloatColumn = weights / weights.sum()
    return found


@given(WEIGHTS, REACHED, WEIGHTS)
@settings(max_examples=examples(50))
def test_what_is_no_longer_possible_to_a_job_is_moved_to_later_bins(
    weights: FloatColumn, reached: FloatColumn, shape: FloatColumn
) -> None:
    """The equation that defines it, term by term."""
    later = normalised(shape)
    found = outlive(weights, reached, later)
    moved = np.zeros(BINS)
    for at in np.flatnonzero(reached):
        kept = np.where(np.arange(BINS) >= at, found, 0.0)
        rest = np.where(np.arange(BINS) >= at, later, 0.0)
        moved += reached[at] * (kept + (1.0 - kept.sum()) * rest / rest.sum())
    assert found.sum() == pytest.approx(1.0)
    assert found * (weights.sum() + reached.sum()) == pytest.approx(weights + moved)


@given(WEIGHTS, REACHED)
@settings(max_examples=examples(50))
def test_with_its_own_survival_for_later_bins_it_is_the_estimate_of_kaplan_and_meier(
    weights: FloatColumn, reached: FloatColumn
) -> None:
    survival = find_survival(weights, reached)
    assert survival.sum() == pytest.approx(1.0)
    assert outlive(weights, reached, survival) == pytest.approx(survival)


def test_the_survival_of_a_few_jobs_is_what_the_textbook_says() -> None:
    """Ends in bins 3, 5 and 9 and a job that left between the first two: 1/4 end at once, 3/8 at each later one."""
    found = find_survival(at_bins({3: 1.0, 5: 1.0, 9: 1.0}) + 1e-12, at_bins({4: 1.0}))
    assert found[[3, 5, 9]] == pytest.approx([1 / 4, 3 / 8, 3 / 8], abs=1e-9)


@given(WEIGHTS, WEIGHTS, REACHED, WEIGHTS)
@settings(max_examples=examples(50))
def test_others_differences_do_not_grow(
    one: FloatColumn, other: FloatColumn, reached: FloatColumn, shape: FloatColumn
) -> None:
    """The theorem on owners asks for it: no range of run times becomes likelier by more than it was."""
    first, second, later = normalised(one), normalised(other), normalised(shape)
    moved = outlive(3.0 * first, reached, later) - outlive(3.0 * second, reached, later)
    assert np.abs(moved).sum() <= np.abs(first - second).sum() + 1e-9


@given(WEIGHTS, st.floats(0.0, 1e4), WEIGHTS)
@settings(max_examples=examples(20))
def test_jobs_that_have_just_begun_change_nothing(weights: FloatColumn, many: float, shape: FloatColumn) -> None:
    assert outlive(weights, at_bins({0: many}), normalised(shape)) == pytest.approx(normalised(weights))
