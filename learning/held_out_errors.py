"""How far off predictions are, of pairs and of models that were kept from those who predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.gaussian_process import fit_hyperparameters
from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.gaussian_process import GaussianPosterior, MeasuredPairs
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits
from slurm_soda.policies.sharing.prediction.pair_model import PairModel
from slurm_soda.policies.sharing.prediction.predicted_interference import MEAN_DEVIATION

FitModel = Callable[[MeasuredPairs], PairModel]
FOLDS = 10
GAUSSIAN_FOLDS = 5
"""Folds of the Gaussian process, whose shape alone needs them."""


class HeldOutPredictions(NamedTuple):
    """Predictions of measured slowdowns by a model that did not know them."""

    log_xi: Vector
    log_mean: Vector
    log_deviation: Vector

    @property
    def absolute_errors(self) -> Vector:
        """Absolute errors of xi; predictions below 1 count as 1."""
        found: Vector = np.abs(np.maximum(np.exp(self.log_mean), 1.0) - np.exp(self.log_xi))
        return found

    @property
    def of_xi(self) -> float:
        """Mean of error / xi: how far off a job's run time is, relative to it."""
        return float((self.absolute_errors / np.exp(self.log_xi)).mean())

    @property
    def of_slowdown(self) -> float:
        """Mean error over the mean of xi - 1: how far off the cost of sharing is, relative to it; infinite if it is free."""
        cost = float((np.exp(self.log_xi) - 1).mean())
        return float(self.absolute_errors.mean()) / cost if cost else float("inf")

    def rows(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> HeldOutPredictions:
        """Some of the predictions."""
        return HeldOutPredictions(self.log_xi[chosen], self.log_mean[chosen], self.log_deviation[chosen])

    def covered(self, errors: float) -> float:
        """Share of pairs that are off by at most so many of their own expected absolute errors."""
        claimed = np.maximum(np.exp(self.log_mean), 1.0) * np.expm1(MEAN_DEVIATION * self.log_deviation)
        return float((self.absolute_errors <= errors * claimed + 1e-12).mean())


def hold_out_pairs(pairs: MeasuredPairs, fit: FitModel, folds: int = FOLDS) -> HeldOutPredictions:
    """Each pair is predicted by a model that was fitted without the tenth of all pairs it belongs to.

    Raises:
        LearningError: fewer different pairs than folds.
    """
    fold = _folds(pairs, folds)
    means, deviations = np.empty(len(pairs)), np.empty(len(pairs))
    for number in range(folds):
        out = fold == number
        means[out], deviations[out] = _predict(fit(pairs.rows(~out)), pairs.rows(out))
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


def hold_out_models(pairs: MeasuredPairs, fit: FitModel) -> HeldOutPredictions:
    """All pairs with a model, of any batch, are predicted from those without it; what it does alone stays known.

    A pair of two models counts twice, once without each.

    Raises:
        LearningError: fewer than three models.
    """
    names = np.array(pairs.traits.models)
    models = sorted(set(names[pairs.slowed]) | set(names[pairs.other]))
    if len(models) < 3:
        raise LearningError(f"leaving out models needs three of them, not {len(models)}: measure more")
    found = []
    for model in models:
        out = (names[pairs.slowed] == model) | (names[pairs.other] == model)
        judged = pairs.rows(out)
        found.append((judged.log_xi, *_predict(fit(pairs.rows(~out)), judged)))
    return HeldOutPredictions(*(np.concatenate(column) for column in zip(*found, strict=True)))


def interpolate_batches(pairs: MeasuredPairs) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], HeldOutPredictions]:
    """What halfway between neighbours would say: a yardstick of how rough the measurements themselves are.

    Neighbours of a pair are those with the next smaller and the next larger batch of one of the two, and the mean of log xi
    counts. Only pairs are judged of which such neighbours were measured: which ones comes first.
    """
    measured = {(one, other): xi for one, other, xi in zip(pairs.slowed, pairs.other, pairs.log_xi, strict=True)}
    beside = _next_batches(pairs.traits)
    found = []
    for one, other in zip(pairs.slowed, pairs.other, strict=True):
        around = [((low, other), (high, other)) for low, high in beside.get(one, ())]
        around += [((one, low), (one, high)) for low, high in beside.get(other, ())]
        both = [(measured[low] + measured[high]) / 2 for low, high in around if low in measured and high in measured]
        found.append(np.mean(both) if both else np.nan)
    means = np.array(found, dtype=np.float64)
    known: np.ndarray[tuple[int], np.dtype[np.bool_]] = ~np.isnan(means)
    return known, HeldOutPredictions(pairs.log_xi[known], means[known], np.full(int(known.sum()), np.nan))


def _next_batches(traits: KindTraits) -> dict[int, tuple[tuple[int, int], ...]]:
    """By row: the rows of the same model with the next smaller and the next larger batch, where there are both."""
    rows = sorted(range(len(traits)), key=lambda row: (traits.kinds[row].model, traits.kinds[row].batch))
    return {
        row: ((low, high),)
        for low, row, high in zip(rows, rows[1:], rows[2:], strict=False)
        if traits.models[low] == traits.models[row] == traits.models[high]
    }


def _predict(model: PairModel, pairs: MeasuredPairs) -> tuple[Vector, Vector]:
    return model.predict(pairs.traits.rows(pairs.slowed), pairs.traits.rows(pairs.other))


def _folds(pairs: MeasuredPairs, folds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    different = len(np.unique(pairs.unordered())) if len(pairs) else 0
    if different < 2 * folds:
        raise LearningError(f"{2 * folds} pairs have to be measured to judge predictions of them, not {different}")
    return folds_by_pair(pairs.unordered(), folds)


def predict_from_other_gpu(model: PairModel, pairs: MeasuredPairs) -> HeldOutPredictions:
    """Pairs of one type of GPU, predicted by a model of another as the same jobs there; none with a job unknown there."""
    gpu_type = model.traits.kinds[0].gpu_type
    same = [model.traits.of(replace(kind, gpu_type=gpu_type)) for kind in pairs.traits.kinds]
    known = np.array([traits is not None for traits in same])
    judged = pairs.rows(known[pairs.slowed] & known[pairs.other])
    values = np.array([np.full(len(model.traits.names), np.nan) if one is None else one.values[0] for one in same])
    kinds = tuple(replace(kind, gpu_type=gpu_type) for kind in pairs.traits.kinds)
    there = KindTraits(kinds, model.traits.names, values)
    return HeldOutPredictions(judged.log_xi, *model.predict(there.rows(judged.slowed), there.rows(judged.other)))


def learn_from_few_pairs(
    pairs: MeasuredPairs, fit: FitModel, share: float, seed: int
) -> tuple[int, HeldOutPredictions]:
    """How many unordered pairs a share of all is, drawn by a seed, and how the others are predicted from them."""
    groups = pairs.unordered()
    count = int(groups.max()) + 1
    few = max(round(share * count), 3)
    chosen = (np.random.default_rng(seed).permutation(count) < few)[groups]
    judged = pairs.rows(~chosen)
    return few, HeldOutPredictions(judged.log_xi, *_predict(fit(pairs.rows(chosen)), judged))
