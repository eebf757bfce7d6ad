"""Interference of pairs by any regression over what is known of both jobs alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from benchmarks.predictors.regressors import Regressor
from slurm_soda.policies.sharing.prediction.covariance_kernels import TraitScaling, Vector
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits, Matrix


class View(StrEnum):
    """What a regression sees of a pair."""

    TRAITS = "traits"
    """Traits of both jobs and their batches: nothing but what can be observed of each alone."""
    NAMED = "named"
    """And which model each of them is."""
    KINDS = "kinds"
    """Which kinds they are, as numbers, and nothing else."""


@dataclass(frozen=True, slots=True)
class Features:
    """Rows of numbers for pairs of jobs."""

    view: View
    scaling: TraitScaling
    known: KindTraits
    """The jobs that were learned from."""

    def rows(self, slowed: KindTraits, other: KindTraits) -> Matrix:
        """One row for each row of ``slowed`` and the same of ``other``."""
        return np.hstack([self._of(slowed), self._of(other)])

    def _of(self, jobs: KindTraits) -> Matrix:
        if self.view is View.KINDS:
            number = {kind: row for row, kind in enumerate(self.known.kinds)}
            return np.array([[float(number.get(kind, -1))] for kind in jobs.kinds]).reshape(len(jobs), 1)
        centre = self.known.log_batch.mean()
        columns = [self.scaling.scaled(jobs), ((jobs.log_batch - centre) / 2.0)[:, None]]
        if self.view is View.NAMED:
            models = sorted(set(self.known.models))
            columns.append(np.array([[float(job == model) for model in models] for job in jobs.models]))
        return np.hstack(columns)


@dataclass(frozen=True, slots=True)
class Regression:
    """A fitted regression of log xi.

    Attributes:
        deviation: standard deviation of log xi from it, of pairs that it did not see; the same for all.
    """

    features: Features
    regressor: Regressor
    deviation: float

    @property
    def traits(self) -> KindTraits:
        """The kinds of jobs that it knows."""
        return self.features.known

    def predict(self, slowed: KindTraits, other: KindTraits) -> tuple[Vector, Vector]:
        """Mean and standard deviation of log xi, as :meth:`.gaussian.Posterior.predict`."""
        means = self.regressor.values(self.features.rows(slowed, other))
        return means, np.full(len(means), self.deviation)
