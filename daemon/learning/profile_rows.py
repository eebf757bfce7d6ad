"""Values of kind profiles as rows of the store."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from sqlalchemy import Row

from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue


def value_from_row(row: ProfileValueRow | Row[Any]) -> ProfileValue:
    """From a row of the store."""
    kind = _kind(row.model, row.batch, row.gpu_type, row.gpus)
    error = math.inf if row.error is None else row.error
    estimate = Estimate(row.value, error, Source(row.source))
    subject = ProfileSubject(kind, row.partner, row.partner_batch)
    return ProfileValue(subject, row.quantity, estimate, row.observations, row.origin, row.at_s, row.owner)


_kind = lru_cache(maxsize=4096)(JobKind)
"""A table of pairs names each kind in hundreds of rows."""


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
