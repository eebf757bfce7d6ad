"""Whether a new job shares, and with which sub-batch: Algorithm 2 of SJF-BSBF, with the bounds that users set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.completion_times import (
    CompletionSchedule,
    OverlappedJob,
    find_best_schedule,
    schedule_sequentially,
    schedule_together,
)
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms, schedule_as_guest
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput, accumulation_passes
from slurm_soda.policies.sharing.job_kinds import Estimate

BOUND_CAUTION = 3.9
"""By so many of its expected errors a slowdown counts as worse where a bound is at stake.

Fewer than 1 in 1 000 jobs are to be slowed beyond their bound. A normal variable is 3.1 standard deviations above its mean
as rarely as that, and its expected absolute error is 0.8 of them. Measured: docs/policies/sjf-bsbf.md."""
_UNKNOWN = "they do not fit together, or nobody knows how much they would slow each other down"


@dataclass(frozen=True, slots=True)
class Consent:
    """What a job's owner, or the site, allows.

    Attributes:
        shares: ``--soda-share``.
        max_slowdown: ``--soda-max-slowdown``, run time over run time alone. It is held at every moment of sharing, not
            only on the whole, so it holds whoever comes next; accumulating gradients counts as slowdown.
    """

    shares: bool = True
    max_slowdown: float = math.inf

    def __post_init__(self) -> None:
        if not self.max_slowdown >= 1:
            raise PolicyError(f"a largest slowdown must be 1 or more, not {self.max_slowdown!r}")


@dataclass(frozen=True, slots=True)
class Footprint:
    """GPU memory by sub-batch: weights, optimiser and context, and activations of every sample."""

    fixed_mib: float
    per_sample_mib: float

    def mib(self, sub_batch: int) -> float:
        return self.fixed_mib + self.per_sample_mib * sub_batch


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that waits."""

    throughput: Throughput
    batch: int
    """Per GPU and iteration; accumulation keeps it."""
    iterations: float
    footprint: Footprint
    consent: Consent = Consent()
    accumulates: bool = True

    def sub_batches(self) -> tuple[int, ...]:
        """What it may run with, its whole batch first."""
        return list_sub_batches(self.batch) if self.accumulates else (self.batch,)

    def work_s(self, sub_batch: int) -> float:
        """Time it needs alone, with this sub-batch."""
        return self.throughput.iteration_s(self.batch, sub_batch) * self.iterations


@dataclass(frozen=True, slots=True)
class Partner:
    """A running job on some or all of the GPUs in question."""

    work_s: float
    """Time it still needs alone."""
    free_mib: float
    """GPU memory that it leaves on those GPUs; the least of them."""
    consent: Consent = Consent()


class PairSlowdown(NamedTuple):
    """How much a new job with some sub-batch and a partner slow each other down."""

    new: Estimate
    partner: Estimate


@dataclass(frozen=True, slots=True)
class SubBatchTrial:
    """What one sub-batch would give; ``refused`` says why it may not be, else it is empty."""

    sub_batch: int
    steps: int
    memory_mib: float
    slowdowns: tuple[float, ...]
    """While sharing, of the new job (accumulation included) and each partner."""
    xi: tuple[PairSlowdown, ...]
    alone_s: float
    """Work of the new job with this sub-batch, on GPUs of its own."""
    together: CompletionSchedule | None
    best: CompletionSchedule | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SharingDecision:
    """The answer with all its numbers, for ``explain``.

    Attributes:
        share: start beside the partners now.
        start_s: when to start by what is known now: 0, or when partners have ended. Only a pair's is 0 or the end.
        alone_s: work of the new job with its whole batch, then of each partner, undisturbed.
        sequential: the new job starts after the last partner, with its whole batch.
        chosen: the trial behind ``start_s``; None if that is the sequential schedule.
        trials: all sub-batches, the largest first.
    """

    share: bool
    start_s: float
    alone_s: tuple[float, ...]
    sequential: CompletionSchedule
    chosen: SubBatchTrial | None
    trials: tuple[SubBatchTrial, ...]
    reason: str


def list_sub_batches(batch: int) -> tuple[int, ...]:
    """B, B/2, B/4 … 1, rounded up."""
    accumulation_passes(batch, batch)
    sizes = [batch]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return tuple(sizes)


def decide_sharing(
    new: NewJob,
    partners: Sequence[Partner],
    xi: Callable[[int], Sequence[PairSlowdown | None]],
    caution: float = 0.0,
    bound_caution: float = 0.0,
    *,
    terms: GuestTerms | None = None,
) -> SharingDecision:
    """Start ``new`` beside ``partners`` now, or later, with the sub-batch of least mean completion time.

    Sharing has to gain: of equal means the later start, then the larger sub-batch. Sub-batches that exceed the memory or
    anybody's bound are out; without anybody's consent all are.

    Args:
        xi: slowdowns by sub-batch, one :class:`PairSlowdown` a partner; below 1 counts as 1. ``None`` where nobody knows, or
            where they do not fit into the memory together: that sub-batch is out.
        caution: xi counts as so many of its errors worse than estimated.
        bound_caution: so many, if these are more, where it is held against somebody's bound.
        terms: on what terms the new job would be a guest: what it loses if its seat ends with its host's job counts, and
            it starts now or after the last partner; None: either may end first, and it may also start in between.

    Complexity: O(log B) schedules for one partner; each O(k^3 log k) for k of them.

    Raises:
        PolicyError: senseless work, batch or slowdown, or not one :class:`PairSlowdown` for each partner.
    """
    ends = [OverlappedJob(partner.work_s, 1.0, 1.0) for partner in partners]
    after = schedule_sequentially(new.work_s(new.batch), ends)
    errors = caution, max(caution, bound_caution)
    trials = tuple(_trial(new, partners, size, xi(size), errors, terms=terms) for size in new.sub_batches())
    chosen = min(
        (trial for trial in trials if trial.best is not None),
        key=lambda trial: (trial.best.mean_s, -trial.sub_batch) if trial.best else (math.inf, 0),
        default=None,
    )
    if chosen is None or chosen.best is None or (partners and chosen.best.mean_s >= after.mean_s):
        chosen, start_s = None, after.start_s
    else:
        start_s = chosen.best.start_s
    alone_s = (new.work_s(new.batch), *(partner.work_s for partner in partners))
    share = chosen is not None and start_s == 0.0
    return SharingDecision(share, start_s, alone_s, after, chosen, trials, _reason(trials, chosen, start_s, after))


