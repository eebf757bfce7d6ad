"""Packing a whole queue by patterns: which sets of workers may share a device, and how often to use each.

OJPP places one worker at a time, and balance (Equation 8) stands in its way: where a job's first worker is slowed by more
than the balance, none of its others may have a device of its own, so partners for all of them must be found at once. Here a
queue is covered by patterns instead, several devices at a time. A device costs ``price``; every job costs the speed that it
loses in its worst pattern, as workers wait for each other.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import FULL_DEVICE
from slurm_soda.policies.sharing.ojpp.packing import PackingJobs, PackingRules, check_slowdowns
from slurm_soda.policies.snapshot import FloatColumn, IntColumn

_ROUNDING = 1e-9
MOST_PATTERNS = 20_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of each job's workers, by the row of the job; empty for a job that found none and waits."""

    devices: tuple[tuple[int, ...], ...]
    used: int
    """Devices with at least one worker."""


class Peaks(NamedTuple):
    """A :class:`MemoryDemand` as a plain key: gamma, delta, p."""

    base: float
    extra: float
    probability: float


@lru_cache(maxsize=100_000)
def stalled(demands: tuple[Peaks, ...]) -> tuple[float, ...]:
    """Expected part of its time that each worker on a device waits for memory.

    Peaks come independently, as in Equation 4. While those that peak do not fit together, they take turns, each with an
    equal part of the time; the others go on. Exact, over all 2^k states of k workers.
    """
    base = math.fsum(one.base for one in demands)
    lost = [0.0] * len(demands)
    if base + math.fsum(one.extra for one in demands) <= FULL_DEVICE:
        return tuple(lost)
    for peaks in itertools.product((False, True), repeat=len(demands)):
        peaking = [at for at, peak in enumerate(peaks) if peak]
        if len(peaking) < 2 or base + math.fsum(demands[at].extra for at in peaking) <= FULL_DEVICE:
            continue
        chance = math.prod(
            one.probability if peak else 1 - one.probability for peak, one in zip(peaks, demands, strict=True)
        )
        for at in peaking:
            lost[at] += chance * (1 - 1 / len(peaking))
    return tuple(lost)


