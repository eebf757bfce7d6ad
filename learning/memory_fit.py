"""What fits into the memory of one GPU together, learned from pairs that did and pairs that did not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.libraries import import_library
from slurm_soda.policies.sharing.prediction.covariance_kernels import TraitScaling, Vector
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits, Matrix, derive_traits
from slurm_soda.policies.sharing.prediction.memory_fit import (
    MemorySizes,
    SeenPairFit,
    compare_other_batches,
    group_by_models,
    judge_fit,
    model_pair_of,
)
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable
from slurm_soda.policies.snapshot import BoolColumn, IntColumn

FOLDS = 20
NO_LIMIT = 1e6
"""A limit that everything keeps."""
PENALTY = 10.0
"""C of scikit-learn: the reciprocal of how much weights are held back."""


@dataclass(frozen=True, slots=True)
class MeasuredFits:
    """Unordered pairs of rows of ``traits`` of which it is known whether they fit."""

    traits: KindTraits
    one: IntColumn
    other: IntColumn
    fits: BoolColumn

    def __len__(self) -> int:
        return len(self.fits)

    def seen(self) -> tuple[SeenPairFit, ...]:
        """The pairs, by their kinds instead of rows."""
        kinds = self.traits.kinds
        columns = zip(self.one.tolist(), self.other.tolist(), self.fits.tolist(), strict=True)
        return tuple(SeenPairFit(kinds[one], kinds[other], fits) for one, other, fits in columns)

    def rows(self, chosen: BoolColumn) -> MeasuredFits:
        """Some of them, of the same jobs."""
        return MeasuredFits(self.traits, self.one[chosen], self.other[chosen], self.fits[chosen])


def collect_fits(table: SpeedTable, gpu_type: str) -> MeasuredFits:
    """All pairs on one GPU of a type of which the table knows whether they fit.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
    """
    traits = derive_traits(table, gpu_type)
    found = [
        (row, column, together)
        for row, one in enumerate(traits.kinds)
        for column, other in enumerate(traits.kinds[row:], row)
        if (together := table.fits((one, other))) is not None
    ]
    one, other, fits = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return MeasuredFits(traits, one, other, fits.astype(np.bool_))


def fit_memory_sizes(meetings: MeasuredFits) -> MemorySizes:
    """Sizes by logistic regression on traits, model, batch and kind; where all fit, or none does, that is all it says.

    Raises:
        LearningError: scikit-learn is not installed.
    """
    traits, features = meetings.traits, _features(meetings.traits)
    if not len(meetings) or meetings.fits.all() or not meetings.fits.any():
        limit = -NO_LIMIT if len(meetings) and not meetings.fits.any() else NO_LIMIT
        return MemorySizes(traits.kinds, np.zeros(len(traits)), limit, meetings.seen())
    rows = features[meetings.one] + features[meetings.other]
    found = import_library("sklearn.linear_model").LogisticRegression(C=PENALTY, max_iter=5000).fit(rows, meetings.fits)
    return MemorySizes(traits.kinds, -features @ found.coef_[0], float(found.intercept_[0]), meetings.seen())


def hold_out_excess(meetings: MeasuredFits, folds: int = FOLDS) -> Vector:
    """By how much the sizes of each pair exceed the limit, as learned without it; it fits up to 0."""
    fold = folds_by_pair(np.arange(len(meetings)), folds)
    found = np.empty(len(meetings))
    for number in range(folds):
        out = fold == number
        sizes, asked = fit_memory_sizes(meetings.rows(~out)), meetings.rows(out)
        found[out] = sizes.sizes[asked.one] + sizes.sizes[asked.other] - sizes.limit
    return found


def hold_out_fits(meetings: MeasuredFits) -> list[bool | None]:
    """What is said of each pair by whoever did not see it; None where that is in doubt.

    Complexity: :data:`FOLDS` fits, then O(pairs of the same two models) for each pair.
    """
    seen = meetings.seen()
    alike = group_by_models(seen)
    found = []
    for known, excess in zip(seen, hold_out_excess(meetings).tolist(), strict=True):
        one, other, _ = known
        others = (each for each in alike[model_pair_of(one, other)] if each is not known)
        found.append(judge_fit(excess, compare_other_batches(one, other, others)))
    return found


def _features(traits: KindTraits) -> Matrix:
    models = sorted(set(traits.models))
    of_model = np.array([[float(job == model) for model in models] for job in traits.models])
    batch: Vector = (traits.log_batch - traits.log_batch.mean())[:, None] / 2.0
    found: Matrix = np.hstack(
        [TraitScaling.of(traits).scaled(traits), batch, of_model, of_model * batch, np.eye(len(traits))]
    )
    return found
