"""Tables of forecasts: when waiting jobs are expected to start, and what came of earlier ones."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.scheduling import Base


class ExpectedStart(Base):
    """The newest forecast of a job that waits, as people are told it; Unix seconds, ``None``: perhaps never."""

    __tablename__ = "expected_start"
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"), primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    """When it last changed by enough to be written."""
    low_s: Mapped[float | None]
    median_s: Mapped[float | None]
    high_s: Mapped[float | None]


class StartForecastRow(Base):
    """One forecast that is kept until the job starts; seconds after ``at_s``, ``None``: perhaps never."""

    __tablename__ = "start_forecast"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    at_s: Mapped[float]
    drawn_low_s: Mapped[float | None]
    """Quantiles of the possible futures, before anything was learned from earlier forecasts."""
    drawn_median_s: Mapped[float | None]
    drawn_high_s: Mapped[float | None]
    low_s: Mapped[float | None]
    """As people were told."""
    median_s: Mapped[float | None]
    high_s: Mapped[float | None]
    started_s: Mapped[float | None] = mapped_column(index=True)
    """Unix seconds of the job's next start; ``None``: it waits."""
