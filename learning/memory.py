"""What fits into the memory of one GPU together, learned from pairs that did and pairs that did not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.libraries import library
from slurm_soda.policies.sharing.predicting.kernels import Scaling, Vector
from slurm_soda.policies.sharing.predicting.sizes import Seen, Sizes, by_models, models_of, other_batches, verdict
from slurm_soda.policies.sharing.predicting.tables import SpeedTable
from slurm_soda.policies.sharing.predicting.traits import Matrix, Traits, traits_of
from slurm_soda.policies.snapshot import BoolColumn, IntColumn

FOLDS = 20
ALL = 1e6
"""A limit that everything keeps."""
PENALTY = 10.0
"""C of scikit-learn: the reciprocal of how much weights are held back."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """Unordered pairs of rows of ``traits`` of which it is known whether they fit."""

    traits: Traits
    one: IntColumn
    other: IntColumn
    fits: BoolColumn

    def __len__(self) -> int:
        return len(self.fits)

    def seen(self) -> tuple[Seen, ...]:
        """The same, told by kinds."""
        kinds = self.traits.kinds
        columns = zip(self.one.tolist(), self.other.tolist(), self.fits.tolist(), strict=True)
        return tuple(Seen(kinds[one], kinds[other], fits) for one, other, fits in columns)

    def rows(self, chosen: BoolColumn) -> Meetings:
        """Some of them, of the same jobs."""
        return Meetings(self.traits, self.one[chosen], self.other[chosen], self.fits[chosen])


def meetings_of(table: SpeedTable, gpu_type: str) -> Meetings:
    """All pairs on one GPU of a type of which the table knows whether they fit.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
    """
    traits = traits_of(table, gpu_type)
    found = [
        (row, column, together)
        for row, one in enumerate(traits.kinds)
        for column, other in enumerate(traits.kinds[row:], row)
        if (together := table.fits((one, other))) is not None
    ]
    one, other, fits = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return Meetings(traits, one, other, fits.astype(np.bool_))


def fit_sizes(meetings: Meetings) -> Sizes:
    """Sizes by logistic regression on traits, model, batch and kind; where all fit, or none does, that is all it says.

    Raises:
        LearningError: scikit-learn is not installed.
    """
    traits, features = meetings.traits, _features(meetings.traits)
    if not len(meetings) or meetings.fits.all() or not meetings.fits.any():
        limit = -ALL if len(meetings) and not meetings.fits.any() else ALL
        return Sizes(traits.kinds, np.zeros(len(traits)), limit, meetings.seen())
    rows = features[meetings.one] + features[meetings.other]
    found = library("sklearn.linear_model").LogisticRegression(C=PENALTY, max_iter=5000).fit(rows, meetings.fits)
    return Sizes(traits.kinds, -features @ found.coef_[0], float(found.intercept_[0]), meetings.seen())


def excess_without_each(meetings: Meetings, folds: int = FOLDS) -> Vector:
    """By how much the sizes of each pair exceed the limit, as learned without it; it fits up to 0."""
    fold = folds_by_pair(np.arange(len(meetings)), folds)
    found = np.empty(len(meetings))
    for number in range(folds):
        out = fold == number
        sizes, asked = fit_sizes(meetings.rows(~out)), meetings.rows(out)
        found[out] = sizes.sizes[asked.one] + sizes.sizes[asked.other] - sizes.limit
    return found


def verdicts_without_each(meetings: Meetings) -> list[bool | None]:
    """What is said of each pair by whoever did not see it; None where that is in doubt.

    Complexity: :data:`FOLDS` fits, then O(pairs of the same two models) for each pair.
    """
    seen = meetings.seen()
    alike = by_models(seen)
    found = []
    for known, excess in zip(seen, excess_without_each(meetings).tolist(), strict=True):
        one, other, _ = known
        others = (each for each in alike[models_of(one, other)] if each is not known)
        found.append(verdict(excess, other_batches(one, other, others)))
    return found


def _features(traits: Traits) -> Matrix:
    models = sorted(set(traits.models))
    of_model = np.array([[float(job == model) for model in models] for job in traits.models])
    batch: Vector = (traits.log_batch - traits.log_batch.mean())[:, None] / 2.0
    found: Matrix = np.hstack(
        [Scaling.of(traits).scaled(traits), batch, of_model, of_model * batch, np.eye(len(traits))]
    )
    return found
