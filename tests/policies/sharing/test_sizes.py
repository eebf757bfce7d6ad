"""Who fits beside whom: sizes, and what other batches of the same models tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.policies.sharing.predicting.sizes import (
    SURE,
    OtherBatches,
    Seen,
    Sizes,
    by_models,
    models_of,
    other_batches,
    verdict,
)

BATCHES = (16, 32, 64, 128, 256)


def kind(model: str, batch: int) -> Workload:
    return Workload(model, batch, "v100")


def seen(one: int, other: int, fits: bool) -> Seen:
    return Seen(kind("A", one), kind("B", other), fits)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([], OtherBatches()),
        ([seen(64, 64, True)], OtherBatches(fits=True)),
        ([seen(64, 16, True)], OtherBatches()),
        ([seen(32, 32, True)], OtherBatches(fits=True)),
        ([seen(32, 32, False)], OtherBatches(apart=True)),
        ([seen(16, 32, False)], OtherBatches(apart=True)),
        ([seen(16, 32, True), seen(32, 64, False)], OtherBatches(between=True)),
        ([seen(16, 32, True), seen(16, 64, False)], OtherBatches()),
        ([Seen(kind("B", 64), kind("A", 64), True)], OtherBatches(fits=True)),
        ([Seen(kind("A", 64), kind("C", 64), True)], OtherBatches()),
        ([Seen(Workload("A", 64, "k80"), Workload("B", 64, "k80"), True)], OtherBatches()),
        ([seen(0, 32, False)], OtherBatches()),  # nobody told which batch that was
        ([seen(0, 64, True)], OtherBatches()),
    ],
)
def test_what_other_batches_tell(known: list[Seen], told: OtherBatches) -> None:
    assert other_batches(kind("A", 32), kind("B", 32), known) == told
    assert other_batches(kind("B", 32), kind("A", 32), known) == told


def test_nothing_is_told_of_a_batch_that_nobody_knows_but_by_its_like() -> None:
    known = [seen(16, 16, True), seen(64, 64, False)]
    assert other_batches(kind("A", 0), kind("B", 16), known) == OtherBatches()
    assert other_batches(kind("A", 0), kind("B", 16), [*known, seen(0, 32, True)]) == OtherBatches(fits=True)


def test_what_was_seen_is_found_by_models_and_kept() -> None:
    """The very answers of a search through everything, in a time that does not grow with other models."""
    kinds = tuple(kind(model, batch) for model in "ABC" for batch in BATCHES)
    said = [
        Seen(one, other, one.batch + other.batch < 150)
        for at, one in enumerate(kinds) for other in kinds[at:] if (one.batch + other.batch) % 3
    ]  # fmt: skip
    by_model = by_models(said)
    assert sorted(map(repr, (one for part in by_model.values() for one in part))) == sorted(map(repr, said))
    sizes = Sizes(kinds, np.array([one.batch / 64 for one in kinds]), 3.0, tuple(said))
    for one in kinds:
        for other in kinds:
            told = other_batches(one, other, by_model.get(models_of(one, other), ()))
            assert told == other_batches(one, other, said)
            expected = verdict((one.batch + other.batch) / 64 - 3.0, told)
            assert sizes.fits((one, other)) is sizes.fits((other, one)) is sizes.fits((one, other)) is expected
    assert sizes == Sizes(kinds, sizes.sizes, 3.0, tuple(said))


@pytest.mark.parametrize(
    ("excess", "batches", "told"),
    [
        (SURE + 1, OtherBatches(), False),
        (SURE - 1, OtherBatches(), None),
        (-1.0, OtherBatches(), True),
        (None, OtherBatches(), None),
        (SURE + 1, OtherBatches(fits=True), True),
        (-1.0, OtherBatches(apart=True), False),
        (None, OtherBatches(apart=True), False),
        (SURE + 1, OtherBatches(fits=True, apart=True), None),
        (-1.0, OtherBatches(fits=True, apart=True), None),
        (SURE + 1, OtherBatches(between=True), None),
        (-1.0, OtherBatches(between=True), True),
    ],
)
def test_batches_have_the_first_word_and_nobody_is_kept_apart_in_doubt(
    excess: float | None, batches: OtherBatches, told: bool | None
) -> None:
    assert verdict(excess, batches) is told


@given(
    limit=st.integers(60, 400),
    known=st.sets(st.tuples(st.sampled_from(BATCHES), st.sampled_from(BATCHES)), max_size=12),
    asked=st.tuples(st.sampled_from(BATCHES), st.sampled_from(BATCHES)),
)
def test_of_memory_that_grows_with_batches_nothing_wrong_is_told(
    limit: int, known: set[tuple[int, int]], asked: tuple[int, int]
) -> None:
    said = [seen(one, other, one + other <= limit) for one, other in known]
    told = other_batches(kind("A", asked[0]), kind("B", asked[1]), said)
    fits = sum(asked) <= limit
    assert not (told.fits and not fits)
    assert not (told.apart and fits)
    if asked in known:
        assert told.fits is fits
        assert told.apart is not fits


def test_of_three_it_only_tells_whether_two_exclude_that() -> None:
    kinds = (kind("A", 32), kind("B", 32), kind("C", 32))
    sizes = Sizes(kinds, np.array([0.0, 0.0, 0.0]), 1.0, (Seen(kinds[0], kinds[1], False),))
    assert sizes.fits(kinds[:2]) is False
    assert sizes.fits(kinds) is False
    assert sizes.fits(kinds[1:]) is True
    assert sizes.fits((kinds[1], kinds[2], kinds[2])) is None
    assert sizes.fits(kinds[:1]) is True
