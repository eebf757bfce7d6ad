"""What two jobs would do to each other on one GPU: Theorem 1 and Algorithm 2 of SJF-BSBF on what a site knows of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.daemon.learning.pair_view import KindProfileView, PairView
from slurm_soda.policies.explanation.sharing import select_trial
from slurm_soda.policies.run_times.prediction_sources import RunTimeLeft
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.arithmetic.sharing_decision import (
    BOUND_CAUTION,
    Consent,
    Footprint,
    PairSlowdown,
    Partner,
    SharingDecision,
    SubBatchTrial,
    decide_sharing,
)
from slurm_soda.policies.sharing.interference_view import make_new_job
from slurm_soda.sodactl.explain.pair_jobs import PairJob

SOURCE_HINT = "hint"
"""The source of memory that only the job's owner tells (``--soda-gpu-memory``)."""


@dataclass(frozen=True, slots=True)
class PairJobProfile:
    """One of the two, with what is known of its kind."""

    side: PairJob
    known: KindProfileView
    left: RunTimeLeft | None
    """Work left, alone."""

    @classmethod
    def of(cls, side: PairJob, known: KindProfileView) -> PairJobProfile:
        """With its work left by what is known now."""
        return cls(side, known, side.left(None if known.iteration_s is None else known.iteration_s.estimate()))

    @property
    def memory(self) -> tuple[float | None, float | None, str]:
        """MiB of one GPU, error and source: what is known of its kind, else what its owner asks for."""
        told = self.known.memory_mib
        if told is not None:
            return told.value, told.error, told.source
        asked = self.side.hints.gpu_memory_mib
        return asked, None, SOURCE_HINT if asked else ""

    @property
    def footprint(self) -> Footprint | None:
        """Memory by sub-batch; where only the owner tells, the same for all."""
        mib = self.side.hints.gpu_memory_mib
        return self.known.footprint or (Footprint(float(mib), 0.0) if mib else None)


NOT_SAID = "not said"
"""Of an owner who did not say whether his job may share."""
SITE_BOUND = "sharing.max_slowdown"
"""The site's key for the bound of jobs whose owners named none."""


@dataclass(frozen=True, slots=True)
class BrokenBound:
    """A bound of a user's, or of the site's for him, that the arithmetic would break."""

    job_id: int
    flag: str
    allowed: str
    slowdown: float | None
    """How many times as long the job would take while it shares; ``None`` for who shares at no price."""


@dataclass(frozen=True, slots=True)
class PairAssessment:
    """The pair's arithmetic.

    Attributes:
        fits: into the memory of one GPU with the whole batches, and who says so; ``None``: nobody knows.
        decision: within both users' bounds; ``None`` where nobody knows how much work is left.
        decision_without_bounds: the same as if both allowed everything.
        broken_bounds: bounds that sharing would break.
    """

    new: PairJobProfile
    running: PairJobProfile
    pair: PairView
    fits: bool | None
    fits_source: str
    decision: SharingDecision | None
    decision_without_bounds: SharingDecision | None
    broken_bounds: tuple[BrokenBound, ...]


def assess_pair(
    new: PairJobProfile, running: PairJobProfile, pair: PairView, terms: GuestTerms | None = None
) -> PairAssessment:
    """What would become of both if ``new`` joined ``running``; ``terms``: on what terms as its guest."""
    fits, source = _fits(new, running, pair)
    decision = _decide(new, running, pair, (new.side.consent, running.side.consent), terms)
    without_bounds = _decide(new, running, pair, (Consent(), Consent()), terms)
    trial = None if without_bounds is None else select_trial(without_bounds)
    broken_bounds = () if trial is None else tuple(_broken_bounds((new, running), trial))
    return PairAssessment(new, running, pair, fits, source, decision, without_bounds, broken_bounds)


def _fits(new: PairJobProfile, running: PairJobProfile, pair: PairView) -> tuple[bool | None, str]:
    whole, device = pair.slowdowns[0], pair.device_mib
    mine, its = new.memory[0], running.memory[0]
    if whole.fits is not None or device is None or mine is None or its is None:
        return whole.fits, whole.fits_source
    return mine + its <= device.value, SOURCE_HINT  # else what is known of the kinds would have told


def _decide(
    new: PairJobProfile,
    running: PairJobProfile,
    pair: PairView,
    consents: tuple[Consent, Consent],
    terms: GuestTerms | None,
) -> SharingDecision | None:
    own, other = consents
    if new.left is None or running.left is None:
        return None
    kind = new.side.kind
    job = make_new_job(
        new.left.left.value,
        kind.batch,
        new.known.throughput,
        new.footprint,
        own,
        accumulates=new.side.hints.accumulates,
    )
    held, device = running.footprint, pair.device_mib
    free_mib = math.inf if held is None or device is None else device.value - held.mib(running.side.kind.batch)
    found, whole = {one.sub_batch: one for one in pair.slowdowns}, pair.slowdowns[0]

    def xi(sub_batch: int) -> Sequence[PairSlowdown | None]:
        # A job that cannot accumulate counts as one sample (newcomer), but is still of its own kind.
        told = found.get(sub_batch, whole) if job.batch == kind.batch else whole
        if told.fits is False:
            return [None]
        return [PairSlowdown(told.new_xi.estimate(), told.running_xi.estimate())]

    caution = 0.0 if terms is None else BOUND_CAUTION
    return decide_sharing(
        job, [Partner(running.left.left.value, free_mib, other)], xi, bound_caution=caution, terms=terms
    )


def _broken_bounds(parties: Sequence[PairJobProfile], trial: SubBatchTrial) -> list[BrokenBound]:
    found = []
    slowdowns: Sequence[float | None] = trial.slowdowns or (None, None)
    for party, slowdown in zip(parties, slowdowns, strict=True):
        side = party.side
        if not side.consent.shares:
            said = "no" if side.hints.share is False else NOT_SAID
            found.append(BrokenBound(side.job_id, "--soda-share", said, None))
        elif slowdown is not None and slowdown > side.consent.max_slowdown:
            allowed = f"{side.consent.max_slowdown:g}"
            flag = "--soda-max-slowdown" if side.hints.max_slowdown else SITE_BOUND
            found.append(BrokenBound(side.job_id, flag, allowed, slowdown))
    return found
