"""``sodactl explain JOB --with OTHER``: what two jobs of this site would do to each other on one GPU. Nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from slurm_soda.daemon.learning.pair_view import EstimateView, PairView
from slurm_soda.daemon.learning.stored_profiles import read_pair_view
from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.sodactl.explain import pair_jobs
from slurm_soda.sodactl.explain.pair_assessment import (
    NOT_SAID,
    SITE_BOUND,
    SOURCE_HINT,
    BrokenBound,
    PairAssessment,
    PairJobProfile,
    assess_pair,
)
from slurm_soda.sodactl.live.view_source import ViewRequest, ViewSource, open_view_source
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess

NOBODY_SHARES = "This is arithmetic only: by the configuration here no partition shares GPUs, and nothing is changed."


def describe_pair(site: SiteAccess, job_id: int, other_id: int) -> Document:
    """What the two would do to each other, as plain data.

    A job that waits joins one that runs; where both wait or both run, the first one joins the other.

    Raises:
        SodaError: one of them cannot be looked at (:func:`.read_pair_jobs`).
        StoreError: what sodad knows cannot be read.
    """
    warnings: list[str] = []
    with open_view_source(site) as source:
        one, other = pair_jobs.read_pair_jobs(
            site, source, (job_id, other_id), pair_jobs.list_slurm(site, warnings), warnings
        )
        new, running = (other, one) if one.runs and not other.runs else (one, other)
        found = read_assessment(source, new, running, as_guest=bool(site.settings.sharing.partitions))
    decision = explain_sharing(found.decision)
    without_bounds = explain_sharing(found.decision_without_bounds if found.broken_bounds else None)
    parties = {party.side.job_id: _job_document(party, found) for party in (found.new, found.running)}
    return {
        "now_s": site.now_s(),
        "warnings": warnings,
        "shares_now": bool(site.settings.sharing.partitions),
        "new": new.job_id,
        "running": running.job_id,
        "gpu_type": new.kind.gpu_type,
        "device_mib": _learned_value_document(found.pair.device_mib),
        "fits": found.fits,
        "fits_source": found.fits_source or None,
        "jobs": [parties[job_id], parties[other_id]],
        "reasons": list(_reasons(found, shares_now=bool(site.settings.sharing.partitions))),
        "decision": decision.numbers or None,
        "arithmetic": list(decision.sentences),
        "objections": [_broken_bound_document(one) for one in found.broken_bounds],
        "regardless": without_bounds.numbers or None,
        "regardless_arithmetic": list(without_bounds.sentences),
    }


def read_assessment(
    source: ViewSource, new: pair_jobs.PairJob, running: pair_jobs.PairJob, *, as_guest: bool
) -> PairAssessment:
    """What would become of both by what sodad knows; ``as_guest``: as Slurm's mechanism does it.

    Raises:
        StoreError: what sodad knows cannot be read.
    """
    pair = source.read(_pair_view_request(new, running))
    terms = GuestTerms(SLURM.start_s, SLURM.readmit_s) if as_guest else None
    return assess_pair(PairJobProfile.of(new, pair.new), PairJobProfile.of(running, pair.running), pair, terms)


def _pair_view_request(new: pair_jobs.PairJob, running: pair_jobs.PairJob) -> ViewRequest[PairView]:
    query = {
        "model": new.kind.model,
        "batch": str(new.kind.batch),
        "gpus": str(new.kind.gpus),
        "gpu_type": new.kind.gpu_type,
        "user": _askable(new.user),
        "other_model": running.kind.model,
        "other_batch": str(running.kind.batch),
        "other_gpus": str(running.kind.gpus),
        "other_user": _askable(running.user),
    }
    kinds, owners = (new.kind, running.kind), (new.user, running.user)
    return ViewRequest(PairView, lambda session: read_pair_view(session, *kinds, owners), "/v1/pair", query)


def _askable(user: str) -> str:
    """A name as a URL can hold it; one with bytes that are no text is nobody's, who has no values of his own."""
    return user.encode("utf-8", "replace").decode()


