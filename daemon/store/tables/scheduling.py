"""Tables of the store. Times are Unix seconds (float), so that they compare with Slurm's without time zones.

Text that Slurm hands on may hold any byte but NUL, while databases insist on valid Unicode: what users chose freely (job
names, comments) is kept as :class:`RawText`, names of users and accounts as :class:`SlurmName`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from slurm_soda.daemon.store.tables.column_types import JobId, RawText, SlurmName


class Base(DeclarativeBase):
    """Declarative base of all tables.

    Floats are double precision everywhere: MariaDB's FLOAT would round Unix seconds to two minutes. Constraints have names,
    without which later migrations could not drop them.
    """

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {float: Double()}


NO_DAEMON = 0
"""Process id in an epoch that no daemon began, but ``sodactl release-lifts``, so that no earlier daemon acts any more."""


TAKE_OVER_AFTER_S = 120.0
"""Of an epoch that names no other time: a lease and a command of 60 s each."""


class Epoch(Base):
    """One start of a daemon. The newest live one alone may act: the others are fenced off.

    An epoch of :data:`NO_DAEMON` keeps the heartbeat of the daemon before it, and has ended once no lift is left.
    """

    __tablename__ = "epoch"
    id: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    version: Mapped[str] = mapped_column(String(64))
    started_s: Mapped[float]
    heartbeat_s: Mapped[float]
    """By the clock of the store: of the database server, or of this host where the store is a file."""
    ended_s: Mapped[float | None]
    state_dir: Mapped[str] = mapped_column(RawText, default="")
    """With the host it names the controller: its lock file is there."""
    take_over_after_s: Mapped[float] = mapped_column(default=TAKE_OVER_AFTER_S)
    """Another controller may begin an epoch when the heartbeat is so old: the lease is over by then, and so is the longest
    command that was begun in it."""


class Standby(Base):
    """A sodad that waits to take over, with its last sign of life."""

    __tablename__ = "standby"
    host: Mapped[str] = mapped_column(String(255), primary_key=True)
    state_dir: Mapped[str] = mapped_column(RawText, primary_key=True)
    pid: Mapped[int]
    version: Mapped[str] = mapped_column(String(64))
    seen_s: Mapped[float]
    """By the clock of the store."""


class Cycle(Base):
    """One observe-decide-act-record cycle, for ``status`` and for finding out later what happened."""

    __tablename__ = "cycle"
    id: Mapped[int] = mapped_column(primary_key=True)
    epoch_id: Mapped[int] = mapped_column(ForeignKey("epoch.id"))
    started_s: Mapped[float] = mapped_column(index=True)
    mode: Mapped[str] = mapped_column(String(16))
    policy: Mapped[str] = mapped_column(String(64))
    pending: Mapped[int] = mapped_column(default=0)
    running: Mapped[int] = mapped_column(default=0)
    planned: Mapped[int] = mapped_column(default=0)
    """Changes that the plan asked for."""
    sent: Mapped[int] = mapped_column(default=0)
    """Changes that Slurm was sent."""
    timings_s: Mapped[dict[str, float]] = mapped_column(JSON, default=dict)
    """Seconds by part: ``observe``, ``decide``, ``act``, ``record``."""
    facts: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    error: Mapped[str] = mapped_column(RawText, default="")
    """Why nothing was done this cycle; empty when all went well."""


class Job(Base):
    """One job for ever. Slurm reuses job ids after a reset, so a job is an id and a submit time."""

    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("job_id", "submit_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float] = mapped_column(index=True)
    user: Mapped[str] = mapped_column(SlurmName(255))
    account: Mapped[str] = mapped_column(SlurmName(255), default="")
    partition: Mapped[str] = mapped_column(RawText, default="")
    name: Mapped[str] = mapped_column(RawText, default="")
    state: Mapped[str] = mapped_column(SlurmName(32), index=True)
    """Slurm's base state when last seen."""
    reason: Mapped[str] = mapped_column(RawText, default="")
    gpus: Mapped[int] = mapped_column(default=0)
    nodes: Mapped[int] = mapped_column(default=1)
    cpus: Mapped[int] = mapped_column(default=0)
    time_limit_s: Mapped[float | None]
    """When last seen; none where it is unlimited."""
    hints: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """As the codec writes them."""
    first_start_s: Mapped[float | None]
    end_s: Mapped[float | None] = mapped_column(index=True)
    """End of the last run, once the job has ended for good."""
    exit_code: Mapped[str] = mapped_column(SlurmName(16), default="")
    executed_s: Mapped[float] = mapped_column(default=0.0)
    """Run time of ended runs since the last promotion, before any also :attr:`inherited_s`; the present run is in no counter
    yet."""
    waited_since_s: Mapped[float | None]
    """When the present wait began, or the last promotion while waiting."""
    preemptions: Mapped[int] = mapped_column(default=0)
    promotions: Mapped[int] = mapped_column(default=0)
    promoted_s: Mapped[float | None]
    """The last promotion: service and waiting before it no longer count."""
    inherited_s: Mapped[float] = mapped_column(default=0.0)
    """Run time of a cancelled job that counts as this one's attained service."""
    inherited_from: Mapped[int | None] = mapped_column(index=True)
    """Key of that job, which passes it on to no other."""
    last_seen_s: Mapped[float] = mapped_column(default=0.0)
    cpu_s: Mapped[float | None]
    """CPU seconds over all runs by Slurm's accounting, once it knows."""
    memory_peak_mib: Mapped[float | None]
    """Peak memory by Slurm's accounting, once it knows."""
    memory_mib: Mapped[int | None] = mapped_column(BigInteger)
    """Of all its nodes: what it asked for, or holds; none where Slurm does not say."""
    waits: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """As :class:`slurm_soda.daemon.store.jobs.wait_times.WaitTimes` writes it."""
    accounted: Mapped[bool] = mapped_column(default=False)
    """Slurm's accounting has been asked about the ended job."""
    note: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """The last plan's verdict, queue, score and position, for ``explain``."""