@dataclass(frozen=True)
class WorkerPatterns:
    """All sets of workers that a device may hold by everything but balance, one row each.

    Attributes:
        count: workers of each job, shape (patterns, jobs).
        theta: slowdown of each job's workers there; 0 where it has none.
        lost: speed that they lose: 1 - (1 - stalled) / (1 + theta).
    """

    count: IntColumn
    theta: FloatColumn
    lost: FloatColumn

    @cached_property
    def size(self) -> IntColumn:
        """Workers of each pattern."""
        column: IntColumn = self.count.sum(axis=1)
        return column

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Whether a job has a worker in a pattern."""
        return self.count > 0


def enumerate_patterns(
    jobs: PackingJobs, slowdown: FloatColumn, rules: PackingRules, most: int = MOST_PATTERNS
) -> WorkerPatterns:
    """Enumerate patterns, smaller ones first, until there are ``most`` of them.

    Every part of an allowed pattern is allowed, so each size grows from the one before. Complexity: O(patterns x jobs).

    Raises:
        PolicyError: the table of slowdowns is not square, or a model is not in it.
    """
    table = check_slowdowns(slowdown)
    if len(jobs) and int(jobs.model.max()) >= len(table):
        raise PolicyError(f"models of jobs must be rows of the table of slowdowns, 0 to {len(table) - 1}")
    pair = table[jobs.model][:, jobs.model]
    found: list[tuple[int, ...]] = []
    layer: list[tuple[int, ...]] = [(job,) for job in range(len(jobs))]
    while layer and len(found) < most:
        layer = [here for here in layer if _allowed(jobs, pair, rules, here)][: most - len(found)]
        found += layer
        layer = [
            (*here, job)
            for here in layer
            for job in range(here[-1] + rules.apart, len(jobs))
            if here.count(job) < jobs.workers[job]
        ]
    count = np.zeros((len(found), len(jobs)), dtype=np.int64)
    for row, here in enumerate(found):
        np.add.at(count[row], list(here), 1)
    there = count > 0
    theta = np.where(there, count @ pair.T - np.diag(pair), 0.0)
    peaks = [
        Peaks(*one) for one in zip(jobs.base.tolist(), jobs.extra.tolist(), jobs.probability.tolist(), strict=True)
    ]
    waits = np.zeros(theta.shape)
    for row, here in enumerate(found):
        waits[row, list(here)] = stalled(tuple(peaks[job] for job in here))
    return WorkerPatterns(count, theta, np.where(there, 1 - (1 - waits) / (1 + theta), 0.0))


def _allowed(jobs: PackingJobs, pair: FloatColumn, rules: PackingRules, here: tuple[int, ...]) -> bool:
    compute = base = extra = 0.0
    none, one = 1.0, 0.0
    for job in here:
        p = float(jobs.probability[job])
        compute, base, extra = compute + jobs.compute[job], base + jobs.base[job], max(extra, float(jobs.extra[job]))
        none, one = none * (1 - p), one * (1 - p) + none * p
    if compute > FULL_DEVICE or base + extra > FULL_DEVICE or 1 - none - one > rules.collision + _ROUNDING:
        return False
    rows = list(here)
    theta = pair[rows][:, rows].sum(axis=1) - pair[rows, rows]
    return bool((theta <= rules.interference + _ROUNDING).all())


@dataclass(frozen=True, slots=True)
class PatternCover:
    """How often each pattern is used."""

    times: tuple[tuple[int, int], ...]
    """(row of the pattern, devices)."""
    devices: int
    lost: float
    """Speed lost by all jobs together."""

    def cost(self, price: float) -> float:
        return price * self.devices + self.lost


@dataclass(slots=True)
class CoverSearch:
    """Covers of all workers, balanced, each from a few chances.

    Each job has a level, the least slowdown of its workers, and so a range as wide as the balance. Given the levels, devices
    are independent of each other, and the pattern that saves most for what it costs is taken as often as it can be. Then
    levels are changed so that some patterns become possible, and weights of patterns are shaken; what costs more may be kept
    at first (simulated annealing). Same input, same output: the chance is that of a fixed seed.

    Attributes:
        allowed: speed that all jobs together may lose.
        best: the fewest devices so far within that, then the least lost speed; None if no cover was.
    """

    patterns: WorkerPatterns
    jobs: PackingJobs
    rules: PackingRules
    allowed: float
    best: PatternCover | None
    _level: FloatColumn
    _chance: np.random.Generator
    _many: IntColumn

    @classmethod
    def of(cls, patterns: WorkerPatterns, jobs: PackingJobs, rules: PackingRules, allowed: float) -> CoverSearch:
        """Before the first try."""
        many = np.flatnonzero(patterns.size > 1)
        return cls(patterns, jobs, rules, allowed, None, np.zeros(len(jobs)), np.random.default_rng(len(jobs)), many)

    def run(self, price: float, tries: int) -> PatternCover:
        """Look for covers of low cost; the cheapest at this price.

        Complexity: O(tries x patterns x jobs x patterns used).
        """
        best = here = self._try(price, self._level.copy(), 0)
        level = best_level = self._level
        for attempt in range(1, tries if len(self._many) else 0):
            trial = self._shift(level, attempt)
            other = self._try(price, trial, attempt)
            worse = 3 * price * (1 - attempt / tries) * self._chance.random()
            if other.cost(price) <= here.cost(price) + worse:
                here, level = other, trial
            if here.cost(price) < best.cost(price) - _ROUNDING:
                best, best_level = here, level
            elif attempt % 100 == 99:
                here, level = best, best_level
        self._level = best_level
        return best

    def _shift(self, level: FloatColumn, attempt: int) -> FloatColumn:
        """Other levels; without balance there is nothing to choose."""
        trial = level.copy()
        if self.rules.balance < self.rules.interference:
            for _ in range(1 + attempt % 3):
                trial = _admit(
                    self.patterns, self.rules, trial, int(self._many[self._chance.integers(len(self._many))])
                )
            if attempt % 4 == 3:
                trial[self._chance.integers(len(self.jobs), size=2)] = 0.0
        return trial

    def _try(self, price: float, level: FloatColumn, attempt: int) -> PatternCover:
        noise = np.ones(len(self.patterns.size))
        if attempt % 3:
            noise = np.exp(self._chance.normal(0, 0.3, len(noise)))
        found = _greedy(self, price, level, noise, _POWERS[attempt % len(_POWERS)])
        fewest = (math.inf, 0.0) if self.best is None else (self.best.devices, self.best.lost)
        if found.lost <= self.allowed and (found.devices, found.lost) < fewest:
            self.best = found
        return found


_POWERS = (0.0, 0.5, 1.0, 0.5, 0.75)


def _admit(patterns: WorkerPatterns, rules: PackingRules, level: FloatColumn, row: int) -> FloatColumn:
    """Levels by which a pattern is in everybody's range."""
    trial = level.copy()
    for job in np.flatnonzero(patterns.there[row]).tolist():
        theta = float(patterns.theta[row, job])
        if not trial[job] <= theta <= trial[job] + rules.balance:
            trial[job] = max(theta - rules.balance, 0.0)
    return trial


