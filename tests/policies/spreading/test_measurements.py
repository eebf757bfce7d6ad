"""From times of iterations to slowdowns: medians, shrinkage, and what a liar can do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.spreading.learner import SpreadLearner
from slurm_soda.policies.spreading.measurements import TimedRun, join_owners, measure_slowdown, slowdown_row
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES, SpreadSlowdowns

KIND, OTHER = JobKind("resnet50", 64, "v100", 4), JobKind("vgg16", 32, "v100", 4)
SECONDS = st.floats(0.01, 100.0)


def runs(*iteration_s: float, clock_s: float = 1000.0) -> list[TimedRun]:
    return [TimedRun(each, clock_s) for each in iteration_s]


def measured(value: float, error: float) -> Estimate:
    return Estimate(value, error, Source.MEASURED)


def test_the_slowdown_is_that_of_medians_weighted_by_time() -> None:
    found = measure_slowdown(runs(1.0, 1.0, 1.2), [*runs(2.0, 2.0), TimedRun(50.0, 10.0)])
    assert found is not None
    assert found.value == 2.0


@pytest.mark.parametrize(("packed", "spread"), [
    ([], runs(1.0)), (runs(1.0), []), (runs(1.0), runs(2.0, 2.0, clock_s=29.0)), (runs(1.0, clock_s=59.0), runs(2.0)),
])  # fmt: skip
def test_less_than_a_minute_shows_nothing(packed: list[TimedRun], spread: list[TimedRun]) -> None:
    assert measure_slowdown(packed, spread) is None


def test_the_error_falls_with_runs_that_agree() -> None:
    errors = []
    for count in (1, 3, 9):
        found = measure_slowdown(runs(*[1.0] * count), runs(*[1.5] * count))
        assert found is not None
        errors.append(found.error)
    assert errors == pytest.approx([1.5 * 2 * 0.2 / (count + 1) for count in (1, 3, 9)])


def test_little_is_drawn_towards_packed_and_much_is_believed() -> None:
    for error, value in ((0.0, 2.0), (0.5, 1.8), (1.0, 1.5), (3.0, 1.1)):
        row = slowdown_row({1: measured(2.0, error)})
        assert row is not None
        assert row.expected == pytest.approx((value,) * EXTRA_NODES)
        assert row.at_most == pytest.approx((2.0 + error,) * EXTRA_NODES)


def test_other_numbers_of_nodes_are_like_the_nearest() -> None:
    row = slowdown_row({1: measured(1.5, 0.0), 3: measured(2.0, 0.0)})
    assert row is not None
    assert row.expected == (1.5, 1.5, 2.0)
    assert slowdown_row({}) is None


def test_faster_on_more_nodes_counts_as_no_slower() -> None:
    row = slowdown_row({2: measured(0.8, 0.1)})
    assert row is not None
    assert row.expected == row.at_most == (1.0,) * EXTRA_NODES


@given(value=st.floats(0.01, 100.0), error=st.floats(0.0, 100.0))
def test_a_slowdown_is_never_believed_beyond_what_was_measured(value: float, error: float) -> None:
    row = slowdown_row({1: measured(value, error)})
    assert row is not None
    assert 1.0 <= row.expected[0] <= max(value, 1.0) <= row.at_most[0]


def learned(owners: dict[str, float], *, kind: JobKind = KIND) -> SpreadLearner:
    learner = SpreadLearner()
    for owner, slowdown in owners.items():
        for extra_nodes, iteration_s in ((0, 1.0), (1, slowdown)):
            for run in runs(*[iteration_s] * 3):
                learner.learn(owner, kind, extra_nodes, run)
    return learner


def test_ones_own_runs_go_first_and_two_owners_do_not_speak_for_others() -> None:
    learner = learned({"alice": 1.1, "bob": 3.0})
    alice, bob = learner.known("alice", KIND), learner.known("bob", KIND)
    assert alice is not None
    assert bob is not None
    assert alice.expected[0] < 1.1 < 2.5 < bob.expected[0] < 3.0
    assert learner.known("carol", KIND) is None
    assert learner.known("alice", OTHER) is None


@given(
    honest=st.lists(SECONDS, min_size=2, max_size=6),
    lies=st.lists(st.tuples(st.integers(0, 5), SECONDS), min_size=1, max_size=20),
)
def test_a_liar_moves_others_at_most_within_what_honest_owners_saw(
    honest: list[float], lies: list[tuple[int, float]]
) -> None:
    learner = learned({f"owner{at}": value for at, value in enumerate(honest)})
    for extra_nodes, iteration_s in lies:
        learner.learn("liar", KIND, extra_nodes, TimedRun(iteration_s, 1e6))
    found = learner.known("newcomer", KIND)
    if found is not None:
        assert found.expected[0] <= max(1.0, *honest) * (1 + 1e-9)
    for at, value in enumerate(honest):
        own = learner.known(f"owner{at}", KIND)
        assert own == slowdown_row({1: measure_slowdown(runs(1.0, 1.0, 1.0), runs(*[value] * 3)) or measured(1, 0)})


def test_three_owners_speak_by_their_median() -> None:
    found = join_owners([1.0, 2.0, 9.0])
    assert found is not None
    assert found.value == 2.0
    assert found.error == pytest.approx((3 * 1.0 + 0.2 * 2.0) / 4)
    assert join_owners([1.0, 2.0]) is None


def test_the_order_of_runs_does_not_matter() -> None:
    seen = [(0, TimedRun(1.0, 100.0)), (1, TimedRun(2.0, 100.0)), (1, TimedRun(3.0, 400.0)), (0, TimedRun(1.5, 50.0))]
    rows = set()
    for order in itertools.permutations(seen):
        learner = SpreadLearner()
        for extra_nodes, run in order:
            learner.learn("alice", KIND, extra_nodes, run)
        rows.add(learner.known("alice", KIND))
    assert len(rows) == 1


def test_a_snapshot_says_what_is_known_of_a_row() -> None:
    table = np.array([[1.5, 2.0, 3.0]])
    spread = SpreadSlowdowns(table, table, np.array([-1, 0, 0]), binding=True)
    assert [spread.expect(1, extra) for extra in (0, 1, 2, 3, 7)] == [1.0, 1.5, 2.0, 3.0, 3.0]
    assert spread.expect(0, 1) == SpreadSlowdowns().expect(5, 1) == 1.0
    assert spread.only(np.array([1])).kind.tolist() == [0]
    assert not SpreadSlowdowns(table, table, np.array([0])).decides, "Slurm chooses nodes itself"
    assert math.isfinite(spread.expect(2, 10**6))
