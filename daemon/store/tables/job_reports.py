"""The table behind reports of jobs; see :mod:`slurm_soda.daemon.job_reports`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId
from slurm_soda.daemon.store.tables.scheduling import Base


class JobGpuUseRow(Base):
    """What one run did with each of its GPUs on one node; see :class:`slurm_soda.wire.gpu_use.RunGpuUse`."""

    __tablename__ = "job_gpu_use"
    __table_args__ = (UniqueConstraint("job_id", "restart", "node", "first_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    first_s: Mapped[float]
    last_s: Mapped[float]
    gpus: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    """As :func:`slurm_soda.daemon.store.gpu_uses.stored_gpu_use` writes them."""
