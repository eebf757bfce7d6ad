"""The tables of shares (:mod:`slurm_soda.daemon.sharing.share_state`), of what admins want shared, and of faults."""

from __future__ import annotations

from sqlalchemy import JSON, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId, RawText, SlurmName
from slurm_soda.daemon.store.tables.scheduling import Base


class ShareRow(Base):
    """One share, kept here so that a restarted daemon goes on where the last one died.

    ``phase``: ``intended`` → ``rewritten`` (the guest waits) → ``started`` → ``over``; by ``parting`` while the guest is
    given its own request back, or is made to leave.
    """

    __tablename__ = "share"
    id: Mapped[int] = mapped_column(primary_key=True)
    guest: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float]
    """First submission: with the id it names the job for ever."""
    restart: Mapped[int]
    """Restart count of the run in which the job is, or was to be, a guest."""
    hosts: Mapped[list[int]] = mapped_column(JSON, default=list)
    host_restarts: Mapped[dict[str, int]] = mapped_column(JSON, default=dict)
    """Restart counts of the hosts' runs, by job id."""
    nodes: Mapped[list[str]] = mapped_column(JSON, default=list)
    gpus: Mapped[list[int]] = mapped_column(JSON, default=list)
    """Indices that it shares on each node."""
    record: Mapped[str] = mapped_column(RawText, default="")
    """What stands in the guest's Extra."""
    wrote: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """The other fields as they were written."""
    phase: Mapped[str] = mapped_column(String(12), index=True)
    end: Mapped[str] = mapped_column(String(12), default="")
    """Kind of its end; see :data:`slurm_soda.daemon.sharing.share_state.ShareEnd`."""
    why: Mapped[str] = mapped_column(RawText, default="")
    """The reason of the share; once it parts or is over, of that."""
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycle.id"), index=True)
    """In which it was decided; ``None``: found in Slurm."""
    created_s: Mapped[float]
    deadline_s: Mapped[float]
    """When a guest that still waits is given its own request back."""
    started_s: Mapped[float | None]
    ended_s: Mapped[float | None]
    updated_s: Mapped[float]


class ManualShareRow(Base):
    """What an admin wants of one job: that it shares GPUs, or that it does so no more. A job has one at most that holds.

    ``phase``: ``asked`` → ``over``; a parting is ``kept`` between them, while its jobs must not meet again.
    """

    __tablename__ = "manual_share"
    id: Mapped[int] = mapped_column(primary_key=True)
    guest: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float]
    """First submission: with the id it names the job for ever."""
    kind: Mapped[str] = mapped_column(String(8))
    """``share`` or ``unshare``."""
    hosts: Mapped[list[int]] = mapped_column(JSON, default=list)
    phase: Mapped[str] = mapped_column(String(12), index=True)
    why: Mapped[str] = mapped_column(RawText, default="")
    """Why it is not done yet; once it is over, how it ended."""
    asked_s: Mapped[float]
    asked_by: Mapped[str] = mapped_column(String(255))
    updated_s: Mapped[float]


class FaultedPairRow(Base):
    """Two jobs that shared a GPU by MPS when a client of their server had a fatal fault; nobody knows whose it was.

    They never share again. Their programs, an owner's jobs of one model, do not either until :attr:`lifted_s`.
    """

    __tablename__ = "faulted_pair"
    __table_args__ = (
        UniqueConstraint("one", "other", "owner", "model", "other_owner", "other_model", name="uq_faulted_pair"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    node: Mapped[str] = mapped_column(String(255))
    at_s: Mapped[float]
    """When the agent saw the newest fault."""
    one: Mapped[JobId]
    """The smaller id."""
    other: Mapped[JobId]
    owner: Mapped[str] = mapped_column(SlurmName(255), default="")
    """Of :attr:`one`; empty: the store did not know the job."""
    model: Mapped[str] = mapped_column(String(64), default="")
    other_owner: Mapped[str] = mapped_column(SlurmName(255), default="")
    other_model: Mapped[str] = mapped_column(String(64), default="")
    lifted_s: Mapped[float | None]
    lifted_by: Mapped[str] = mapped_column(String(255), default="")
    """Who lifted the quarantine."""
