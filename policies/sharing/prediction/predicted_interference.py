"""Interference of pairs that were never measured, from models that learned from those that were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.prediction.gaussian_process import MeasuredPairs
from slurm_soda.policies.sharing.prediction.kind_traits import derive_traits
from slurm_soda.policies.sharing.prediction.memory_fit import MemorySizes
from slurm_soda.policies.sharing.prediction.pair_model import PairModel
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable

MEAN_DEVIATION = math.sqrt(2 / math.pi)
"""Expected absolute deviation of a normal variable, in standard deviations."""


def collect_pairs(table: SpeedTable, gpu_type: str) -> MeasuredPairs:
    """All measured pairs on one GPU of a type that fit, both directions of each; speeds above those alone are noise.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
    """
    traits = derive_traits(table, gpu_type)
    found = [
        (row, column, math.log(max(xi, 1.0)))
        for row, slowed in enumerate(traits.kinds)
        for column, other in enumerate(traits.kinds)
        if (xi := table.slowdown(slowed, other)) is not None
    ]
    slowed, others, log_xi = np.array(found).reshape(-1, 3).T
    return MeasuredPairs(traits, slowed.astype(np.int64), others.astype(np.int64), log_xi)


def estimate_from_log(log_mean: float, log_deviation: float) -> Estimate:
    """Median and expected absolute error of a slowdown whose logarithm is normal; at least 1."""
    value = max(math.exp(log_mean), 1.0)
    return Estimate(value, value * math.expm1(MEAN_DEVIATION * log_deviation), Source.PREDICTED)


@dataclass(frozen=True, slots=True)
class PredictedInterference:
    """Slowdowns and memory on GPUs of some types, a model for each; a pair is computed when it is first asked for.

    Jobs of several GPUs count as one of their workers. Slowdowns beside several others add up (xi - 1 summed). A batch
    that nobody measured counts as one between those next to it.

    Attributes:
        models: by type of GPU.
        sizes: by type of GPU, where it was learned what fits.
    """

    models: Mapping[str, PairModel]
    sizes: Mapping[str, MemorySizes] = field(default_factory=dict)
    _asked: dict[tuple[JobKind, JobKind], Estimate | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """As :meth:`.InterferenceEstimator.xi`; None for a model or a type of GPU that is not known even alone."""
        return add_slowdowns([self._pair(slowed, other) for other in others])

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """As :meth:`.KindEstimates.fits`."""
        sizes = self.sizes.get(together[0].gpu_type) if together else None
        return None if sizes is None else sizes.fits(together)

    def _pair(self, slowed: JobKind, other: JobKind) -> Estimate | None:
        if (slowed, other) not in self._asked:
            self._asked[slowed, other] = self._predict(slowed, other)
        return self._asked[slowed, other]

    def _predict(self, slowed: JobKind, other: JobKind) -> Estimate | None:
        model = self.models.get(slowed.gpu_type)
        if model is None:
            return None
        one, two = model.traits.of(slowed), model.traits.of(other)
        if one is None or two is None:
            return None
        means, deviations = model.predict(one, two)
        return estimate_from_log(float(means[0]), float(deviations[0]))


@dataclass(frozen=True, slots=True)
class HeldOutInterference:
    """Predictions of measured pairs, each by models that did not see that pair: to judge policies that may not know it.

    A batch that nobody measured counts as the measured one next to it.

    Attributes:
        pairs: slowdowns by kinds on one GPU, both directions.
        fit: whether they fit, either order.
        otherwise: for pairs that were not measured; it may have seen everything.
    """

    pairs: Mapping[tuple[JobKind, JobKind], Estimate]
    fit: Mapping[tuple[JobKind, JobKind], bool | None]
    otherwise: PredictedInterference

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """As :meth:`PredictedInterference.xi`."""
        one, found = self._nearest(slowed), []
        for other in others:
            two = self._nearest(other)
            found.append(self.pairs.get((one, two)) or self.otherwise.xi(one, (two,)))
        return add_slowdowns(found)

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """As :meth:`PredictedInterference.fits`."""
        found = [self._fits(one, other) for one, other in combinations(together, 2)]
        if False in found:
            return False
        return None if None in found or len(together) > 2 else True

    def _fits(self, one: JobKind, other: JobKind) -> bool | None:
        key = self._nearest(one), self._nearest(other)
        for pair in (key, key[::-1]):
            if pair in self.fit:
                return self.fit[pair]
        return self.otherwise.fits(key)

    def _nearest(self, kind: JobKind) -> JobKind:
        """One of its workers, with the measured batch next to its own by ratio, the larger of equals.

        Whoever predicts a batch between from all that was measured may know the very pair that is kept from it.
        """
        model = self.otherwise.models.get(kind.gpu_type)
        same = [] if model is None else [known for known in model.traits.kinds if known.model == kind.model]
        if not same:
            return JobKind(kind.model, kind.batch, kind.gpu_type)
        return min(same, key=lambda one: (abs(math.log(max(one.batch, 1) / max(kind.batch, 1))), -one.batch))


def add_slowdowns(pairs: Sequence[Estimate | None]) -> Estimate | None:
    """Slowdown beside several, from that beside each; errors are independent. None where one is unknown."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    value = 1.0 + math.fsum(pair.value - 1.0 for pair in known)
    return Estimate(value, math.hypot(*(pair.error for pair in known)), Source.PREDICTED)
