"""At which stage of a roll-out a site stands, and what the next one waits for: by the store and the configuration alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.scope.stage_record import stage_since_s
from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.tables.scheduling import (
    NO_DAEMON,
    Action,
    AgentHeartbeat,
    Cycle,
    Epoch,
    Job,
    VainPreemption,
)
from slurm_soda.sodactl.site.stage_texts import LEAST_DAYS, TITLES, StageName
from slurm_soda.sodactl.site.waits import compare_waits

DAY_S = 86_400.0
LEAST_JOBS = 100
"""GPU jobs that ended: fewer say little of a site."""
_REFUSED_RATIO = 0.01
"""More refused changes than this part of all are no accident."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that the next stage waits for."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a site stands."""

    stage: StageName
    since_s: float | None
    """Unix time; ``None``: sodad has not run at this stage yet."""
    conditions: tuple[Condition, ...]
    """Of the next stage; none at the last one."""
    then: str
    """What the next stage is begun with; empty at the last one."""

    @property
    def ready(self) -> bool:
        """The next stage may begin."""
        return bool(self.conditions) and all(one.met for one in self.conditions)

    @property
    def title(self) -> str:
        """As people call the stage."""
        return TITLES[self.stage]


def read_standing(session: Session, settings: Settings, now_s: float) -> Standing:
    """The stage of a site, and its conditions."""
    admin = queries.setting_values(session)
    mode = admin.get("mode", settings.mode)
    stage: StageName = (
        "observe" if mode == "observe"
        else "advise" if mode == "advise"
        else "all" if settings.scope == ScopeSettings()
        else "part"
    )  # fmt: skip
    since_s = stage_since_s(session, mode, settings.scope)
    if stage == "observe":
        since_s = session.scalar(select(func.min(Epoch.started_s)).where(Epoch.pid != NO_DAEMON))
    then = {
        "observe": "sodactl mode advise",
        "advise": "the first [scope] of `sodactl site plan` in soda.toml, systemctl reload sodad, sodactl mode enforce",
        "part": "the next [scope] of `sodactl site plan` in soda.toml, or none for all jobs, then systemctl reload sodad",
        "all": "",
    }[stage]
    conditions = () if stage == "all" else tuple(_conditions(session, settings, stage, since_s, now_s))
    return Standing(stage, since_s, conditions, then)


def _conditions(
    session: Session, settings: Settings, stage: StageName, since_s: float | None, now_s: float
) -> Iterator[Condition]:
    days, least = (0.0 if since_s is None else (now_s - since_s) / DAY_S), LEAST_DAYS[stage]
    yield Condition(f"{days:.1f} of {least:g} days", days >= least)
    failed = _count(session, select(func.count(Cycle.id)).where(Cycle.error != "", Cycle.started_s > now_s - DAY_S))
    yield Condition(f"{failed} failed cycles in the last day", failed == 0)
    silent = _count(session, select(func.count()).where(AgentHeartbeat.seen_s < now_s - NODE_SILENT_S))
    yield Condition(f"{silent} silent agents", silent == 0)
    if stage == "observe":
        ended = _count(session, select(func.count(Job.id)).where(Job.gpus > 0, Job.end_s.is_not(None)))
        yield Condition(f"{ended} of {LEAST_JOBS} GPU jobs have ended", ended >= LEAST_JOBS)
    if stage != "part":
        return
    sent = select(func.count(Action.id)).where(Action.epoch_id.is_not(None), Action.created_s > now_s - DAY_S)
    changes, refused = _count(session, sent), _count(session, sent.where(Action.state == "failed"))
    yield Condition(f"{refused} of {changes} changes refused in the last day", refused <= _REFUSED_RATIO * changes)
    vain = _count(session, select(func.count()).select_from(VainPreemption).where(VainPreemption.until_s > now_s))
    yield Condition(f"preempted in vain lately for {vain} requests", vain == 0)
    if since_s is not None and (waits := compare_waits(session, settings.scope, since_s, now_s)) is not None:
        yield Condition(waits.text, waits.harmless)


def _count(session: Session, query: object) -> int:
    return int(session.scalar(query) or 0)  # type: ignore[call-overload]


def describe_standing(standing: Standing) -> str:
    """In one line."""
    if not standing.then:
        return f"{standing.title}: the last stage"
    told = "; ".join(f"{'met' if one.met else 'not yet'}: {one.text}" for one in standing.conditions)
    when = "now" if standing.ready else "when all is met"
    return f"{standing.title}; next, {when}: {standing.then} ({told})"
