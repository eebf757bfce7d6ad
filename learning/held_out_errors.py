"""Predictions of measured pairs by models that were fitted without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.gaussian_process import fit_hyperparameters
from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.gaussian_process import GaussianPosterior, MeasuredPairs
from slurm_soda.policies.sharing.prediction.pair_model import PairModel

FitModel = Callable[[MeasuredPairs], PairModel]
FOLDS = 10
GAUSSIAN_FOLDS = 5
"""Folds of the Gaussian process, whose shape alone needs them."""


class HeldOutPredictions(NamedTuple):
    """Predictions of measured slowdowns by a model that did not know them."""

    log_xi: Vector
    log_mean: Vector
    log_deviation: Vector


def hold_out_pairs(pairs: MeasuredPairs, fit: FitModel, folds: int = FOLDS) -> HeldOutPredictions:
    """Each pair is predicted by a model that was fitted without the tenth of all pairs it belongs to.

    Raises:
        LearningError: fewer different pairs than folds.
    """
    fold = _folds(pairs, folds)
    means, deviations = np.empty(len(pairs)), np.empty(len(pairs))
    for number in range(folds):
        out = fold == number
        means[out], deviations[out] = predict(fit(pairs.rows(~out)), pairs.rows(out))
    return HeldOutPredictions(pairs.log_xi, means, deviations)


def hold_out_pairs_exactly(pairs: MeasuredPairs, folds: int = GAUSSIAN_FOLDS) -> HeldOutPredictions:
    """The Gaussian process without each pair alone, in closed form; its shape comes from pairs of other folds.

    Raises:
        LearningError: fewer different pairs than folds.
    """
    fold, groups = _folds(pairs, folds), pairs.unordered()
    means, deviations = np.empty(len(pairs)), np.empty(len(pairs))
    for number in range(folds):
        out = fold == number
        every = GaussianPosterior(fit_hyperparameters(pairs.rows(~out)), pairs).left_out(groups)
        means[out], deviations[out] = every[0][out], every[1][out]
    return HeldOutPredictions(pairs.log_xi, means, deviations)


def predict(model: PairModel, pairs: MeasuredPairs) -> tuple[Vector, Vector]:
    """Mean and deviation of log xi of each pair, by a model that may know their jobs."""
    return model.predict(pairs.traits.rows(pairs.slowed), pairs.traits.rows(pairs.other))


def _folds(pairs: MeasuredPairs, folds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    different = len(np.unique(pairs.unordered())) if len(pairs) else 0
    if different < 2 * folds:
        raise LearningError(f"{2 * folds} pairs have to be measured to judge predictions of them, not {different}")
    return folds_by_pair(pairs.unordered(), folds)