def _greedy(search: CoverSearch, price: float, level: FloatColumn, noise: FloatColumn, power: float) -> PatternCover:
    """A cover at these levels; the level of a job that finds no partners for all of its workers becomes 0."""
    patterns, jobs, rules = search.patterns, search.jobs, search.rules
    while True:
        fits = (patterns.theta >= level - _ROUNDING) & (patterns.theta <= level + rules.balance + _ROUNDING)
        rows = np.flatnonzero((fits | ~patterns.there).all(axis=1))
        left, lost = jobs.workers.copy(), np.zeros(len(jobs))
        count, lose = patterns.count[rows], patterns.lost[rows]
        times: list[tuple[int, int]] = []
        while left.any():
            often = np.where(count > 0, left // np.maximum(count, 1), _NEVER).min(axis=1, initial=_NEVER)
            usable = often > 0
            if not usable.all():
                rows, count, lose, often = rows[usable], count[usable], lose[usable], often[usable]
            if not len(rows):
                break
            size = patterns.size[rows]
            gain = price * (size - 1) * often - np.maximum(lose - lost, 0.0).sum(axis=1)
            weighed = gain / (size * often) ** power
            best = int(np.argmax(np.where(weighed > 0, weighed * noise[rows], weighed)))
            times.append((int(rows[best]), int(often[best])))
            left = left - count[best] * often[best]
            lost = np.maximum(lost, lose[best])
        if not left.any():
            return PatternCover(tuple(times), sum(number for _, number in times), float(lost.sum()))
        level[left > 0] = 0.0


_NEVER = np.iinfo(np.int64).max


def place_cover(patterns: WorkerPatterns, found: PatternCover) -> Placement:
    """Devices of each job's workers, numbered from 0."""
    devices: list[list[int]] = [[] for _ in range(patterns.count.shape[1])]
    device = 0
    for row, number in found.times:
        for _ in range(number):
            for job, workers in enumerate(patterns.count[row].tolist()):
                devices[job] += [device] * workers
            device += 1
    return Placement(tuple(tuple(sorted(here)) for here in devices), device)


_PRICES = (10.0, 0.15, 0.1, 0.07, 0.05, 0.035, 0.025)
"""Of a device, in jobs' whole speed; falling, so that what saves devices is found before what spares speed."""


def pack_queue(
    jobs: PackingJobs, slowdown: FloatColumn, rules: PackingRules, guarantee: float = 0.0, tries: int = 600
) -> Placement:
    """The fewest devices found on which the jobs keep, on average, the guaranteed part of their speed alone.

    Raises:
        PolicyError: as :func:`enumerate_patterns`, or a guarantee that is not from 0 to 1.
    """
    if not 0.0 <= guarantee <= 1.0:
        raise PolicyError(f"a guaranteed part of the speed must be from 0 to 1, not {guarantee!r}")
    patterns = enumerate_patterns(jobs, slowdown, rules)
    search = CoverSearch.of(patterns, jobs, rules, (1 - guarantee) * len(jobs) + _ROUNDING)
    if search.run(_PRICES[0], tries // 2).lost > search.allowed:
        for price in _PRICES[1:]:
            search.run(price, tries // 2 // (len(_PRICES) - 1))
    alone = PatternCover(
        tuple((row, int(jobs.workers[job])) for job, row in enumerate(_alone(patterns))), int(jobs.workers.sum()), 0.0
    )
    return place_cover(patterns, search.best or alone)


def _alone(patterns: WorkerPatterns) -> list[int]:
    """Rows of one worker on a device of its own, by job."""
    single = np.flatnonzero(patterns.size == 1)
    rows: list[int] = single[np.argsort(patterns.count[single].argmax(axis=1))].tolist()
    return rows
