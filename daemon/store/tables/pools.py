"""Tables of what jobs did in pools; see :mod:`slurm_soda.daemon.store.jobs.pool_runs`."""

from __future__ import annotations

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId, RawText, SlurmName
from slurm_soda.daemon.store.tables.scheduling import Base


class PoolRunRow(Base):
    """One run of a job in a partition of a pool. One that sodad did not see has no start."""

    __tablename__ = "pool_run"
    __table_args__ = (UniqueConstraint("job_id", "submit_s", "restart"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId]
    submit_s: Mapped[float]
    """First submission: with the id it names the job for ever."""
    restart: Mapped[int]
    user: Mapped[str] = mapped_column(SlurmName(255))
    base: Mapped[str] = mapped_column(RawText)
    """The site's partition that is divided."""
    kind: Mapped[str] = mapped_column(String(8))
    """The pool that the job belongs to; see :class:`~slurm_soda.policies.pools.kinds.PoolKind`."""
    partition: Mapped[str] = mapped_column(RawText)
    borrowing: Mapped[bool]
    gpus: Mapped[int]
    cpus: Mapped[int]
    queued_s: Mapped[float | None]
    """How long the job waited for this run."""
    start_s: Mapped[float | None]
    end_s: Mapped[float | None] = mapped_column(index=True)
    """``None`` while it runs."""
    aborted: Mapped[bool] = mapped_column(default=False)
    """Slurm took back what the job had borrowed."""
