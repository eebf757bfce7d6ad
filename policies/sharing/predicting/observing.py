"""What was seen at run time, taken into models at once: without fitting anything anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.policies.sharing.predicting.gaussian import Pairs, Posterior
from slurm_soda.policies.sharing.predicting.prediction import Predicted
from slurm_soda.policies.sharing.predicting.traits import Traits

Seen = tuple[Workload, Workload, float]
"""Who was slowed, beside whom, and how many times as long its iterations took."""


def observing(predicted: Predicted, seen: Iterable[Seen]) -> Predicted:
    """Predictions that heed slowdowns of pairs that were seen; the last one of each pair counts.

    A Gaussian process says something else of the pair and of all that are like it, and knows kinds of jobs from then on
    that it did not know. Other models stay as they are: they have to be learned anew.

    Complexity: O(n^3) for n pairs in all, once for all that were seen (0.1 s for 650).

    Raises:
        PolicyError: a slowdown that is not a positive number.
    """
    latest = {(_one_gpu(slowed), _one_gpu(other)): _log(xi) for slowed, other, xi in seen}
    models = dict(predicted.models)
    for gpu_type, model in predicted.models.items():
        here = {pair: log_xi for pair, log_xi in latest.items() if pair[0].gpu_type == pair[1].gpu_type == gpu_type}
        if here and isinstance(model, Posterior):
            models[gpu_type] = _heeding(model, here)
    return replace(predicted, models=models)


def _heeding(model: Posterior, seen: dict[tuple[Workload, Workload], float]) -> Posterior:
    before = model.pairs
    traits = _knowing(before.traits, [kind for pair in seen for kind in pair])
    row = {kind: number for number, kind in enumerate(traits.kinds)}
    new = {(row[slowed], row[other]): log_xi for (slowed, other), log_xi in seen.items()}
    kept = np.array([pair not in new for pair in zip(before.slowed.tolist(), before.other.tolist(), strict=True)])
    slowed, other = np.array(list(new), dtype=np.int64).T
    pairs = Pairs(
        traits,
        np.concatenate((before.slowed[kept], slowed)),
        np.concatenate((before.other[kept], other)),
        np.concatenate((before.log_xi[kept], list(new.values()))),
    )
    return Posterior(model.shape, pairs, model.scaling)


def _knowing(traits: Traits, kinds: Sequence[Workload]) -> Traits:
    """With rows for kinds that were not known: like their model's other batches, or like nobody."""
    new = [kind for kind in dict.fromkeys(kinds) if kind not in traits.kinds]
    found = [traits.of(kind) for kind in new]
    unknown = np.full(len(traits.names), np.nan)
    rows = [unknown if one is None else one.values[0] for one in found]
    return Traits((*traits.kinds, *new), traits.names, np.vstack([traits.values, *rows]))


def _one_gpu(kind: Workload) -> Workload:
    return Workload(kind.model, kind.batch, kind.gpu_type)


def _log(xi: float) -> float:
    if not 0 < xi < math.inf:
        raise PolicyError(f"a slowdown that was seen must be a positive number, not {xi!r}")
    return math.log(max(xi, 1.0))