class JobRun(Base):
    """One run of a job: from start to end or requeue."""

    __tablename__ = "job_run"
    __table_args__ = (UniqueConstraint("job_pk", "restart"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_pk: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    restart: Mapped[int]
    start_s: Mapped[float]
    end_s: Mapped[float | None] = mapped_column(index=True)
    node_names: Mapped[str] = mapped_column(RawText, default="")
    gpus: Mapped[int] = mapped_column(default=0)
    promoted_s: Mapped[float | None]
    """Service before this instant was forgiven by a promotion during the run."""
    shared: Mapped[bool] = mapped_column(default=False)
    """Another job was on one of its GPUs, at some time: the run says nothing of how such jobs are alone."""


class JobNodeUsage(Base):
    """What one run used on one node, as its agent last said; see :class:`slurm_soda.wire.records.JobUsage`."""

    __tablename__ = "job_node_usage"
    __table_args__ = (UniqueConstraint("job_id", "restart", "node", "first_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    first_s: Mapped[float]
    last_s: Mapped[float]
    samples: Mapped[int]
    gpu_count: Mapped[int]
    gpu_util_ratio: Mapped[float]
    gpu_util_last_ratio: Mapped[float]
    gpu_memory_peak_mib: Mapped[float]
    cpu_s: Mapped[float]
    memory_peak_mib: Mapped[float]
    cpu_source: Mapped[str] = mapped_column(String(32), default="")
    sm_uses: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON)
    """Each a :class:`slurm_soda.wire.records.SmUse`: for people alone (:mod:`slurm_soda.sodactl.live.slowdown_hints`)."""


class AgentHeartbeat(Base):
    """Last sign of life of a node's agent."""

    __tablename__ = "agent_heartbeat"
    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    agent_id: Mapped[str] = mapped_column(String(64))
    seq: Mapped[int]
    seen_s: Mapped[float]
    gpu_count: Mapped[int] = mapped_column(default=0)
    faults: Mapped[list[str]] = mapped_column(JSON, default=list)
    walls: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """As in the report: one :class:`.NodeWalls`, or none; and in it, as ``lapse``, start and id of the last job that no
    prolog recorded, while none that began later was recorded."""
    hooks: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """At most one :class:`slurm_soda.wire.hook_settings.HookSettings`."""


class NodeEvent(Base):
    """Openings and closings that prolog and epilog recorded, kept once each."""

    __tablename__ = "node_event"
    __table_args__ = (UniqueConstraint("kind", "job_id", "restart", "node", "at_s"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))
    job_id: Mapped[JobId] = mapped_column(index=True)
    restart: Mapped[int]
    node: Mapped[str] = mapped_column(String(255))
    at_s: Mapped[float]
    record: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


class Action(Base):
    """One change to Slurm: written as ``intended`` before it is sent, so that no crash hides it.

    ``state`` goes intended → sent (Slurm did not answer) → done, or → failed (with ``error``), or → void (it was never sent
    or never taken, or no longer applies); a done action that was taken back is ``undone``.
    """

    __tablename__ = "action"
    __table_args__ = (Index("ix_action_job_kind", "job_id", "kind"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    epoch_id: Mapped[int | None] = mapped_column(ForeignKey("epoch.id"))
    """``None``: made by hand with sodactl."""
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycle.id"), index=True)
    preemption_id: Mapped[int | None] = mapped_column(ForeignKey("preemption.id"), index=True)
    job_id: Mapped[JobId]
    submit_s: Mapped[float]
    kind: Mapped[str] = mapped_column(String(24))
    """``order`` (SiteFactor), ``signal``, ``requeue``, ``start-now``, ``lease`` (StartTime), ``rewrite``, ``release``."""
    new: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """Fields as sent, in Slurm's words."""
    old: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """The same fields before; what ``undo`` restores."""
    reason: Mapped[str] = mapped_column(RawText, default="")
    state: Mapped[str] = mapped_column(String(12), index=True)
    created_s: Mapped[float]
    finished_s: Mapped[float | None]
    error: Mapped[str] = mapped_column(RawText, default="")


class Preemption(Base):
    """A preemption on its way, kept here so that a restarted daemon goes on where the last one died.

    ``phase``: ``intended`` → ``signalled`` (grace runs) → ``requeued`` (waiting until Slurm shows it PENDING) →
    ``released`` (StartTime=now sent: it competes again) → ``done``, once it runs or slurmctld has saved the release; or
    ``lost`` (it ended by itself first).
    """

    __tablename__ = "preemption"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[JobId] = mapped_column(index=True)
    submit_s: Mapped[float]
    restart: Mapped[int]
    """Restart count of the run that is preempted."""
    phase: Mapped[str] = mapped_column(String(12), index=True)
    created_s: Mapped[float]
    deadline_s: Mapped[float]
    """When the grace ends; after the release, when slurmctld has surely saved it."""
    updated_s: Mapped[float]
    for_jobs: Mapped[list[int]] = mapped_column(JSON, default=list)
    reason: Mapped[str] = mapped_column(RawText, default="")
    vain_for: Mapped[list[int]] = mapped_column(JSON, default=list)
    """Jobs of :attr:`for_jobs` that did not start, although they could have as far as sodad knows."""


class VainPreemption(Base):
    """An owner's request for GPUs for which others were preempted in vain; gone once such a job has started."""

    __tablename__ = "vain_preemption"
    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(SlurmName(255), index=True)
    gpus: Mapped[int]
    gpus_per_node: Mapped[int]
    gpu_type: Mapped[str] = mapped_column(RawText)
    times: Mapped[int]
    """Vain attempts in a row."""
    job_id: Mapped[JobId]
    """Job that did not start, of the last one."""
    noted_s: Mapped[float]
    until_s: Mapped[float]
    """No one is preempted for such jobs before."""


class AdminSetting(Base):
    """What an admin set at run time with sodactl (``mode``, ``policy``); it overrides the configuration file."""

    __tablename__ = "admin_setting"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(255))
    changed_s: Mapped[float]
    changed_by: Mapped[str] = mapped_column(String(255), default="")
