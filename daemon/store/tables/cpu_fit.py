"""Tables of CPU fit: what agents measured, how searches ended, and what sodad proposed for waiting jobs.

Cores are per node unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId, SlurmName
from slurm_soda.daemon.store.tables.scheduling import Base


class CpuMeasurementRow(Base):
    """GPU utilisation of one run on one node over one step; see :class:`slurm_soda.wire.core_tuning.CoreMeasurement`."""

    __tablename__ = "cpu_measurement"
    __table_args__ = (
        UniqueConstraint("job_id", "restart", "node", "search", "step", "at_s", name="uq_cpu_measurement"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    at_s: Mapped[float]
    search: Mapped[int]
    step: Mapped[int]
    cores: Mapped[int]
    most_cores: Mapped[int]
    gpus: Mapped[int]
    utilisation_ratio: Mapped[float]
    spread_ratio: Mapped[float]
    samples: Mapped[int]


class CpuFitRow(Base):
    """How a search ended on one node; see :class:`slurm_soda.wire.core_tuning.CoreFit`. Every node of a job has its own row.

    Owner, hints and request are kept here too, because the next job of the owner starts from them when this one is long
    forgotten.
    """

    __tablename__ = "cpu_fit"
    __table_args__ = (
        UniqueConstraint("job_id", "restart", "node", "search", "at_s", name="uq_cpu_fit"),
        Index("ix_cpu_fit_user_category", "user", "category"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float | None]
    """First submission, which with the id names the job; ``None``: the cycles never saw it."""
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    at_s: Mapped[float] = mapped_column(index=True)
    search: Mapped[int]
    user: Mapped[str] = mapped_column(SlurmName(255))
    category: Mapped[str] = mapped_column(String(16), default="")
    """Empty: the job named none."""
    model: Mapped[str] = mapped_column(String(64), default="")
    hints: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    nodes: Mapped[int]
    gpus: Mapped[int]
    asked_cores: Mapped[int | None]
    """As the user submitted it; ``None`` where nobody knows."""
    start_cores: Mapped[int]
    """When the search began."""
    most_cores: Mapped[int]
    """Allocated."""
    cores: Mapped[int]
    """What the search ended on."""
    steps: Mapped[int]
    start_ratio: Mapped[float]
    utilisation_ratio: Mapped[float]
    reason: Mapped[str] = mapped_column(String(32))


class CpuProposalRow(Base):
    """What sodad proposed for a waiting job's request: one row a job, the newest proposal."""

    __tablename__ = "cpu_proposal"
    __table_args__ = (UniqueConstraint("job_id", "submit_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId]
    submit_s: Mapped[float]
    at_s: Mapped[float]
    asked_cores: Mapped[int]
    """As the user submitted it."""
    cores: Mapped[int | None]
    """What the job should start with; ``None``: nobody can say, see :attr:`left_alone`."""
    source: Mapped[str] = mapped_column(String(16), default="")
    """Where that number is from; see :class:`slurm_soda.policies.cpu_fit.start_cores.StartCores`."""
    left_alone: Mapped[str] = mapped_column(String(255), default="")
    """Why the request is not changed; empty: it is, or is right already."""