def start_all_the_same(decision: SharingDecision, reason: str) -> SharingDecision:
    """The decision to start now with the largest sub-batch that is allowed, whether that gains or not; unchanged where none
    is.
    """
    fits = next((trial for trial in decision.trials if not trial.refused), None)
    if decision.share or fits is None:
        return decision
    return replace(decision, share=True, start_s=0.0, chosen=fits, reason=reason)


def _trial(
    new: NewJob,
    partners: Sequence[Partner],
    size: int,
    found: Sequence[PairSlowdown | None],
    errors: tuple[float, float],
    *,
    terms: GuestTerms | None,
) -> SubBatchTrial:
    """``errors``: by how many xi counts as worse for completion times, and for bounds."""
    if len(found) != len(partners):
        raise PolicyError(f"{len(partners)} partners need as many slowdowns, not {len(found)}")
    xi = [one for one in found if one is not None]
    if len(xi) < len(found):
        steps, _ = accumulation_passes(new.batch, size)
        return SubBatchTrial(size, steps, new.footprint.mib(size), (), (), new.work_s(size), None, None, _UNKNOWN)
    factors, sure = [
        [(max(one.new.plus_errors(many), 1.0), max(one.partner.plus_errors(many), 1.0)) for one in xi]
        for many in errors
    ]
    work_s, memory_mib = new.work_s(size), new.footprint.mib(size)
    alone_s = new.work_s(new.batch)
    accumulation = work_s / alone_s if alone_s else 1.0
    slowdowns, at_worst = [
        (max((new_xi for new_xi, _ in pairs), default=1.0) * accumulation, *(partner_xi for _, partner_xi in pairs))
        for pairs in (factors, sure)
    ]
    refused = _refused(new, partners, memory_mib, slowdowns, at_worst)
    now = soon = None
    if not refused:
        running = [
            OverlappedJob(one.work_s, partner_xi, new_xi)
            for one, (new_xi, partner_xi) in zip(partners, factors, strict=True)
        ]
        if terms is None or not partners:
            now, soon = schedule_together(work_s, running), find_best_schedule(work_s, running)
        else:
            now = schedule_as_guest(work_s, running, terms)
            soon = min(schedule_sequentially(work_s, running), now, key=lambda one: one.mean_s)
    steps, _ = accumulation_passes(new.batch, size)
    return SubBatchTrial(size, steps, memory_mib, slowdowns, tuple(xi), work_s, now, soon, refused)


def _refused(
    new: NewJob,
    partners: Sequence[Partner],
    memory_mib: float,
    slowdowns: Sequence[float],
    at_worst: Sequence[float],
) -> str:
    consents = [new.consent, *(partner.consent for partner in partners)]
    if partners and not all(consent.shares for consent in consents):
        return "not everybody allows sharing"
    if not all(map(math.isfinite, slowdowns)):
        return "nobody knows how much they would slow each other down"
    free_mib = min((partner.free_mib for partner in partners), default=math.inf)
    if memory_mib > free_mib:
        return f"needs {memory_mib:.0f} MiB where {free_mib:.0f} are free"
    for slowdown, worst, consent in zip(slowdowns, at_worst, consents, strict=True):
        if slowdown > consent.max_slowdown:
            return f"slows a job {slowdown:.3f} times, allowed {consent.max_slowdown:.3f}"
        if worst > consent.max_slowdown:
            return f"may slow a job {worst:.3f} times ({slowdown:.3f} expected), allowed {consent.max_slowdown:.3f}"
    return ""


def _reason(
    trials: Sequence[SubBatchTrial], chosen: SubBatchTrial | None, start_s: float, after: CompletionSchedule
) -> str:
    if chosen is not None and chosen.best is not None:
        gain_s = after.mean_s - chosen.best.mean_s
        when = "now" if start_s == 0.0 else f"in {start_s:.0f} s"
        return f"start {when}: ends on average {gain_s:.0f} s earlier than one after the other"
    if all(trial.refused for trial in trials):
        return f"one after the other: {trials[-1].refused}"
    losses_s = [trial.together.lost_s for trial in trials if trial.together is not None]
    if min(losses_s) > 0:
        return (
            f"one after the other: its host is expected to end first, which would cost it {min(losses_s):.0f} s of work, and"
            " sharing would not end earlier on average"
        )
    return "one after the other: sharing would not end earlier on average"
