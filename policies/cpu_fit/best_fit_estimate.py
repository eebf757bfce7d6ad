"""What the curves that can still be believed say: the likely best fit, and the cores to try to learn more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from slurm_soda.policies.cpu_fit.utilisation_curves import CurveFit

_QUANTILE = 0.7
"""Our choice above one half: a core too many costs less than one too few, which costs utilisation."""


def estimate_best_fit(beliefs: Sequence[CurveFit]) -> tuple[int, float]:
    """The fewest cores that suffice with probability 0.7, and the probability that they are the best fit or one above."""
    weight: dict[int, float] = {}
    for belief in beliefs:
        fit = belief.curve.best_fit
        weight[fit] = weight.get(fit, 0.0) + belief.weight
    reached = 0.0
    for fit in sorted(weight):
        reached += weight[fit]
        if reached >= _QUANTILE:
            break
    return fit, weight[fit] + weight.get(fit - 1, 0.0)


def find_most_informative_cores(beliefs: Sequence[CurveFit], candidates: Sequence[int], noise_ratio: float) -> int:
    """The candidate at which a measurement would, on average, narrow down the best fit most; ties go to the first.

    The best linear prediction of the best fit F from a utilisation U measured with noise s explains
    cov(F, U)^2 / (var(U) + s^2) of the variance of F.

    Args:
        candidates: numbers of cores, at least one.
        noise_ratio: standard error of a measurement, relative to its mean.
    """
    weights = [belief.weight for belief in beliefs]
    scaled = [(belief.best_ratio, belief.curve.ratios) for belief in beliefs]
    mean_fit = sum(belief.weight * belief.curve.best_fit for belief in beliefs)
    shares = [belief.weight * (belief.curve.best_fit - mean_fit) for belief in beliefs]

    def explained(cores: int) -> float:
        seen = [best * ratios[cores - 1] for best, ratios in scaled]
        mean = sum(map(mul, weights, seen))
        off = [ratio - mean for ratio in seen]
        variance = sum(map(mul, weights, map(mul, off, off)))
        covariance = sum(map(mul, shares, off))
        value: float = covariance * covariance / (variance + (noise_ratio * mean) ** 2)
        return value

    return max(candidates, key=explained)
