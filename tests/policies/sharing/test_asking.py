"""What policies ask of whoever knows pairs of kinds: every pair once, and no more than they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source, TimeSlicingPrior
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns, PredictedSlowdowns
from slurm_soda.policies.sharing.sjf.running_kinds import RunningKinds
from slurm_soda.policies.sharing.srsf_share.pair_speeds import PairSpeeds
from tests.policies.sharing.scenes import Table


@dataclass(frozen=True, slots=True)
class ByBatch(Table):
    """Knows a kind only with the batches that are listed."""

    batches: tuple[int, ...] = ()
    pairs_asked: list[tuple[JobKind, JobKind]] = field(default_factory=list)

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        self.pairs_asked.append((slowed, others[0]))
        if not {slowed.batch, others[0].batch} <= set(self.batches):
            return None
        return Estimate(slowed.batch + others[0].batch / 100, 0.0, Source.MEASURED)


def kind(batch: int, model: str = "m") -> JobKind:
    return JobKind(model, batch, "v100")


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4))
def test_running_kinds_are_asked_about_once_and_only_if_wanted(rounds: list[list[bool]]) -> None:
    known = ByBatch(batches=(1, 2, 3, 8))
    running = RunningKinds(known, 0.0)
    others = [kind(batch) for batch in (1, 2, 3)]
    assert [running.number(one) for one in (*others, others[0])] == [0, 1, 2, 0]
    for wanted in rounds:
        found = running.slowdowns(kind(8), kind(8), np.array(wanted))
        expected = [(8 + batch / 100, batch + 0.08) if asked else (np.inf, np.inf)
                    for batch, asked in zip((1, 2, 3), wanted, strict=True)]  # fmt: skip
        np.testing.assert_allclose(found[:, :4], np.hstack((expected, expected)))
    ever = np.any(rounds, axis=0)
    expected_asked = [(mine, its) for other, asked in zip(others, ever, strict=True) if asked
                      for mine, its in ((kind(8), other), (other, kind(8)))]  # fmt: skip
    assert sorted(known.pairs_asked, key=str) == sorted(expected_asked, key=str)


def test_a_sub_batch_that_nobody_knows_counts_as_the_whole_batch() -> None:
    running = RunningKinds(ByBatch(batches=(1, 8)), 0.0)
    for batch in (1, 5):
        running.number(kind(batch))
    found = running.slowdowns(kind(4), kind(8), np.ones(2, dtype=np.bool_))
    np.testing.assert_allclose(found[:, :2], [(8.01, 1.08), (np.inf, np.inf)])


def test_kinds_that_do_not_fit_never_meet_and_no_speed_grows() -> None:
    misfits = frozenset({frozenset({"a", "c"})})
    running = RunningKinds(Table({("a", "b"): (0.9, 1.4)}, misfits=misfits, else_xi=1.2, error=0.25), 2.0)
    for model in "bc":
        running.number(kind(1, model))
    found = running.slowdowns(kind(1, "a"), kind(1, "a"), np.ones(2, dtype=np.bool_))
    np.testing.assert_allclose(found, [(1.0, 1.4, 1.4, 1.9, 0.0), (*(np.inf,) * 4, 0.0)])


def test_it_is_told_which_slowdowns_are_only_assumed() -> None:
    known = LearnedSlowdowns(PredictedSlowdowns(TimeSlicingPrior(), Table())).with_pair(kind(1, "a"), kind(1, "b"), 1.3)
    known = known.with_apart(kind(1, "a"), kind(1, "d"))
    both = known.with_pair(kind(1, "b"), kind(1, "a"), 1.2)
    for knows, assumed in ((known, [1.0, 1.0, 0.0]), (both, [0.0, 1.0, 0.0])):
        running = RunningKinds(knows, 0.0)
        for model in "bcd":
            running.number(kind(1, model))
        found = running.slowdowns(kind(1, "a"), kind(1, "a"), np.ones(3, dtype=np.bool_))
        assert found[:, 4].tolist() == assumed
        assert found[0, 0] == 1.3


def test_speeds_of_pairs_are_asked_once_however_often_they_are_needed() -> None:
    known = Table({("a", "b"): (1.25, 2.0)}, else_xi=1.6, misfits=frozenset({frozenset({"a", "c"})}))
    speeds = PairSpeeds(known, 0.0)
    a, b, c = (kind(1, model) for model in "abc")
    np.testing.assert_allclose(speeds.of([b, None, a]), [[1 / 1.6, 0, 0.5], [0, 0, 0], [0.8, 0, 1 / 1.6]])
    np.testing.assert_allclose(speeds.of([a, c]), [[1 / 1.6, 0], [0, 1 / 1.6]])
    np.testing.assert_allclose(speeds.of([c, b]), [[1 / 1.6, 1 / 1.6], [1 / 1.6, 1 / 1.6]])
    np.testing.assert_allclose(PairSpeeds(known, 0.0).of([a, b]), [[1 / 1.6, 0.8], [0.5, 1 / 1.6]])
    assert len(known.asked) == len(set(known.asked)) == 7
