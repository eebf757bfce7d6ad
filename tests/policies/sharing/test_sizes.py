"""Who fits beside whom: sizes, and what other batches of the same models tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.memory_fit import (
    SURE_LOG_ODDS,
    MemorySizes,
    OtherBatchFits,
    SeenPairFit,
    compare_other_batches,
    group_by_models,
    judge_fit,
    model_pair_of,
)

BATCHES = (16, 32, 64, 128, 256)


def kind(model: str, batch: int) -> JobKind:
    return JobKind(model, batch, "v100")


def seen(one: int, other: int, fits: bool) -> SeenPairFit:
    return SeenPairFit(kind("A", one), kind("B", other), fits)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([], OtherBatchFits()),
        ([seen(64, 64, True)], OtherBatchFits(fits=True)),
        ([seen(64, 16, True)], OtherBatchFits()),
        ([seen(32, 32, True)], OtherBatchFits(fits=True)),
        ([seen(32, 32, False)], OtherBatchFits(apart=True)),
        ([seen(16, 32, False)], OtherBatchFits(apart=True)),
        ([seen(16, 32, True), seen(32, 64, False)], OtherBatchFits(between=True)),
        ([seen(16, 32, True), seen(16, 64, False)], OtherBatchFits()),
        ([SeenPairFit(kind("B", 64), kind("A", 64), True)], OtherBatchFits(fits=True)),
        ([SeenPairFit(kind("A", 64), kind("C", 64), True)], OtherBatchFits()),
        ([SeenPairFit(JobKind("A", 64, "k80"), JobKind("B", 64, "k80"), True)], OtherBatchFits()),
        ([seen(0, 32, False)], OtherBatchFits()),  # nobody told which batch that was
        ([seen(0, 64, True)], OtherBatchFits()),
    ],
)
def test_what_other_batches_tell(known: list[SeenPairFit], told: OtherBatchFits) -> None:
    assert compare_other_batches(kind("A", 32), kind("B", 32), known) == told
    assert compare_other_batches(kind("B", 32), kind("A", 32), known) == told


def test_nothing_is_told_of_a_batch_that_nobody_knows_but_by_its_like() -> None:
    known = [seen(16, 16, True), seen(64, 64, False)]
    assert compare_other_batches(kind("A", 0), kind("B", 16), known) == OtherBatchFits()
    assert compare_other_batches(kind("A", 0), kind("B", 16), [*known, seen(0, 32, True)]) == OtherBatchFits(fits=True)


def test_what_was_seen_is_found_by_models_and_kept() -> None:
    """The very answers of a search through everything, in a time that does not grow with other models."""
    kinds = tuple(kind(model, batch) for model in "ABC" for batch in BATCHES)
    said = [
        SeenPairFit(one, other, one.batch + other.batch < 150)
        for at, one in enumerate(kinds) for other in kinds[at:] if (one.batch + other.batch) % 3
    ]  # fmt: skip
    by_model = group_by_models(said)
    assert sorted(map(repr, (one for part in by_model.values() for one in part))) == sorted(map(repr, said))
    sizes = MemorySizes(kinds, np.array([one.batch / 64 for one in kinds]), 3.0, tuple(said))
    for one in kinds:
        for other in kinds:
            told = compare_other_batches(one, other, by_model.get(model_pair_of(one, other), ()))
            assert told == compare_other_batches(one, other, said)
            expected = judge_fit((one.batch + other.batch) / 64 - 3.0, told)
            assert sizes.fits((one, other)) is sizes.fits((other, one)) is sizes.fits((one, other)) is expected
    assert sizes == MemorySizes(kinds, sizes.sizes, 3.0, tuple(said))


@pytest.mark.parametrize(
    ("excess", "batches", "told"),
    [
        (SURE_LOG_ODDS + 1, OtherBatchFits(), False),
        (SURE_LOG_ODDS - 1, OtherBatchFits(), None),
        (-1.0, OtherBatchFits(), True),
        (None, OtherBatchFits(), None),
        (SURE_LOG_ODDS + 1, OtherBatchFits(fits=True), True),
        (-1.0, OtherBatchFits(apart=True), False),
        (None, OtherBatchFits(apart=True), False),
        (SURE_LOG_ODDS + 1, OtherBatchFits(fits=True, apart=True), None),
        (-1.0, OtherBatchFits(fits=True, apart=True), None),
        (SURE_LOG_ODDS + 1, OtherBatchFits(between=True), None),
        (-1.0, OtherBatchFits(between=True), True),
    ],
)
def test_batches_have_the_first_word_and_nobody_is_kept_apart_in_doubt(
    excess: float | None, batches: OtherBatchFits, told: bool | None
) -> None:
    assert judge_fit(excess, batches) is told


@given(
    limit=st.integers(60, 400),
    known=st.sets(st.tuples(st.sampled_from(BATCHES), st.sampled_from(BATCHES)), max_size=12),
    asked=st.tuples(st.sampled_from(BATCHES), st.sampled_from(BATCHES)),
)
def test_of_memory_that_grows_with_batches_nothing_wrong_is_told(
    limit: int, known: set[tuple[int, int]], asked: tuple[int, int]
) -> None:
    said = [seen(one, other, one + other <= limit) for one, other in known]
    told = compare_other_batches(kind("A", asked[0]), kind("B", asked[1]), said)
    fits = sum(asked) <= limit
    assert not (told.fits and not fits)
    assert not (told.apart and fits)
    if asked in known:
        assert told.fits is fits
        assert told.apart is not fits


def test_of_three_it_only_tells_whether_two_exclude_that() -> None:
    kinds = (kind("A", 32), kind("B", 32), kind("C", 32))
    sizes = MemorySizes(kinds, np.array([0.0, 0.0, 0.0]), 1.0, (SeenPairFit(kinds[0], kinds[1], False),))
    assert sizes.fits(kinds[:2]) is False
    assert sizes.fits(kinds) is False
    assert sizes.fits(kinds[1:]) is True
    assert sizes.fits((kinds[1], kinds[2], kinds[2])) is None
    assert sizes.fits(kinds[:1]) is True
