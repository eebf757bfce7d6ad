"""The tables of inference services: what their routers reported last, load by minute, and instances that leave."""

from __future__ import annotations

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import BigCount, JobId, RawText, SlurmName
from slurm_soda.daemon.store.tables.scheduling import Base


class ServiceRow(Base):
    """One service: the newest report of its router. An empty store is whole again after the next one."""

    __tablename__ = "service"
    __table_args__ = (UniqueConstraint("owner", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(SlurmName(255))
    name: Mapped[str] = mapped_column(String(40))
    report: Mapped[str] = mapped_column(RawText)
    """As the router sent it (JSON)."""
    reported_at_s: Mapped[float]
    """When it came, by sodad's clock."""
    least: Mapped[int | None]
    """What the owner said with ``sodactl service scale``; ``None``: what the file says holds."""
    most: Mapped[int | None]
    file_least: Mapped[int | None]
    """What the file said then: once it says something else, that holds."""
    file_most: Mapped[int | None]
    low_since_s: Mapped[float | None]
    """Since when fewer instances would have done; ``None``: the present ones are needed."""


class ServiceMinuteRow(Base):
    """Load and latency of one service in one minute."""

    __tablename__ = "service_minute"
    __table_args__ = (UniqueConstraint("owner", "name", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(SlurmName(255))
    name: Mapped[str] = mapped_column(String(40))
    at_s: Mapped[float]
    """Its beginning."""
    load_qps: Mapped[float]
    """Mean of the reports in it."""
    most_qps: Mapped[float]
    """Largest of them."""
    p99_ms: Mapped[float]
    """Largest of the reports' 99th percentiles."""
    queries: Mapped[BigCount]
    errors: Mapped[BigCount]
    violations: Mapped[BigCount]
    cpu: Mapped[int]
    """Instances on CPU cores that were ready, at most."""
    gpu: Mapped[int]


class ServiceDrainRow(Base):
    """One instance that leaves, kept here so that a restarted daemon goes on where the last one died.

    ``phase``: ``asked`` (its router is told) → ``requeued`` (Slurm is told) → ``over``.
    """

    __tablename__ = "service_drain"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float]
    """First submission: with the id it names the job for ever."""
    restart: Mapped[int]
    """Restart count of the run that leaves."""
    owner: Mapped[str] = mapped_column(SlurmName(255))
    name: Mapped[str] = mapped_column(String(40))
    by_owner: Mapped[bool]
    """Its owner asked for it."""
    why: Mapped[str] = mapped_column(RawText, default="")
    phase: Mapped[str] = mapped_column(String(12), index=True)
    asked_s: Mapped[float]
    deadline_s: Mapped[float]
    """When it is requeued whatever it still answers."""
    ended_s: Mapped[float | None]
    end: Mapped[str] = mapped_column(RawText, default="")
    """How it came to its end, in words for people."""
