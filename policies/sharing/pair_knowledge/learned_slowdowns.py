"""Slowdowns of pairs: guessed, and as they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations

from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, InterferenceEstimator, JobKind, KindProfile, Source
from slurm_soda.policies.sharing.snapshot import KindEstimates, TellsFits


class PredictedSlowdowns:
    """Slowdowns from whoever guesses them; what a job does alone is known, since it can be seen without a partner."""

    def __init__(self, guess: InterferenceEstimator, alone: KindEstimates) -> None:
        self._guess, self._alone = guess, alone

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        return self._guess.xi(slowed, others)

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        return self._guess.fits(together) if isinstance(self._guess, TellsFits) else None

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        del together
        return False

    def profile(self, kind: JobKind) -> KindProfile | None:
        return self._alone.profile(kind)

    def throughput(self, kind: JobKind) -> Throughput | None:
        return self._alone.throughput(kind)

    def footprint(self, kind: JobKind) -> Footprint | None:
        return self._alone.footprint(kind)


class LearnedSlowdowns:
    """What is known at one instant: measured pairs go before what was known of them, and nobody forgets who did not fit.

    A value: whoever learns more makes another one of it. Gangs count as one of their workers in what was seen. Slowdowns by
    several partners add up where one of them was measured. Answers are kept, as predictors may be slow, and taken over by
    later values for which they still hold.
    """

    def __init__(self, before: KindEstimates, *, exact: bool = False) -> None:
        """``exact``: what was known before is the truth, of gangs of each size; what is seen of one size says no more."""
        self._before, self._exact = before, exact
        self._measured: dict[tuple[JobKind, JobKind], Estimate] = {}
        self._apart: frozenset[frozenset[JobKind]] = frozenset()
        self._xi: dict[JobKind, dict[tuple[JobKind, tuple[JobKind, ...]], Estimate | None]] = {}
        """By one worker of the slowed job."""
        self._workers: dict[JobKind, JobKind] = {}
        self._fits: dict[tuple[JobKind, ...], bool | None] = {}

    def has_measured(self, slowed: JobKind, other: JobKind) -> bool:
        """Whether this pair was seen."""
        return (self._worker(slowed), self._worker(other)) in self._measured

    def with_pair(self, slowed: JobKind, other: JobKind, xi: float) -> LearnedSlowdowns:
        """Two kinds of jobs ran beside each other; this is by how much one was slower."""
        later, worker = copy(self), self._worker(slowed)
        later._measured = {**self._measured, (worker, self._worker(other)): Estimate(xi, 0.0, Source.MEASURED)}
        later._xi = {one: answers for one, answers in self._xi.items() if one != worker}
        return later

    def with_apart(self, one: JobKind, other: JobKind) -> LearnedSlowdowns:
        """Two kinds of jobs did not fit into the memory of one GPU; nor do they then as parts of other gangs."""
        later = copy(self)
        later._apart, later._fits = self._apart | {frozenset((self._worker(one), self._worker(other)))}, {}
        return later

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        known, key = self._xi.setdefault(self._worker(slowed), {}), (slowed, tuple(others))
        if key not in known:
            known[key] = self._think(*key)
        return known[key]

    def _think(self, slowed: JobKind, others: tuple[JobKind, ...]) -> Estimate | None:
        worker = self._worker(slowed)
        measured = [self._measured.get((worker, self._worker(other))) for other in others]
        if self._exact or not any(measured):
            return self._before.xi(slowed, others)
        each = [seen or self._before.xi(slowed, (other,)) for seen, other in zip(measured, others, strict=True)]
        known = [estimate for estimate in each if estimate is not None]
        if len(known) < len(each):
            return None
        xi = 1.0 + sum(estimate.value - 1.0 for estimate in known)
        return Estimate(xi, sum(one.error for one in known), max(one.source for one in known))

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        key = tuple(together)
        if key not in self._fits:
            self._fits[key] = False if self._were_apart(key) else self._before.fits(key)
        return self._fits[key]

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        return self._were_apart(together) or self._before.never_fits(together)

    def _were_apart(self, together: Sequence[JobKind]) -> bool:
        workers = [self._worker(kind) for kind in together]
        return any(frozenset(pair) in self._apart for pair in combinations(workers, 2))

    def _worker(self, kind: JobKind) -> JobKind:
        found = self._workers.get(kind)
        if found is None:
            found = self._workers[kind] = replace(kind, gpus=1)
        return found

    def profile(self, kind: JobKind) -> KindProfile | None:
        return self._before.profile(kind)

    def throughput(self, kind: JobKind) -> Throughput | None:
        return self._before.throughput(kind)

    def footprint(self, kind: JobKind) -> Footprint | None:
        return self._before.footprint(kind)
