"""Reading the store for people: what the last cycles did, and one job's whole story.

Every function takes an open session, so that one command reads one consistent picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Integer, Table, func, select
from sqlalchemy import cast as cast_column
from sqlalchemy.orm import Session

from slurm_soda.daemon.preemption.state_machine import ACTIVE_PHASES
from slurm_soda.daemon.store.audit_log import STANDING_STATES, UNDO_KIND
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import (
    NO_DAEMON,
    Action,
    AdminSetting,
    AgentHeartbeat,
    Cycle,
    Epoch,
    Job,
    JobNodeUsage,
    JobRun,
    NodeEvent,
    Preemption,
    Standby,
    VainPreemption,
)

_ROWS_AT_A_TIME = 500

# Of each cycle, on the table and built once: on the class and built anew it takes several times as long.
_SETTINGS = cast("Table", AdminSetting.__table__)
_SETTING_VALUES = select(_SETTINGS.c.key, _SETTINGS.c.value)

CLOCK_SLACK_S = 60.0
"""How far a node's clock may be off when its records are matched with a job by time."""


def latest_epoch(session: Session) -> Epoch | None:
    """The newest epoch that a daemon began."""
    return session.scalars(select(Epoch).where(Epoch.pid != NO_DAEMON).order_by(Epoch.id.desc()).limit(1)).first()


def standbys(session: Session) -> Sequence[Standby]:
    """Controllers that wait to take over, or waited when they last showed life."""
    return session.scalars(select(Standby).order_by(Standby.host, Standby.state_dir)).all()


def recent_cycles(session: Session, limit: int) -> Sequence[Cycle]:
    """The last cycles, newest first."""
    return session.scalars(select(Cycle).order_by(Cycle.id.desc()).limit(limit)).all()


def last_failed_cycle(session: Session) -> Cycle | None:
    """The newest cycle that ended in an error, however long ago."""
    return session.scalars(select(Cycle).where(Cycle.error != "").order_by(Cycle.id.desc()).limit(1)).first()


def admin_settings(session: Session) -> dict[str, AdminSetting]:
    """What admins set at run time, by key."""
    return {setting.key: setting for setting in session.scalars(select(AdminSetting))}


def setting_values(session: Session) -> dict[str, str]:
    """Their values alone, by key."""
    return {row.key: row.value for row in session.execute(_SETTING_VALUES)}


def put_admin_setting(session: Session, key: str, value: str, *, now_s: float, by: str) -> None:
    """Set one run-time setting; needs a writing session."""
    session.merge(AdminSetting(key=key, value=value, changed_s=now_s, changed_by=by))


def agent_heartbeats(session: Session) -> Sequence[AgentHeartbeat]:
    """Every agent that ever reported, by node name."""
    return session.scalars(select(AgentHeartbeat).order_by(AgentHeartbeat.node)).all()


def agent_names(session: Session) -> Sequence[str]:
    """Nodes of these agents."""
    return session.scalars(select(AgentHeartbeat.node)).all()


def active_preemptions(session: Session, of_jobs: ColumnElement[bool] | None = None) -> Sequence[Preemption]:
    """Preemptions that are not over, oldest first; of those jobs alone for which the condition holds."""
    query = select(Preemption).where(Preemption.phase.in_(ACTIVE_PHASES)).order_by(Preemption.id)
    if of_jobs is not None:
        same = (Job.job_id == Preemption.job_id) & (Job.submit_s == Preemption.submit_s)
        query = query.join(Job, same).where(of_jobs)
    return session.scalars(query).all()


def live_jobs(session: Session, limit: int = 0, of_jobs: ColumnElement[bool] | None = None) -> Sequence[Job]:
    """Jobs that have not ended, by job id; the first ``limit`` of them, 0 for all; those for which the condition holds."""
    query = select(Job).where(Job.end_s.is_(None)).order_by(Job.job_id, Job.submit_s)
    if of_jobs is not None:
        query = query.where(of_jobs)
    return session.scalars(query.limit(limit) if limit else query).all()


class LiveJobSummary(NamedTuple):
    """What counts of a live job beside others."""

    state: str
    gpus: int
    note: dict[str, Any]

    @property
    def position(self) -> int:
        """Place in the last plan's order, 0 first; -1 without one."""
        position = self.note.get("position")
        return position if isinstance(position, int) else -1


def live_job_summaries(session: Session) -> list[LiveJobSummary]:
    """Every live job's standing: columns instead of objects, since a queue may hold 10 000 jobs."""
    query = select(Job.state, Job.gpus, Job.note).where(Job.end_s.is_(None))
    return [LiveJobSummary(state, gpus, note) for state, gpus, note in session.execute(query)]


def find_job(session: Session, job_id: int, submit_s: float | None = None) -> Job | None:
    """The newest job of this id (Slurm reuses ids after a reset), or the one submitted at ``submit_s``."""
    query = select(Job).where(Job.job_id == job_id)
    if submit_s is not None:
        query = query.where(Job.submit_s == submit_s)
    return session.scalars(query.order_by(Job.submit_s.desc()).limit(1)).first()


def find_jobs(session: Session, job_ids: Sequence[int]) -> Iterator[Job]:
    """All jobs of these ids, ended ones included."""
    for part in split_list(job_ids):
        yield from session.scalars(select(Job).where(Job.job_id.in_(part)))


def runs_of(session: Session, job: Job) -> Sequence[JobRun]:
    """A job's runs, first to last."""
    return session.scalars(select(JobRun).where(JobRun.job_pk == job.id).order_by(JobRun.restart)).all()