def _job_document(party: PairJobProfile, found: PairAssessment) -> Document:
    side, left, whole = party.side, party.left, found.pair.slowdowns[0]
    mib, error, source = party.memory
    return {
        "job_id": side.job_id,
        "user": side.user,
        "name": side.name,
        "state": side.state,
        "runs": side.runs,
        "model": side.kind.model,
        "batch": side.kind.batch or None,
        "gpus": side.kind.gpus,
        "iteration_s": _learned_value_document(party.known.iteration_s),
        "left_s": None if left is None else _value(left.left.value, left.left.error, left.left.source.name.lower()),
        "left_by": None if left is None else left.by.value,
        "left_basis": None if left is None or not left.jobs else {"jobs": left.jobs, "basis": left.basis},
        "memory_mib": None if mib is None else _value(mib, error, source),
        "xi": _learned_value_document(whole.new_xi if party is found.new else whole.running_xi),
        "share": side.hints.share,
        "max_slowdown": side.hints.max_slowdown,
    }


def _learned_value_document(figure: EstimateView | None) -> Document | None:
    return None if figure is None else _value(figure.value, figure.error, figure.source)


def _value(value: float, error: float | None, source: str) -> Document:
    return {"value": value, "error": error if error is not None and math.isfinite(error) else None, "source": source}


def _broken_bound_document(objection: BrokenBound) -> dict[str, Any]:
    return {
        "job_id": objection.job_id,
        "flag": objection.flag,
        "allowed": objection.allowed,
        "slowdown": objection.slowdown,
    }


def _reasons(found: PairAssessment, *, shares_now: bool) -> Iterator[str]:
    pair = f"{found.new.side.job_id} --with {found.running.side.job_id}"
    yield f"Nothing is changed; an admin does it with `sodactl share {pair}`." if shares_now else NOBODY_SHARES
    yield _who_joins(found)
    yield _fits(found)
    for party in (found.new, found.running):
        side = party.side
        if not side.kind.batch:
            yield f"Job {side.job_id} names no --soda-batch-size: only what is known of its model with any batch counts."
        if side.kind.gpus > 1:
            yield f"Job {side.job_id} has {side.kind.gpus} GPUs, and is slowed as a whole by sharing one of them."
        if party.left is None:
            yield (
                f"It is not known how long job {side.job_id} will run, so nothing can be compared; --soda-iterations tells "
                f"where its model's iteration time is known, or a time limit."
            )
    yield from list_forbidden(found)


def list_forbidden(found: PairAssessment) -> Iterator[str]:
    """Bounds that sharing would break, in sentences."""
    for one in found.broken_bounds:
        if one.allowed == NOT_SAID:
            yield f"The owner of job {one.job_id} has not agreed to share (--soda-share=yes)."
            continue
        how = f": it would take {one.slowdown:.2f} times as long" if one.slowdown is not None else ""
        who = f"The site, for job {one.job_id}," if one.flag == SITE_BOUND else f"The owner of job {one.job_id}"
        yield f"{who} forbids that ({one.flag}={one.allowed}){how}."


def _who_joins(found: PairAssessment) -> str:
    new, running = found.new.side, found.running.side
    if running.runs and not new.runs:
        return f"Job {new.job_id} waits, and would join job {running.job_id}, which runs."
    if running.runs:
        return (
            f"Both run: as if job {new.job_id} came anew, with the work that is left, and joined job {running.job_id}."
        )
    return f"Both wait: as if job {running.job_id} started now, and job {new.job_id} joined it."


def _fits(found: PairAssessment) -> str:
    device = found.pair.device_mib
    memory = "" if device is None else f" of {device.value:,.0f} MiB"
    by = "by what their owners ask for" if found.fits_source == SOURCE_HINT else found.fits_source
    if found.fits is None:
        return (
            f"Nobody knows whether both fit into the memory of one GPU{memory}; --soda-gpu-memory and "
            "`sodactl profiles set` (memory_mib, device_mib, fits) tell."
        )
    return f"With whole batches both {'fit' if found.fits else 'do not fit'} into one GPU{memory} ({by})."
