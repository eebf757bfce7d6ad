"""The search for a running job's best fit: at most four steps, each a number of cores to try (SODA, Section V-B)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from slurm_soda.policies.cpu_fit.best_fit_estimate import estimate_best_fit, find_most_informative_cores
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.cpu_fit.utilisation_curves import CurveFit, fit_curves, list_curves
from slurm_soda.policies.errors import PolicyError


@dataclass(frozen=True, slots=True)
class SearchRules:
    """What a site may set.

    Raises:
        PolicyError: a value is out of range.
    """

    tolerance_ratio: float = 0.02
    """Best fit: the fewest cores whose utilisation is at most this share below the best possible."""
    most_steps: int = 4
    """Section VI-H, Table V."""
    free_unneeded: bool = False
    """Also take cores from a job that does as well with one; otherwise nothing is changed for it."""
    sure_ratio: float = 0.95
    """Probability of being within one core of the best fit at which a search ends early; our choice."""

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance_ratio < 0.5 or not 0.5 <= self.sure_ratio < 1.0 or self.most_steps < 0:
            raise PolicyError(
                "a search needs a tolerance above 0 and below 0.5, a certainty from 0.5 to below 1 and at least 0 steps, "
                f"not {self.tolerance_ratio!r}, {self.sure_ratio!r} and {self.most_steps}"
            )


class SettleReason(Enum):
    """Why a search ended, as a person reads it."""

    IDLE = "the job's GPUs hardly work: its cores cannot be judged"
    INDEPENDENT = "utilisation does not depend on cores"
    BEST_FIT = "the fewest cores with the best utilisation"
    MEASURED = "no known curve explains the measurements: the fewest cores measured with the best utilisation"
    KEPT = "fewer or more cores would not do as well"


CONCLUSIVE = (SettleReason.BEST_FIT, SettleReason.MEASURED, SettleReason.KEPT)
"""Ends of a search that say how many cores the job needs."""


@dataclass(frozen=True, slots=True)
class TryCores:
    """Give the job so many cores on each of its nodes, and measure for one step."""

    cores: int


@dataclass(frozen=True, slots=True)
class SettleCores:
    """Give the job so many cores on each of its nodes, and leave it alone until :func:`.entered_new_phase` says so."""

    cores: int
    reason: SettleReason


@dataclass(frozen=True, slots=True)
class CoreSearch:
    """The search for one job, as far as it has come; its measurements are its whole state.

    A job on several nodes has equally many cores on each, and one measurement (:func:`.measurement.together`).

    A step is one measurement after the first. The first is taken with ``start``, the cores that the job has anyway, and so
    costs it nothing; :attr:`SearchRules.most_steps` bounds the others.

    Attributes:
        start: cores on each node when the search begins.
        limit: the most that may be tried, on each node.

    Raises:
        PolicyError: ``start`` or a measurement is not within 1 and ``limit``.
    """

    start: int
    limit: int
    rules: SearchRules = field(default_factory=SearchRules)
    measured: tuple[Measurement, ...] = ()

    def __post_init__(self) -> None:
        for cores in (self.start, *(one.cores for one in self.measured)):
            if not 1 <= cores <= self.limit:
                raise PolicyError(f"a search from 1 to {self.limit} cores cannot use {cores}: raise its limit")

    @property
    def steps(self) -> int:
        """Steps taken."""
        return max(len(self.measured) - 1, 0)

    def after(self, measurement: Measurement) -> CoreSearch:
        """The search with one measurement more; its cores need not be those asked for, but count as a step."""
        return replace(self, measured=(*self.measured, measurement))

    def advice(self) -> TryCores | SettleCores:
        """What to do now; the same for the same measurements.

        The next cores to try are those that show most about the best fit, as long as that is open; then the best fit
        itself, so that the job does not end with cores that it never had. Ties go to fewer cores, which the paper tries
        first.
        """
        return _advice(self)


# It takes milliseconds: every report of every node asks again, and in simulations thousands of jobs measure the same.
@lru_cache(maxsize=100_000)
def _advice(search: CoreSearch) -> TryCores | SettleCores:
    if not search.measured:
        return TryCores(search.start)
    if search.measured[0].idle:
        return SettleCores(search.start, SettleReason.IDLE)
    beliefs = fit_curves(list_curves(search.limit, search.rules.tolerance_ratio), search.measured)
    wanted, sure_ratio = estimate_best_fit(beliefs)
    left = search.rules.most_steps - search.steps
    tried = {one.cores for one in search.measured}
    if left > 0 and _may_be_independent(search, wanted) and 1 not in tried:
        return TryCores(1)
    sure = sure_ratio >= search.rules.sure_ratio
    if left <= 0 or (sure and wanted in tried) or len(tried) == search.limit:
        return _settled(search, beliefs, wanted)
    if wanted not in tried and (sure or left == 1):
        return TryCores(wanted)
    noise = max(one.noise_ratio / max(one.utilisation_ratio, one.noise_ratio) for one in search.measured)
    return TryCores(
        find_most_informative_cores(
            beliefs, [cores for cores in range(1, search.limit + 1) if cores not in tried], noise
        )
    )


def _may_be_independent(search: CoreSearch, wanted: int) -> bool:
    """Only one core shows whether utilisation depends on cores; asked where it decides what the job keeps."""
    return wanted <= 2 < search.start and not search.rules.free_unneeded


_MOST_MISFIT = 25.0
"""Our choice: a sum of squares that noise reaches once in 7 000 searches of five measurements."""
_NOISE_WIDTHS = 2.0
"""Our choice: a difference counts from two standard errors on."""


def _settled(search: CoreSearch, beliefs: Sequence[CurveFit], wanted: int) -> SettleCores:
    start = search.measured[0]
    reason = SettleReason.BEST_FIT
    if min(belief.misfit for belief in beliefs) > _MOST_MISFIT:
        wanted, reason = _best_measured(search), SettleReason.MEASURED
    if _independent(search, beliefs) and not search.rules.free_unneeded:
        return SettleCores(search.start, SettleReason.INDEPENDENT)
    for cores in range(wanted, max(wanted, search.start) + 1):
        if _is_as_good(search, start, bound_utilisation_below(search.measured, cores)):
            return SettleCores(cores, reason)
    return SettleCores(search.start, SettleReason.KEPT)


def _independent(search: CoreSearch, beliefs: Sequence[CurveFit]) -> bool:
    """One core was measured, and did as well as the best possible apart from the tolerance and one standard error."""
    best_ratio = sum(belief.weight * belief.best_ratio for belief in beliefs)
    with_one = [one for one in search.measured if one.cores == 1]
    allowed_ratio = best_ratio * (1 - search.rules.tolerance_ratio)
    return bool(with_one) and all(one.utilisation_ratio + one.noise_ratio >= allowed_ratio for one in with_one)


def _best_measured(search: CoreSearch) -> int:
    best = max(search.measured, key=lambda one: one.utilisation_ratio)
    return min(one.cores for one in search.measured if _is_as_good(search, best, one.utilisation_ratio))


def _is_as_good(search: CoreSearch, than: Measurement, utilisation_ratio: float) -> bool:
    """Whether so much is no less than a measurement, apart from the tolerance and from noise."""
    allowance = _NOISE_WIDTHS * math.sqrt(2) * than.noise_ratio
    return utilisation_ratio >= than.utilisation_ratio * (1 - search.rules.tolerance_ratio) - allowance


def bound_utilisation_below(measured: Sequence[Measurement], cores: int) -> float:
    """Utilisation that any concave curve through the measurements has at least: it lies above their chords."""
    seen: dict[int, list[float]] = {0: [0.0]}
    for one in measured:
        seen.setdefault(one.cores, []).append(one.utilisation_ratio)
    points = sorted((at, sum(values) / len(values)) for at, values in seen.items())
    for (low, below), (high, above) in pairwise(points):
        if low <= cores <= high:
            return below + (above - below) * (cores - low) / (high - low)
    return points[-1][1]
