"""From a table of measured pairs to predictions: models of interference, and predictions that do not know their pair."""

from __future__ import annotations

from collections import Counter

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.gaussian import FEWEST
from slurm_soda.learning.judging import without_each_pair, without_each_pair_exactly
from slurm_soda.learning.memory import fit_sizes, meetings_of, verdicts_without_each
from slurm_soda.learning.methods import CHOSEN, METHODS, MOST
from slurm_soda.policies.sharing.predicting.prediction import HeldOut, Predicted, estimate, pairs_of
from slurm_soda.policies.sharing.predicting.tables import SpeedTable
from slurm_soda.policies.sharing.predicting.traits import SPREAD


def fit_interference(table: SpeedTable, gpu_type: str = "", method: str = CHOSEN) -> Predicted:
    """Learn slowdowns and memory from all measured pairs. Deterministic.

    Args:
        gpu_type: one type of GPU; empty for all on which enough pairs were measured.
        method: one of :data:`.methods.METHODS`.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: no such method, too few pairs, or scikit-learn is not installed.
    """
    if method not in METHODS:
        raise LearningError(
            f"there is no method {method!r} to predict interference; choose one of: {', '.join(METHODS)}"
        )
    types = (gpu_type,) if gpu_type else measured_types(table)
    if not types:
        raise LearningError(
            f"the table has less than {FEWEST} pairs of jobs on one GPU of a type that fit: measure more"
        )
    return Predicted(
        {name: METHODS[method](pairs_of(table, name)) for name in types},
        {name: fit_sizes(meetings_of(table, name)) for name in types},
    )


def fit_without_each(table: SpeedTable, gpu_type: str, method: str = CHOSEN) -> HeldOut:
    """Predictions of all measured pairs, each without that pair in either direction. Deterministic.

    The Gaussian process takes its shape from the pairs of other folds, the rest from all pairs but the one in question;
    other methods learn from other folds. Pairs that were not measured are predicted from all that were.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
        LearningError: no such method, too few pairs, or scikit-learn is not installed.
    """
    otherwise = fit_interference(table, gpu_type, method)
    pairs, meetings = pairs_of(table, gpu_type), meetings_of(table, gpu_type)
    exactly = method == "gaussian" and len(pairs) <= MOST
    judged = without_each_pair_exactly(pairs) if exactly else without_each_pair(pairs, METHODS[method])
    kinds = pairs.traits.kinds
    rows = zip(pairs.slowed.tolist(), pairs.other.tolist(), judged.log_mean, judged.log_deviation, strict=True)
    found = {
        (kinds[one], kinds[other]): estimate(float(mean), float(deviation)) for one, other, mean, deviation in rows
    }
    fits = zip(meetings.seen(), verdicts_without_each(meetings), strict=True)
    return HeldOut(found, {(seen.one, seen.other): told for seen, told in fits}, otherwise)


def measured_types(table: SpeedTable) -> tuple[str, ...]:
    """Types of GPU on which enough pairs that fit were measured, each on one GPU; spread gangs are left out."""
    pairs = {frozenset(pair) for pair, both in table.shared.items() if pair[0].gpus == pair[1].gpus == 1 and all(both)}
    count = Counter(next(iter(pair)).gpu_type for pair in pairs)
    return tuple(name for name in table.gpu_types if count[name] >= FEWEST and not name.endswith(SPREAD))
