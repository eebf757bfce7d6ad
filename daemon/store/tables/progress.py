"""Tables of what jobs tell of their progress; see :mod:`slurm_soda.daemon.store.progress`."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId
from slurm_soda.daemon.store.tables.scheduling import Base

MAX_CO_RUNNERS_LENGTH = 255


class JobProgressRow(Base):
    """How far one run last said that it is, on one node; see :class:`slurm_soda.wire.records.ReportedProgress`."""

    __tablename__ = "job_progress"
    __table_args__ = (UniqueConstraint("job_id", "restart", "node", "first_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    first_s: Mapped[float]
    """When the run was opened there."""
    began_s: Mapped[float]
    """When it first said something: from then on it iterates."""
    began_iterations: Mapped[float]
    at_s: Mapped[float]
    clock_s: Mapped[float]
    idle_s: Mapped[float]
    iterations: Mapped[float]
    total: Mapped[float]
    batch: Mapped[int] = mapped_column(BigInteger)
    saved: Mapped[float]
    """Iteration of the newest checkpoint; negative: none."""
    saves: Mapped[int] = mapped_column(default=0)
    """Checkpoints of this run."""
    saved_s: Mapped[float | None]
    """When the newest one of this run was seen."""


class JobPaceRow(Base):
    """Iterations of one run with one set of co-runners: alone, or beside the same jobs all the time."""

    __tablename__ = "job_pace"
    __table_args__ = (UniqueConstraint("job_id", "restart", "first_s", "co_runners"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    first_s: Mapped[float]
    co_runners: Mapped[str] = mapped_column(String(MAX_CO_RUNNERS_LENGTH), default="")
    """Runs on its GPUs, as ``12.0+15.1``; empty: it was alone."""
    mps: Mapped[bool] = mapped_column(default=False)
    """Under MPS; else they took turns."""
    began_s: Mapped[float]
    """From when on its iterations are counted here."""
    at_s: Mapped[float]
    iterations: Mapped[float] = mapped_column(default=0.0)
    clock_s: Mapped[float] = mapped_column(default=0.0)
    """For how long."""

    @property
    def iteration_s(self) -> float | None:
        """Time of an iteration; ``None`` while none is done."""
        return self.clock_s / self.iterations if self.iterations > 0 else None


class ObservedPair(Base):
    """How much one ended job was slowed beside jobs of one kind; its owner's value comes from the newest of them."""

    __tablename__ = "observed_pair"
    __table_args__ = (
        UniqueConstraint("job_pk", "partner", "partner_batch", "quantity"),
        Index("ix_observed_pair_kind", "model", "gpu_type", "gpus", "batch"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"))
    model: Mapped[str] = mapped_column(String(64))
    batch: Mapped[int]
    gpu_type: Mapped[str] = mapped_column(String(64))
    gpus: Mapped[int]
    partner: Mapped[str] = mapped_column(String(64))
    partner_batch: Mapped[int]
    quantity: Mapped[str] = mapped_column(String(24))
    """``xi``, or ``xi_time_slicing`` without MPS."""
    at_s: Mapped[float] = mapped_column(index=True)
    """Its end."""
    together_s: Mapped[float]
    slowdown: Mapped[float]
