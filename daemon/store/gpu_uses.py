"""What runs did with each of their GPUs, in the store: short, as there is a row for every run that ever was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.wire.gpu_use import GpuUse, IdleSpan, RunGpuUse

_DEFAULTS = {spec.name: spec.default for spec in fields(GpuUse)}


def stored_gpu_use(use: GpuUse) -> dict[str, Any]:
    """Without what is as it is by default; spans as pairs of numbers."""
    told = {name: value for name, value in asdict(use).items() if value != _DEFAULTS[name]}
    if use.spans:
        told["spans"] = [[span.from_s, span.length_s] for span in use.spans]
    return told


def gpu_use_of(stored: Mapping[str, Any]) -> GpuUse:
    """The inverse; what a later version may have added is left out."""
    told = {name: value for name, value in stored.items() if name in _DEFAULTS}
    return GpuUse(**told | {"spans": tuple(IdleSpan(*pair) for pair in told.get("spans", ()))})


def gpu_use_columns(use: RunGpuUse) -> dict[str, Any]:
    """A row of the table."""
    return {
        "job_id": use.job_id,
        "restart": use.restart,
        "node": use.node,
        "first_s": use.first_s,
        "last_s": use.last_s,
        "gpus": [stored_gpu_use(gpu) for gpu in use.gpus],
    }


def gpu_uses_by_job(session: Session, job_ids: Sequence[int]) -> dict[int, list[JobGpuUseRow]]:
    """Of these jobs, by run and node; a job of an earlier time may have had the same id."""
    found: dict[int, list[JobGpuUseRow]] = defaultdict(list)
    for part in split_list(sorted(set(job_ids))):
        query = select(JobGpuUseRow).where(JobGpuUseRow.job_id.in_(part))
        for row in session.scalars(query.order_by(JobGpuUseRow.restart, JobGpuUseRow.node, JobGpuUseRow.first_s)):
            found[row.job_id].append(row)
    return found
