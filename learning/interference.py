"""From a table of measured pairs to predictions: models of interference, and predictions that do not know their pair."""

from __future__ import annotations

from collections import Counter

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.gaussian_process import MAX_PAIRS, MIN_PAIRS, fit_gaussian
from slurm_soda.learning.held_out_errors import hold_out_pairs, hold_out_pairs_exactly
from slurm_soda.learning.memory_fit import collect_fits, fit_memory_sizes, hold_out_fits
from slurm_soda.policies.sharing.prediction.kind_traits import SPREAD_SUFFIX
from slurm_soda.policies.sharing.prediction.predicted_interference import (
    HeldOutInterference,
    PredictedInterference,
    collect_pairs,
    estimate_from_log,
)
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable


def fit_interference(table: SpeedTable, gpu_type: str = "") -> PredictedInterference:
    """Learn slowdowns and memory from all measured pairs. Deterministic.

    Args:
        gpu_type: one type of GPU; empty for all on which enough pairs were measured.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: too few pairs, or SciPy or scikit-learn is not installed.
    """
    types = (gpu_type,) if gpu_type else measured_gpu_types(table)
    if not types:
        raise LearningError(
            f"the table has less than {MIN_PAIRS} pairs of jobs on one GPU of a type that fit: measure more"
        )
    return PredictedInterference(
        {name: fit_gaussian(collect_pairs(table, name)) for name in types},
        {name: fit_memory_sizes(collect_fits(table, name)) for name in types},
    )


def fit_held_out(table: SpeedTable, gpu_type: str) -> HeldOutInterference:
    """Predictions of all measured pairs, each without that pair in either direction. Deterministic.

    The Gaussian process takes its shape from the pairs of other folds, the rest from all pairs but the one in question;
    of many pairs, all of it from other folds. Pairs that were not measured are predicted from all that were.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: too few pairs, or SciPy or scikit-learn is not installed.
    """
    otherwise = fit_interference(table, gpu_type)
    pairs, meetings = collect_pairs(table, gpu_type), collect_fits(table, gpu_type)
    exactly = len(pairs) <= MAX_PAIRS
    judged = hold_out_pairs_exactly(pairs) if exactly else hold_out_pairs(pairs, fit_gaussian)
    kinds = pairs.traits.kinds
    rows = zip(pairs.slowed.tolist(), pairs.other.tolist(), judged.log_mean, judged.log_deviation, strict=True)
    found = {
        (kinds[one], kinds[other]): estimate_from_log(float(mean), float(deviation))
        for one, other, mean, deviation in rows
    }
    fits = zip(meetings.seen(), hold_out_fits(meetings), strict=True)
    return HeldOutInterference(found, {(seen.one, seen.other): told for seen, told in fits}, otherwise)


def measured_gpu_types(table: SpeedTable) -> tuple[str, ...]:
    """Types of GPU on which enough pairs that fit were measured, each on one GPU; spread gangs are left out."""
    pairs = {frozenset(pair) for pair, both in table.shared.items() if pair[0].gpus == pair[1].gpus == 1 and all(both)}
    count = Counter(next(iter(pair)).gpu_type for pair in pairs)
    return tuple(name for name in table.gpu_types if count[name] >= MIN_PAIRS and not name.endswith(SPREAD_SUFFIX))
