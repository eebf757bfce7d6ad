"""Tables of what is known about kinds of jobs: values with their sources, what they were learned from, and edits by hand."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import RawText, SlurmName
from slurm_soda.daemon.store.tables.scheduling import Base


class ProfileValueRow(Base):
    """One value that one source gives of one kind of job, or of one kind beside another one; what was measured also by
    owner.

    Model names are those of :func:`slurm_soda.policies.tiresias.model_skews.normalise_model_name`.
    """

    __tablename__ = "profile_value"
    __table_args__ = (
        UniqueConstraint(
            "model",
            "batch",
            "gpu_type",
            "gpus",
            "partner",
            "partner_batch",
            "quantity",
            "source",
            "owner",
            name="uq_profile_value",
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(String(64))
    """Empty: of the GPU itself, or of any model."""
    batch: Mapped[int]
    """Per GPU and iteration; 0: any."""
    gpu_type: Mapped[str] = mapped_column(String(64))
    gpus: Mapped[int]
    partner: Mapped[str] = mapped_column(String(64), default="")
    """Model of the job beside it; empty: alone."""
    partner_batch: Mapped[int] = mapped_column(default=0)
    quantity: Mapped[str] = mapped_column(String(24))
    """One of :data:`slurm_soda.daemon.learning.quantities.QUANTITIES`."""
    source: Mapped[int]
    """A :class:`slurm_soda.policies.sharing.job_kinds.Source`."""
    owner: Mapped[str] = mapped_column(SlurmName(255), default="")
    """Whose jobs were measured; empty: of all owners, or of another source."""
    value: Mapped[float]
    error: Mapped[float | None]
    """Expected absolute error; ``None``: nobody can tell."""
    observations: Mapped[int] = mapped_column(default=0)
    origin: Mapped[str] = mapped_column(RawText, default="")
    """Who says so: a file, a person; empty for what was measured here."""
    edit_id: Mapped[int | None]
    """The :class:`ProfileEdit` that made it; ``None``: it was measured here."""
    at_s: Mapped[float]


class ObservedJob(Base):
    """What one ended job showed of its kind; its owner's value comes from the newest of them."""

    __tablename__ = "observed_job"
    __table_args__ = (Index("ix_observed_job_kind", "model", "gpu_type", "gpus", "batch"),)
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"), primary_key=True, autoincrement=False)
    model: Mapped[str] = mapped_column(String(64))
    batch: Mapped[int]
    gpu_type: Mapped[str] = mapped_column(String(64))
    gpus: Mapped[int]
    at_s: Mapped[float] = mapped_column(index=True)
    """Its end."""
    run_s: Mapped[float]
    iteration_s: Mapped[float | None]
    """Run time by iterations; ``None``: it did not complete, or did not say how many."""
    utilisation_ratio: Mapped[float | None]
    memory_mib: Mapped[float | None]
    """Most GPU memory, of one GPU."""


class ObservedPreemption(Base):
    """What one preemption of a job cost it, by the progress that it told before and after it."""

    __tablename__ = "observed_preemption"
    __table_args__ = (UniqueConstraint("job_pk", "restart"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"))
    restart: Mapped[int]
    """Of the run that was preempted."""
    model: Mapped[str] = mapped_column(String(64), index=True)
    """As the job named it; empty: it named none."""
    at_s: Mapped[float] = mapped_column(index=True)
    """When the next run told of its first progress."""
    overhead_s: Mapped[float]
    """Time on each GPU without progress, to save its state and to load it again."""
    lost_s: Mapped[float]
    """Work that was done again."""


class ProfileEdit(Base):
    """One change by hand: what it replaced, so that it can be undone."""

    __tablename__ = "profile_edit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at_s: Mapped[float]
    who: Mapped[str] = mapped_column(String(255))
    action: Mapped[str] = mapped_column(String(12))
    """``set``, ``forget``, ``import`` or ``train``."""
    summary: Mapped[str] = mapped_column(RawText, default="")
    before: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """Rows that it replaced or removed, each with its table's name."""
    undone_s: Mapped[float | None]


class StoredSlowdownModel(Base):
    """A trained model that predicts slowdowns of pairs which nobody measured; there is one at most."""

    __tablename__ = "slowdown_model"
    id: Mapped[int] = mapped_column(primary_key=True)
    at_s: Mapped[float]
    summary: Mapped[str] = mapped_column(RawText, default="")
    document: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """As :mod:`slurm_soda.policies.sharing.prediction.model_json` writes it."""
    edit_id: Mapped[int | None]


class RunTimePrediction(Base):
    """What was expected of a job's run time when it was first seen, and what it took in the end."""

    __tablename__ = "run_time_prediction"
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"), primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    predicted_by: Mapped[str] = mapped_column(String(16))
    """A :class:`slurm_soda.policies.run_times.prediction_sources.RunTimeSource`."""
    run_s: Mapped[float]
    """All of its run time, over all runs."""
    error_s: Mapped[float | None]
    jobs: Mapped[int] = mapped_column(default=0)
    """Like jobs that it was learned from."""
    basis: Mapped[str] = mapped_column(RawText, default="")
    """Which jobs these are, for people."""
    curve: Mapped[list[list[float]]] = mapped_column(JSON, default=list)
    """Points of (run time so far, whole run time to expect then, error): what is left changes while it runs."""
    actual_s: Mapped[float | None]
