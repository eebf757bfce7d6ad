"""Values as the store keeps them, and as everybody else reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_soda.daemon.store.knowledge_schema import KnownValue
from slurm_soda.policies.sharing.knowledge import Estimate, Source, Workload
from slurm_soda.policies.tiresias.models import plain_name


@dataclass(frozen=True, slots=True)
class Subject:
    """What a value is about: a kind of job, or one beside another one."""

    kind: Workload
    partner: str = ""
    """Model of the other job; empty: alone."""
    partner_batch: int = 0

    @classmethod
    def of(cls, kind: Workload, other: Workload | None = None) -> Subject:
        """With names as the store has them, however they are spelt."""
        if other is None:
            return cls(plain(kind))
        return cls(plain(kind), plain_name(other.model), other.batch)


def plain(kind: Workload) -> Workload:
    """A kind by the names that equal models and GPUs share."""
    return Workload(plain_name(kind.model), kind.batch, kind.gpu_type.lower(), kind.gpus)


@dataclass(frozen=True, slots=True)
class Value:
    """One value with its source."""

    subject: Subject
    quantity: str
    estimate: Estimate
    observations: int = 0
    origin: str = ""
    at_s: float = 0.0


def value_of(row: KnownValue) -> Value:
    """From a row of the store."""
    kind = Workload(row.model, row.batch, row.gpu_type, row.gpus)
    error = math.inf if row.error is None else row.error
    estimate = Estimate(row.value, error, Source(row.source))
    subject = Subject(kind, row.partner, row.partner_batch)
    return Value(subject, row.quantity, estimate, row.observations, row.origin, row.at_s)


def columns_of(value: Value) -> dict[str, object]:
    """Columns of a row of the store."""
    kind, estimate = value.subject.kind, value.estimate
    return {
        "model": kind.model, "batch": kind.batch, "gpu_type": kind.gpu_type, "gpus": kind.gpus,
        "partner": value.subject.partner, "partner_batch": value.subject.partner_batch, "quantity": value.quantity,
        "source": int(estimate.source), "value": estimate.value,
        "error": estimate.error if math.isfinite(estimate.error) else None,
        "observations": value.observations, "origin": value.origin, "at_s": value.at_s,
    }  # fmt: skip
