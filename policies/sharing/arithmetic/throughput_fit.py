"""Fitting the time model to measured iterations: bounded Gauss-Newton, small and without surprises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.throughput import MOST_OVERLAP, Throughput, accumulation_passes
from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.policies.snapshot import FloatColumn

LEAST_NOISE_RATIO = 0.01
"""Our choice, as for cores: no mean of iterations is believed to less than 1 % of itself."""
MOST_MISFIT_RATIO = 0.5
"""Our choice: times that are off by half on average do not follow the model, whatever it predicts."""
_STARTS = tuple((comm, overlap) for comm in (0.1, 0.4, 0.8) for overlap in (1.0, 1.5, 3.0, 8.0))
"""Exchange, as a share of the mean iteration, and overlap; the fit has several minima, as computation and exchange can
stand in for each other."""
_MOST_ROUNDS = 100
_UNSEEN = 1e-7
_EXACT = 1e-18


class MeasuredIteration(NamedTuple):
    """Mean time of iterations with one setting."""

    batch: int
    """Of one GPU and one iteration."""
    sub_batch: int
    """Of one pass; the batch where no gradients are accumulated."""
    iteration_s: float


@dataclass(frozen=True, slots=True)
class _Settings:
    """Observations as columns: samples relative to their mean, so that all unknowns are near 1."""

    before: FloatColumn
    sub: FloatColumn
    last: FloatColumn

    @classmethod
    def of(cls, settings: Sequence[tuple[int, int]], unit: float) -> _Settings:
        steps = [accumulation_passes(batch, sub_batch) for batch, sub_batch in settings]
        column = [(count - 1, sub / unit, last / unit) for (count, last), (_, sub) in zip(steps, settings, strict=True)]
        return cls(*np.array(column, dtype=np.float64).T)

    def times(self, x: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
        """Iteration times, and their derivatives by (fixed, per sample, exchange, overlap)."""
        fixed, per_sample, comm, overlap = x
        last = fixed + per_sample * self.last
        longer, shorter = np.maximum(np.maximum(last, comm), 1e-300), np.minimum(last, comm)
        ratio = shorter / longer
        power = ratio**overlap
        both = longer * (1 + power) ** (1 / overlap)
        by_last, by_comm = (last / both) ** (overlap - 1), (comm / both) ** (overlap - 1)
        log = np.log(np.where(ratio > 0, ratio, 1.0))
        by_overlap = both * (power * log / (overlap * (1 + power)) - np.log1p(power) / overlap**2)
        columns = (self.before + by_last, self.before * self.sub + by_last * self.last, by_comm, by_overlap)
        return self.before * (fixed + per_sample * self.sub) + both, np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class ThroughputFit:
    """A fitted model, and how well it explains what was measured.

    Attributes:
        throughput: the model.
        residuals: (model - measured) / measured, in the order of the observations.
    """

    throughput: Throughput
    residuals: tuple[float, ...]
    _unit: float
    _spread: FloatColumn
    """What one standard deviation of noise does to the unknowns: rows of a matrix R with covariance R^T R."""
    _unseen: FloatColumn
    """Directions in which the unknowns may move without any observation noticing."""

    @property
    def misfit_ratio(self) -> float:
        """Root of the mean square of the residuals."""
        return math.sqrt(sum(off * off for off in self.residuals) / len(self.residuals))

    def predict(self, batch: int, sub_batch: int | None = None) -> Estimate:
        """Iteration time with a setting that need not have been measured.

        The error is one standard deviation, by how the model would change with noise; infinite where the setting
        depends on something that no observation shows, such as accumulation steps after iterations without any.
        """
        model, setting = self.throughput, (batch, batch if sub_batch is None else sub_batch)
        x = np.array([model.fixed_s, model.per_sample_s * self._unit, model.comm_s, model.overlap])
        _, slopes = _Settings.of([setting], self._unit).times(x)
        slope = slopes[0]
        value = model.iteration_s(*setting)
        if np.any(np.abs(self._unseen @ slope) > math.sqrt(_UNSEEN) * max(value, 1e-300)):
            return Estimate(value, math.inf, Source.PREDICTED)
        return Estimate(value, float(np.linalg.norm(self._spread @ slope)), Source.PREDICTED)


def fit_throughput(observations: Sequence[MeasuredIteration], *, exchanges: bool) -> ThroughputFit:
    """The model of least squared relative error among those with no negative time and an overlap from 1 to 10.

    Args:
        observations: of one job on one number and type of GPUs.
        exchanges: the job has several GPUs, so gradients are exchanged; otherwise t_comm is 0.

    Complexity: O(n) a round, at most 12 x 100 rounds; some 10 ms.

    Raises:
        PolicyError: a time is not positive, a sub-batch does not fit its batch, there are fewer different settings than
            unknowns (2 on one GPU, else 4), all batches are alike, or the times do not follow the model at all.
    """
    unknowns = 4 if exchanges else 2
    _check(observations, unknowns)
    unit = sum(seen.batch for seen in observations) / len(observations)
    measured = np.array([seen.iteration_s for seen in observations])
    scale = float(measured.mean())
    settings = _Settings.of([(seen.batch, seen.sub_batch) for seen in observations], unit)
    problem = _Problem(settings, measured / scale, unknowns)
    x, residuals, jacobian = problem.solved()
    fit = _checked_fit(x, residuals, jacobian[:, :unknowns], scale, unit)
    if fit.misfit_ratio > MOST_MISFIT_RATIO:
        raise PolicyError(
            f"iteration times are off the model by {fit.misfit_ratio:.0%} on average (most allowed "
            f"{MOST_MISFIT_RATIO:.0%}): give times of one job on one number and type of GPUs"
        )
    return fit


def _check(observations: Sequence[MeasuredIteration], unknowns: int) -> None:
    for seen in observations:
        accumulation_passes(seen.batch, seen.sub_batch)
        if not 0 < seen.iteration_s < math.inf:
            raise PolicyError(f"an iteration must take a positive, finite time, not {seen.iteration_s!r} s")
    settings = {(seen.batch, seen.sub_batch) for seen in observations}
    if len(settings) < unknowns or len({batch for batch, _ in settings}) < 2:
        raise PolicyError(
            f"{unknowns} unknowns need as many different settings with at least 2 different batches, not "
            f"{sorted(settings)}: measure more of them"
        )


@dataclass(frozen=True, slots=True)
class _Problem:
    settings: _Settings
    measured: FloatColumn
    unknowns: int

    def solved(self) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
        starts = _STARTS if self.unknowns == 4 else ((0.0, 1.0),)
        found = [self._descend(np.array([0.2, 0.6, *start])) for start in starts]
        return min(found, key=lambda end: float(end[1] @ end[1]))

    def _residuals(self, x: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
        times, slopes = self.settings.times(x)
        jacobian = slopes / self.measured[:, None]
        jacobian[:, self.unknowns :] = 0.0
        return times / self.measured - 1.0, jacobian

    def _descend(self, x: FloatColumn) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
        """Levenberg-Marquardt; unknowns at a bound that the descent would cross stay there for the round."""
        lower, upper = np.array([0.0, 0.0, 0.0, 1.0]), np.array([np.inf, np.inf, np.inf, MOST_OVERLAP])
        damping = 1e-3
        residuals, jacobian = self._residuals(x)
        for _ in range(_MOST_ROUNDS):
            slope, square = jacobian.T @ residuals, jacobian.T @ jacobian
            stuck = ((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0)) | (np.diag(square) == 0)
            free = np.flatnonzero(~stuck)
            if not len(free) or np.max(np.abs(slope[free])) < 1e-14:
                break
            inner = square[np.ix_(free, free)]
            step = np.zeros(4)
            step[free] = np.linalg.solve(inner + np.diag(damping * np.diag(inner) + 1e-15), -slope[free])
            trial = np.clip(x + step, lower, upper)
            trial_residuals, trial_jacobian = self._residuals(trial)
            cost, trial_cost = float(residuals @ residuals), float(trial_residuals @ trial_residuals)
            if trial_cost < cost:
                done = cost - trial_cost < 1e-9 * cost or trial_cost < _EXACT
                x, residuals, jacobian = trial, trial_residuals, trial_jacobian
                damping = max(damping / 3, 1e-12)
                if done:
                    break
            elif damping > 1e12:
                break
            else:
                damping *= 4
        return x, residuals, jacobian


def _checked_fit(
    x: FloatColumn, residuals: FloatColumn, jacobian: FloatColumn, scale: float, unit: float
) -> ThroughputFit:
    fixed, per_sample, comm, overlap = (float(value) for value in x)
    throughput = Throughput(fixed * scale, per_sample * scale / unit, comm * scale, overlap)
    unknowns = jacobian.shape[1]
    free_ends = max(len(residuals) - unknowns, 1)
    noise = max(math.sqrt(float(residuals @ residuals) / free_ends), LEAST_NOISE_RATIO)
    _, sizes, directions = np.linalg.svd(jacobian)
    directions = np.pad(directions, ((0, 0), (0, 4 - unknowns)))  # what is known beforehand does not move
    seen = sizes > _UNSEEN * sizes[0]
    # Spreads are of unknowns in units of the mean time, except for the overlap, which has none.
    back = np.array([scale, scale, scale, 1.0])
    spread = noise * directions[seen] / sizes[seen][:, None] * back
    return ThroughputFit(throughput, tuple(float(off) for off in residuals), unit, spread, directions[~seen] * back)
