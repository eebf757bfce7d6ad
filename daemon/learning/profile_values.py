"""Values as the store keeps them, and as everybody else reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.tiresias.model_skews import normalise_model_name


@dataclass(frozen=True, slots=True)
class ProfileSubject:
    """What a value is about: a kind of job, or one with another on the same GPU."""

    kind: JobKind
    partner: str = ""
    """Model of the other job; empty: alone."""
    partner_batch: int = 0

    @classmethod
    def of(cls, kind: JobKind, other: JobKind | None = None) -> ProfileSubject:
        """With names as the store has them, however they are spelt."""
        if other is None:
            return cls(normalised_kind(kind))
        return cls(normalised_kind(kind), normalise_model_name(other.model), other.batch)


def normalised_kind(kind: JobKind) -> JobKind:
    """A kind by the names that equal models and GPUs share."""
    return JobKind(normalise_model_name(kind.model), kind.batch, kind.gpu_type.lower(), kind.gpus)


@dataclass(frozen=True, slots=True)
class ProfileValue:
    """One value with its source."""

    subject: ProfileSubject
    quantity: str
    estimate: Estimate
    observations: int = 0
    origin: str = ""
    at_s: float = 0.0
    owner: str = ""
    """Whose jobs it is of; empty: it holds for everybody."""


def value_from_row(row: ProfileValueRow) -> ProfileValue:
    """From a row of the store."""
    kind = JobKind(row.model, row.batch, row.gpu_type, row.gpus)
    error = math.inf if row.error is None else row.error
    estimate = Estimate(row.value, error, Source(row.source))
    subject = ProfileSubject(kind, row.partner, row.partner_batch)
    return ProfileValue(subject, row.quantity, estimate, row.observations, row.origin, row.at_s, row.owner)


def row_columns(value: ProfileValue) -> dict[str, object]:
    """Columns of a row of the store."""
    kind, estimate = value.subject.kind, value.estimate
    return {
        "model": kind.model,
        "batch": kind.batch,
        "gpu_type": kind.gpu_type,
        "gpus": kind.gpus,
        "partner": value.subject.partner,
        "partner_batch": value.subject.partner_batch,
        "quantity": value.quantity,
        "source": int(estimate.source),
        "owner": value.owner,
        "value": estimate.value,
        "error": estimate.error if math.isfinite(estimate.error) else None,
        "observations": value.observations,
        "origin": value.origin,
        "at_s": value.at_s,
    }
