"""Interference of pairs that were never measured, from a model that learned from those that were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from slurm_soda.policies.sharing.gaussian import Pairs, Posterior
from slurm_soda.policies.sharing.knowledge import Estimate, Source, Workload
from slurm_soda.policies.sharing.tables import SpeedTable
from slurm_soda.policies.sharing.traits import Traits, traits_of

MEAN_DEVIATION = math.sqrt(2 / math.pi)
"""Expected absolute deviation of a normal variable, in standard deviations."""


def pairs_of(table: SpeedTable, gpu_type: str) -> Pairs:
    """All measured pairs on one GPU of a type that fit, both directions of each; speeds above those alone are noise.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
    """
    traits = traits_of(table, gpu_type)
    found = [
        (row, column, math.log(max(xi, 1.0)))
        for row, slowed in enumerate(traits.kinds)
        for column, other in enumerate(traits.kinds)
        if (xi := table.slowdown(slowed, other)) is not None
    ]
    slowed, others, log_xi = np.array(found).reshape(-1, 3).T
    return Pairs(traits, slowed.astype(np.int64), others.astype(np.int64), log_xi)


def estimate(log_mean: float, log_deviation: float) -> Estimate:
    """Median and expected absolute error of a slowdown whose logarithm is normal; at least 1."""
    value = max(math.exp(log_mean), 1.0)
    return Estimate(value, value * math.expm1(MEAN_DEVIATION * log_deviation), Source.PREDICTED)


class Predicted:
    """Slowdowns on GPUs of one type by a model; each pair is computed once.

    Jobs of several GPUs count as one of their workers. Slowdowns beside several others add up (xi - 1 summed). A batch
    that nobody measured counts as one between those next to it.
    """

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._pairs: dict[tuple[Workload, Workload], Estimate | None] = {}

    @property
    def traits(self) -> Traits:
        """The kinds of jobs that the model knows, measured in pairs or not."""
        return self._posterior.pairs.traits

    def xi(self, slowed: Workload, others: Sequence[Workload]) -> Estimate | None:
        """As :meth:`.knowledge.Interference.xi`; None for a model or a type of GPU that is not known even alone."""
        return _added([self._pair(slowed, other) for other in others])

    def _pair(self, slowed: Workload, other: Workload) -> Estimate | None:
        if (slowed, other) not in self._pairs:
            one, two = self.traits.of(slowed), self.traits.of(other)
            found = None
            if one is not None and two is not None:
                means, deviations = self._posterior.predict(one, two)
                found = estimate(float(means[0]), float(deviations[0]))
            self._pairs[slowed, other] = found
        return self._pairs[slowed, other]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of measured pairs, each by a model that did not see that pair: to judge policies that may not know it.

    Attributes:
        pairs: by kinds on one GPU, both directions.
        otherwise: for all that was not measured; it may have seen everything.
    """

    pairs: Mapping[tuple[Workload, Workload], Estimate]
    otherwise: Predicted

    def xi(self, slowed: Workload, others: Sequence[Workload]) -> Estimate | None:
        """As :meth:`Predicted.xi`."""
        one = _one_gpu(slowed)
        found = [self.pairs.get((one, _one_gpu(other))) or self.otherwise.xi(slowed, (other,)) for other in others]
        return _added(found)


def _one_gpu(kind: Workload) -> Workload:
    return Workload(kind.model, kind.batch, kind.gpu_type)


def _added(pairs: Sequence[Estimate | None]) -> Estimate | None:
    """Slowdowns beside each of several, added; errors are independent."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    value = 1.0 + math.fsum(pair.value - 1.0 for pair in known)
    return Estimate(value, math.hypot(*(pair.error for pair in known)), Source.PREDICTED)