def usage_of(session: Session, job: Job) -> Sequence[JobNodeUsage]:
    """What the job's runs used, by run and node; records of another job of the same id are left out by their time."""
    query = (
        select(JobNodeUsage)
        .where(JobNodeUsage.job_id == job.job_id)
        .order_by(JobNodeUsage.restart, JobNodeUsage.node, JobNodeUsage.first_s)
    )
    return [usage for usage in session.scalars(query) if belongs_to(usage.first_s, job)]


def clock_offsets(session: Session, limit: int = 500) -> dict[str, list[float]]:
    """By node, how many seconds after Slurm's start of a run its prolog began, by the node's own clock; newest runs."""
    newest = select(NodeEvent).where(NodeEvent.kind == "open").order_by(NodeEvent.id.desc()).limit(limit).subquery()
    query = (
        select(newest.c.node, newest.c.at_s - JobRun.start_s)
        .join(Job, Job.job_id == newest.c.job_id)
        .join(JobRun, (JobRun.job_pk == Job.id) & (JobRun.restart == newest.c.restart))
        # The id of an older job is no match; a clock that is off by more than a day is not told from that.
        .where(func.abs(newest.c.at_s - JobRun.start_s) < 86400)
    )
    offsets: dict[str, list[float]] = {}
    for node, offset_s in session.execute(query):
        offsets.setdefault(node, []).append(offset_s)
    return offsets


def belongs_to(at_s: float, job: Job) -> bool:
    """Whether a node's record of this instant can be of this job and not of an earlier or later one with its id."""
    over_s = float("inf") if job.end_s is None else job.end_s + CLOCK_SLACK_S
    return job.submit_s - CLOCK_SLACK_S <= at_s <= over_s


def never_shared() -> ColumnElement[bool]:
    """Of the runs of a job, grouped by it: none of them had another job on its GPUs."""
    return func.max(cast_column(JobRun.shared, Integer)) == 0


def actions_of(session: Session, job: Job, limit: int = 0) -> Sequence[Action]:
    """The changes made to one job, oldest first; the newest ``limit`` of them, 0 for all."""
    query = (
        select(Action).where(Action.job_id == job.job_id, Action.submit_s == job.submit_s).order_by(Action.id.desc())
    )
    return session.scalars(query.limit(limit) if limit else query).all()[::-1]


def preemptions_of(session: Session, job: Job) -> Sequence[Preemption]:
    """Every preemption of one job, oldest first."""
    query = select(Preemption).where(Preemption.job_id == job.job_id, Preemption.submit_s == job.submit_s)
    return session.scalars(query.order_by(Preemption.id)).all()


def vain_preemptions_like(session: Session, job: Job) -> Sequence[VainPreemption]:
    """Requests of the job's owner for as many GPUs for which others were preempted in vain."""
    query = select(VainPreemption).where(VainPreemption.user == job.user, VainPreemption.gpus == job.gpus)
    return session.scalars(query.order_by(VainPreemption.id)).all()


def standing_actions(session: Session) -> Iterator[Action]:
    """Changes that Slurm took or may have taken and that were not taken back, newest first; none that takes another back."""
    query = select(Action).where(Action.state.in_(STANDING_STATES), Action.kind != UNDO_KIND)
    yield from session.scalars(query.order_by(Action.id.desc()).execution_options(yield_per=_ROWS_AT_A_TIME))


def standing_rewrites(session: Session, job_ids: Sequence[int]) -> list[Action]:
    """Changes of these jobs' requests that Slurm took or may have taken and that were not taken back, newest first.

    Lists of partitions are left out: where a job may run is a matter of the pools, which stay.
    """
    found: list[Action] = []
    for part in split_list(job_ids):
        among = Action.job_id.in_(part)
        query = select(Action).where(Action.kind == "rewrite", Action.state.in_(STANDING_STATES), among)
        found += [action for action in session.scalars(query) if "Partition" not in action.new]
    return sorted(found, key=lambda action: -action.id)


def newest_order(session: Session) -> int | None:
    """The newest change of the order of jobs, or of their requests; ``None`` where sodad never made one."""
    query = select(Action.id).where(Action.kind.in_(("order", "rewrite", "share")))
    return session.scalar(query.order_by(Action.id.desc()).limit(1))


def last_site_factors(session: Session, job_ids: Sequence[int]) -> dict[int, str]:
    """The newest SiteFactor that was recorded for each of these jobs, whatever became of it; by job id."""
    found: dict[int, str] = {}
    for part in split_list(job_ids):
        query = select(Action.job_id, Action.new).where(Action.job_id.in_(part)).order_by(Action.id)
        found |= {job_id: new["SiteFactor"] for job_id, new in session.execute(query) if "SiteFactor" in new}
    return found


def recorded_lifts(session: Session, job_ids: Sequence[int]) -> set[int]:
    """Which of these jobs have a lift as far as the record of changes tells."""
    return {job_id for job_id, factor in last_site_factors(session, job_ids).items() if factor != "0"}


def later_actions(session: Session, action: Action) -> Sequence[Action]:
    """Changes of the same job that were made after this one and still stand, oldest first."""
    query = select(Action).where(
        Action.job_id == action.job_id,
        Action.submit_s == action.submit_s,
        Action.id > action.id,
        Action.state.in_(STANDING_STATES),
    )
    return session.scalars(query.order_by(Action.id)).all()


def action_counts(session: Session, since_s: float) -> dict[str, int]:
    """Changes by state since an instant."""
    query = select(Action.state, func.count()).where(Action.created_s >= since_s).group_by(Action.state)
    return {state: count for state, count in session.execute(query)}  # noqa: C416 - a Row is no tuple to mypy
