"""Curves that utilisation by cores may follow, and how well each explains what was measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from slurm_soda.policies.cpu_fit.measurement import Measurement

KNEE_STEP = 1.04
"""Our choice: knees are 4 % apart, so that the nearest one is off by no more than 2 %."""
CURVE_SHAPES = (
    *((share, 1.0) for share in (0.0, 0.02, 0.04, 0.07, 0.11, 0.2, 0.35)),
    *((0.0, bend) for bend in (1.2, 1.5, 2.0)),
)
"""Serial share and bend of the curves considered; our choice."""
SHAPE_NOISE_RATIO = 0.02
"""How much a job may differ from a curve, as a share of its best utilisation, where the curve is far below its best: jobs
follow no formula. Our choice; with 0 measurements with few cores are believed too much."""
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True, slots=True)
class UtilisationCurve:
    """Utilisation relative to its best, concave up to the knee and flat from there.

    "The CPU core number affects the job's performance like the traditional multithreading job" (Section IV-B), so up to
    the knee it is Amdahl's speed-up; beyond the best fit utilisation "does not change" (Section V-B). Where input and
    training overlap imperfectly the knee is rounded: 1 - (1 - speed-up / speed-up at the knee) ^ ``bend``.
    """

    best_fit: int
    """Fewest cores within the tolerance of the best."""
    ratios: array[float]
    """By cores, from 1."""

    def at(self, cores: int) -> float:
        """Utilisation relative to the best, with so many cores."""
        return self.ratios[cores - 1]


def _relative(cores: int, knee: float, serial_share: float, bend: float) -> float:
    if cores >= knee:
        return 1.0
    sped_up = cores * (1 + serial_share * (knee - 1)) / (knee * (1 + serial_share * (cores - 1)))
    return 1.0 - math.pow(1.0 - sped_up, bend)


def _curve(limit: int, knee: float, shape: tuple[float, float], tolerance_ratio: float) -> UtilisationCurve:
    ratios = array("d", [_relative(cores, knee, *shape) for cores in range(1, limit + 1)])
    best_fit = next(cores for cores, ratio in enumerate(ratios, 1) if ratio >= 1 - tolerance_ratio)
    return UtilisationCurve(best_fit, ratios)


@lru_cache(maxsize=2)  # small, as 256 cores take 3 MB
def list_curves(limit: int, tolerance_ratio: float) -> tuple[UtilisationCurve, ...]:
    """All curves considered, by knee from 1 to ``limit``, then by shape."""
    steps = math.ceil(math.log(limit) / math.log(KNEE_STEP))
    knees = [limit ** (step / steps) for step in range(steps + 1)] if steps else [1.0]
    return tuple(_curve(limit, knee, shape, tolerance_ratio) for knee in knees for shape in CURVE_SHAPES)


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A curve, scaled to what was measured."""

    curve: UtilisationCurve
    best_ratio: float
    """Utilisation that the curve promises at and beyond its knee."""
    weight: float
    """Probability; those of all explanations add up to 1."""
    misfit: float
    """Sum of squared residuals, each in units of its noise."""


def fit_curves(candidates: Sequence[UtilisationCurve], measured: Sequence[Measurement]) -> tuple[CurveFit, ...]:
    """Curves that can be believed after ``measured``, in the order of ``candidates``.

    Bayes with Gaussian noise; before measuring all curves are alike and every best utilisation up to 1 is. The best
    utilisation is integrated out, so a curve that leaves it open loses nothing to one that fixes it.
    """
    scored = [(curve, *_fit_scale(curve, measured)) for curve in candidates]
    least = min(cost for *_, cost in scored)
    weights = [math.exp((least - cost) / 2) for *_, cost in scored]
    kept = [(entry, weight) for entry, weight in zip(scored, weights, strict=True) if weight > _NEGLIGIBLE]
    total = sum(weight for _, weight in kept)
    return tuple(CurveFit(curve, best, weight / total, misfit) for (curve, best, misfit, _), weight in kept)


def _fit_scale(curve: UtilisationCurve, measured: Sequence[Measurement]) -> tuple[float, float, float]:
    """Best utilisation by least squares, not above 1; misfit; and twice the negative logarithm of the evidence."""
    top = max(one.utilisation_ratio for one in measured)
    precision = overlap = noises = 0.0
    rows = []
    for one in measured:
        shape = curve.at(one.cores)
        noise = math.hypot(one.noise_ratio, SHAPE_NOISE_RATIO * top * (1 - shape))
        rows.append((shape / noise, one.utilisation_ratio / noise))
        precision += (shape / noise) ** 2
        overlap += shape * one.utilisation_ratio / noise**2
        noises += 2 * math.log(noise)
    best = min(overlap / precision, 1.0)
    misfit = sum((seen - best * shape) ** 2 for shape, seen in rows)
    return best, misfit, misfit + math.log(precision) + noises
