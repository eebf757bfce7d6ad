"""From measured pairs to predictions: models of interference, and predictions that do not know the pair they are about."""

from __future__ import annotations

import numpy as np
from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.gaussian import fit_shape
from slurm_soda.policies.sharing.gaussian import Posterior
from slurm_soda.policies.sharing.prediction import HeldOut, Predicted, estimate, pairs_of
from slurm_soda.policies.sharing.tables import SpeedTable

FOLDS = 5


def fit_interference(table: SpeedTable, gpu_type: str) -> Posterior:
    """Learn from all measured pairs on one GPU of a type. Deterministic.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: too few pairs, or no SciPy.
    """
    pairs = pairs_of(table, gpu_type)
    return Posterior(fit_shape(pairs), pairs)


def fit_without_each(table: SpeedTable, gpu_type: str, folds: int = FOLDS) -> HeldOut:
    """Predictions of all measured pairs, each without that pair in either direction. Deterministic.

    The shape of the model comes from the pairs of other folds, the rest from all pairs but the one in question. Pairs that
    were not measured, or do not fit, are predicted from all that were.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: too few pairs, or no SciPy.
    """
    pairs = pairs_of(table, gpu_type)
    groups = pairs.unordered() if len(pairs) else np.empty(0, np.int64)
    if len(np.unique(groups)) < 2 * folds:
        raise LearningError(
            f"{gpu_type}: {2 * folds} pairs have to be measured to judge predictions, not {len(np.unique(groups))}"
        )
    fold = folds_by_pair(groups, folds)
    found = {}
    for number in range(folds):
        shape = fit_shape(pairs.rows(fold != number))
        means, deviations = Posterior(shape, pairs).left_out(groups)
        for row in np.flatnonzero(fold == number):
            kinds = pairs.traits.kinds[pairs.slowed[row]], pairs.traits.kinds[pairs.other[row]]
            found[kinds] = estimate(float(means[row]), float(deviations[row]))
    return HeldOut(found, Predicted(Posterior(fit_shape(pairs), pairs)))
