"""The shape of a Gaussian process over pairs: kernels and noise of most evidence (Rasmussen, Williams, Section 5.4.1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.libraries import import_library
from slurm_soda.policies.sharing.prediction.covariance_kernels import PairKernel, TraitScaling, Vector, relate_kinds
from slurm_soda.policies.sharing.prediction.gaussian_process import (
    JITTER,
    GaussianHyperparameters,
    GaussianPosterior,
    MeasuredPairs,
    pair_covariances,
)
from slurm_soda.policies.sharing.prediction.kind_traits import Matrix
from slurm_soda.policies.sharing.prediction.predicted_interference import MEAN_DEVIATION
from slurm_soda.policies.snapshot import IntColumn

START_KERNELS = (PairKernel(),)
START_LOG_NOISE = -4.0
WIDTH = 3.0
"""How far off their start the (logarithmic) numbers of a shape are expected: evidence alone would let some run away."""
STEPS = 40
MIN_PAIRS = 3
"""Different pairs: two tell no difference from noise."""
MIN_ERROR = 1e-3
"""Nobody is told that predictions are better than that, in log xi."""
MAX_FIT_PAIRS = 1000
"""Measurements that the shape is found from, drawn where there are more."""
MAX_PAIRS = 3000
"""Measurements that a Gaussian process takes in: 100 MiB and some seconds."""
SEED = 1


def fit_hyperparameters(pairs: MeasuredPairs, start: tuple[PairKernel, ...] = START_KERNELS) -> GaussianHyperparameters:
    """The shape that best explains the pairs, calibrated on predictions without each of them.

    Complexity: O(n^3) a step for n pairs, but no more than :data:`MAX_FIT_PAIRS`; some seconds for 650.

    Raises:
        LearningError: fewer than :data:`MIN_PAIRS` different pairs, or no SciPy.
    """
    different = len(np.unique(pairs.unordered()))
    if different < MIN_PAIRS:
        raise LearningError(
            f"interference needs {MIN_PAIRS} or more different pairs to learn from, not {different}: measure more"
        )
    centre, unit = _centred(pairs.log_xi)
    some = (
        pairs.rows(np.random.default_rng(SEED).permutation(len(pairs))[:MAX_FIT_PAIRS])
        if len(pairs) > MAX_FIT_PAIRS
        else pairs
    )
    origin = np.append(np.concatenate([kernel.vector for kernel in start]), START_LOG_NOISE)
    evidence = _Evidence(some, (some.log_xi - centre) / unit, origin)
    found = import_library("scipy.optimize").minimize(
        evidence, origin, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
    )
    shape = GaussianHyperparameters(_kernels(found.x), float(found.x[-1]), centre, unit)
    return calibrate(shape, pairs)


def fit_gaussian(pairs: MeasuredPairs) -> GaussianPosterior:
    """A Gaussian process over pairs of jobs; over :data:`MAX_PAIRS`, drawn, where there are more."""
    if len(pairs) > MAX_PAIRS:
        pairs = pairs.rows(np.sort(np.random.default_rng(SEED).permutation(len(pairs))[:MAX_PAIRS]))
    return GaussianPosterior(fit_hyperparameters(pairs), pairs)


def calibrate(shape: GaussianHyperparameters, pairs: MeasuredPairs) -> GaussianHyperparameters:
    """With deviations that are right on average for pairs left out."""
    means, deviations = GaussianPosterior(replace(shape, calibration=1.0), pairs).left_out(pairs.unordered())
    off = max(float(np.abs(means - pairs.log_xi).mean()), MIN_ERROR)
    return replace(shape, calibration=off / (MEAN_DEVIATION * float(deviations.mean())))


class _Evidence:
    """Negative logarithm of the evidence (Equation 5.8) and of the expectation of the numbers, and its gradient (5.9)."""

    def __init__(self, pairs: MeasuredPairs, targets: Vector, origin: Vector) -> None:
        self._pairs, self._targets, self._origin = pairs, targets, origin
        self._known = relate_kinds(TraitScaling.of(pairs.traits), pairs.traits, pairs.traits)

    def __call__(self, numbers: Vector) -> tuple[float, Vector]:
        rows = self._pairs.slowed, self._pairs.other
        kernels, noise = _kernels(numbers), float(np.exp(numbers[-1]))
        covariance = pair_covariances(kernels, self._known, rows, rows) + (noise + JITTER) * np.eye(len(self._pairs))
        inverse = np.linalg.inv(covariance)
        weights = inverse @ self._targets
        _, log_determinant = np.linalg.slogdet(covariance)
        off = (numbers - self._origin) / WIDTH
        value = 0.5 * (self._targets @ weights + log_determinant + off @ off)
        slope = 0.5 * (inverse - np.outer(weights, weights))
        gradient = [self._gradient(kernel, slope) for kernel in kernels]
        return float(value), np.append(np.concatenate(gradient), noise * np.trace(slope)) + off / WIDTH

    def _gradient(self, kernel: PairKernel, slope: Matrix) -> Vector:
        """By each number of one kernel; sums over pairs become sums over jobs first."""
        slowed, other, weight = self._pairs.slowed, self._pairs.other, np.exp(kernel.weight)
        by_slowed, by_other = kernel.slowed.matrix(self._known), kernel.other.matrix(self._known)
        jobs = len(self._pairs.traits)
        of_slowed = weight * _summed(slope * by_other[np.ix_(other, other)], slowed, jobs)
        of_other = weight * _summed(slope * by_slowed[np.ix_(slowed, slowed)], other, jobs)
        return np.array(
            [
                *(float((of_slowed * part).sum()) for part in kernel.slowed.gradients(self._known)),
                *(float((of_other * part).sum()) for part in kernel.other.gradients(self._known)),
                float((of_slowed * by_slowed).sum()),
            ]
        )


def _summed(values: Matrix, rows: IntColumn, count: int) -> Matrix:
    """Entries of pairs, added up by the jobs of their rows and columns."""
    indicator = np.zeros((len(rows), count))
    indicator[np.arange(len(rows)), rows] = 1.0
    found: Matrix = indicator.T @ values @ indicator
    return found


def _kernels(numbers: Vector) -> tuple[PairKernel, ...]:
    return tuple(PairKernel.of(part) for part in np.split(numbers[:-1], (len(numbers) - 1) // len(PairKernel().vector)))


def _centred(log_xi: Vector) -> tuple[float, float]:
    spread = float(log_xi.std())
    return float(log_xi.mean()), spread if spread > 1e-9 else 1.0
