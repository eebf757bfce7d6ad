"""How far off predictions are, and predictions that did not see a model, a batch, another type of GPU, or most pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.held_out_errors import FitModel, HeldOutPredictions, predict
from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.gaussian_process import MeasuredPairs
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits
from slurm_soda.policies.sharing.prediction.pair_model import PairModel
from slurm_soda.policies.sharing.prediction.predicted_interference import MEAN_DEVIATION


def absolute_errors(judged: HeldOutPredictions) -> Vector:
    """Of xi; predictions below 1 count as 1."""
    found: Vector = np.abs(np.maximum(np.exp(judged.log_mean), 1.0) - np.exp(judged.log_xi))
    return found


def error_of_xi(judged: HeldOutPredictions) -> float:
    """Mean of error / xi: how far off a job's run time is, relative to it."""
    return float((absolute_errors(judged) / np.exp(judged.log_xi)).mean())


def error_of_slowdown(judged: HeldOutPredictions) -> float:
    """Mean error over the mean of xi - 1: how far off the cost of sharing is, relative to it; infinite if it is free."""
    cost = float((np.exp(judged.log_xi) - 1).mean())
    return float(absolute_errors(judged).mean()) / cost if cost else float("inf")


def rows_of(judged: HeldOutPredictions, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> HeldOutPredictions:
    """Some of the predictions."""
    return HeldOutPredictions(judged.log_xi[chosen], judged.log_mean[chosen], judged.log_deviation[chosen])


def covered(judged: HeldOutPredictions, errors: float) -> float:
    """Share of pairs that are off by at most so many of their own expected absolute errors."""
    claimed = np.maximum(np.exp(judged.log_mean), 1.0) * np.expm1(MEAN_DEVIATION * judged.log_deviation)
    return float((absolute_errors(judged) <= errors * claimed + 1e-12).mean())


def without_each_model(pairs: MeasuredPairs, fit: FitModel) -> HeldOutPredictions:
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
        found.append((judged.log_xi, *predict(fit(pairs.rows(~out)), judged)))
    return HeldOutPredictions(*(np.concatenate(column) for column in zip(*found, strict=True)))


def between_batches(pairs: MeasuredPairs) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], HeldOutPredictions]:
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


def carried_over(model: PairModel, pairs: MeasuredPairs) -> HeldOutPredictions:
    """Pairs of one type of GPU, predicted by a model of another as the same jobs there; none with a job unknown there."""
    gpu_type = model.traits.kinds[0].gpu_type
    same = [model.traits.of(replace(kind, gpu_type=gpu_type)) for kind in pairs.traits.kinds]
    known = np.array([traits is not None for traits in same])
    judged = pairs.rows(known[pairs.slowed] & known[pairs.other])
    values = np.array([np.full(len(model.traits.names), np.nan) if one is None else one.values[0] for one in same])
    kinds = tuple(replace(kind, gpu_type=gpu_type) for kind in pairs.traits.kinds)
    there = KindTraits(kinds, model.traits.names, values)
    return HeldOutPredictions(judged.log_xi, *model.predict(there.rows(judged.slowed), there.rows(judged.other)))


def with_few_pairs(pairs: MeasuredPairs, fit: FitModel, share: float, seed: int) -> tuple[int, HeldOutPredictions]:
    """How many unordered pairs a share of all is, drawn by a seed, and how the others are predicted from them."""
    groups = pairs.unordered()
    count = int(groups.max()) + 1
    few = max(round(share * count), 3)
    chosen = (np.random.default_rng(seed).permutation(count) < few)[groups]
    judged = pairs.rows(~chosen)
    return few, HeldOutPredictions(judged.log_xi, *predict(fit(pairs.rows(chosen)), judged))
