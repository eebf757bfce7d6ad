"""What people are shown of the store, each read at one instant: how sodad fares, the live jobs, one job in detail.

sodactl takes them from the store where it may read it, and gets them from sodad's HTTP side elsewhere: the same either way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from slurm_soda.daemon.api.view_outlines import outline_job
from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.learning.stored_profiles import iteration_time_of
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.sharing.observed_pairs import own_alone_s
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.cpu_fit import fits_of, proposal_of
from slurm_soda.daemon.store.faulted_pairs import FaultOfJob, faults_of
from slurm_soda.daemon.store.kind_profiles import run_time_prediction_of
from slurm_soda.daemon.store.manual_shares import manual_share_of
from slurm_soda.daemon.store.progress import paces_of, progress_of
from slurm_soda.daemon.store.shares import open_shares, shares_of
from slurm_soda.daemon.store.start_forecasts import expected_start_of, score_of_intervals
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuProposalRow
from slurm_soda.daemon.store.tables.kind_profiles import RunTimePrediction
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import (
    Action,
    AgentHeartbeat,
    Cycle,
    Epoch,
    Job,
    JobNodeUsage,
    JobRun,
    Preemption,
    Standby,
    VainPreemption,
)
from slurm_soda.daemon.store.tables.sharing import ManualShareRow, ShareRow
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart
from slurm_soda.policies.expected_starts.calibration import IntervalScore

OPERATOR = Viewer("")
"""Somebody from whom nothing is private."""

MAX_CHANGES = 5000
"""Newest changes in one job's view: one that waits for weeks may be moved every few seconds."""


@dataclass(frozen=True, slots=True)
class ViewHeader:
    """Who schedules, and by what rules; part of every view."""

    epoch: Epoch | None
    daemon_alive: bool
    """Its heart beats: it records cycles."""
    stall: str
    """Why a daemon that lives records no cycle; empty if it does, or does not live."""
    mode: str
    policy: str
    parameters: dict[str, Any]
    """The policy's, where the configuration gives any; the others have their defaults."""
    private: Sequence[str] = field(default_factory=list)
    """Words of Slurm's PrivateData that keep something from whoever asks."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """How sodad fares."""

    head: ViewHeader
    cycles: Sequence[Cycle]
    """The last ones, newest first."""
    failed: Cycle | None
    """The newest cycle that ended in an error, however long ago."""
    states: Mapping[str, int]
    """Live jobs by Slurm's state."""
    queues: Mapping[str, Mapping[str, int]]
    """Live jobs by the policy's queue, the first of which is ``1``, and by state."""
    preemptions: Sequence[Preemption]
    """Those that are not over."""
    changes: Mapping[str, int]
    """Changes by state, since the instant that was asked for."""
    nodes: Sequence[AgentHeartbeat]
    standbys: Sequence[Standby] = ()
    """Controllers whose sodads wait to take over, or waited when they last showed life."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """Shares that are not over by phase."""
    start_score: IntervalScore | None = None
    """How right forecasts of starts were lately."""


@dataclass(frozen=True, slots=True)
class JobListView:
    """Every job that has not ended, by job id."""

    head: ViewHeader
    jobs: Sequence[Job]
    more: bool
    """Some were left out."""


@dataclass(frozen=True, slots=True)
class AloneTime:
    """Time of an iteration of a job alone."""

    iteration_s: float
    by: str
    """``itself``, or where it is known from of jobs of its kind."""


@dataclass(frozen=True, slots=True)
class JobDetailView:
    """All about one job; ``job`` is ``None`` if the store does not know it."""

    head: ViewHeader
    job: Job | None
    runs: Sequence[JobRun] = ()
    usage: Sequence[JobNodeUsage] = ()
    preemptions: Sequence[Preemption] = ()
    actions: Sequence[Action] = ()
    """The newest :data:`MAX_CHANGES`, oldest first."""
    waiting_before: int = 0
    """Waiting jobs with a smaller position."""
    gpus_before: int = 0
    cpu_proposal: CpuProposalRow | None = None
    """What sodad proposed for its request for cores."""
    cpu_fits: Sequence[CpuFitRow] = ()
    """How searches for its cores ended, by time."""
    run_time: RunTimePrediction | None = None
    """What was expected of its run time when it came."""
    progress: Sequence[JobProgressRow] = ()
    """What its runs said of their progress, first to last."""
    paces: Sequence[JobPaceRow] = ()
    """How fast its runs were, alone and beside others."""
    alone: AloneTime | None = None
    vain_preemptions: Sequence[VainPreemption] = ()
    """Of its owner's requests for as many GPUs, those for which others were preempted in vain."""
    shares: Sequence[ShareRow] = ()
    """In which it is or was a guest, or is a host; oldest first."""
    manual_share: ManualShareRow | None = None
    """What an admin wanted of it last, as a guest."""
    faults: Sequence[FaultOfJob] = ()
    """Under MPS, for which it does not share with some jobs; oldest first."""
    expected_start: ExpectedStart | None = None
    """Of one that waits."""
    start_score: IntervalScore | None = None
    """How right forecasts of starts were lately, of all jobs; ``None``: this one waits without any."""


def daemon_is_alive(epoch: Epoch | None, now_s: float, interval_s: float) -> bool:
    """Whether a daemon with a cycle every ``interval_s`` has written a heartbeat lately and has not ended."""
    return epoch is not None and epoch.ended_s is None and now_s - epoch.heartbeat_s <= max(30.0, 3 * interval_s)


def view_header(
    epoch: Epoch | None, chosen: Mapping[str, str], settings: Settings, *, daemon_alive: bool, stall: str = ""
) -> ViewHeader:
    """Combine the configuration with what admins chose at run time, by key."""
    policy = chosen.get("policy", settings.policy.name)
    return ViewHeader(
        epoch=epoch,
        daemon_alive=daemon_alive,
        stall=stall,
        mode=chosen.get("mode", settings.mode),
        policy=policy,
        parameters=dict(settings.policy.parameters) if policy == settings.policy.name else {},
    )


def status_view(
    session: Session, top: ViewHeader, *, cycles: int, since_s: float, viewer: Viewer = OPERATOR
) -> StatusView:
    """How sodad fares, with its last ``cycles`` and the number of changes since an instant.

    Totals are nobody's secret: sdiag, too, shows them to all.
    """
    standings = queries.live_job_summaries(session)
    recent, failed = queries.recent_cycles(session, cycles), queries.last_failed_cycle(session)
    if not viewer.sees_all_jobs:
        recent, failed = [_outline(cycle) for cycle in recent], failed and _outline(failed)
    return StatusView(
        head=top,
        cycles=recent,
        failed=failed,
        states=dict(sorted(Counter(job.state for job in standings).items())),
        queues=_by_queue(standings),
        preemptions=queries.active_preemptions(session, viewer.visible_jobs()),
        changes=queries.action_counts(session, since_s),
        nodes=_agents(session, viewer),
        standbys=queries.standbys(session),
        shares=dict(sorted(Counter(share.phase for share in open_shares(session)).items())),
        start_score=score_of_intervals(session),
    )


def _outline(cycle: Cycle) -> Cycle:
    """The cycle without the texts that may name jobs of others."""
    shown = {column.key: getattr(cycle, column.key) for column in Cycle.__table__.columns}
    facts = {key: cycle.facts[key] for key in ("breaker_open_until_s",) if key in cycle.facts}
    return Cycle(**shown | {"facts": facts, "error": "sodad's log says why" if cycle.error else ""})


def _agents(session: Session, viewer: Viewer) -> Sequence[AgentHeartbeat]:
    """Where jobs are private without what names them: a fault with a number in it, and whose hooks left a record."""
    if "nodes" in viewer.private:
        return ()
    found = queries.agent_heartbeats(session)
    if viewer.sees_all_jobs:
        return found
    return [_outline_agent(agent) for agent in found]


def _outline_agent(agent: AgentHeartbeat) -> AgentHeartbeat:
    shown = {column.key: getattr(agent, column.key) for column in AgentHeartbeat.__table__.columns}
    kept = [fault for fault in agent.faults if not re.search(r"\d", fault)]
    hidden = ["soda-agent's log on the node says more"] if len(kept) < len(agent.faults) else []
    walls = [{"fault": walls["fault"], "recorded": []} for walls in agent.walls]
    return AgentHeartbeat(**shown | {"faults": [*kept, *hidden], "walls": walls})


def _by_queue(standings: Sequence[queries.LiveJobSummary]) -> dict[str, dict[str, int]]:
    queues: dict[int, Counter[str]] = {}
    for job in standings:
        if isinstance(queue := job.note.get("queue"), int) and queue >= 0:
            queues.setdefault(queue, Counter())[job.state] += 1
    return {str(queue + 1): dict(sorted(counts.items())) for queue, counts in sorted(queues.items())}


def job_list_view(session: Session, top: ViewHeader, *, most: int = 0, viewer: Viewer = OPERATOR) -> JobListView:
    """Every live job that may be seen, or the first ``most`` of them by id; 0 is all."""
    found = queries.live_jobs(session, most + 1 if most else 0, viewer.visible_jobs())
    shown = [outline_job(job, viewer) for job in found[: most or None]]
    return JobListView(top, shown, more=bool(most) and len(found) > most)


def job_detail_view(session: Session, top: ViewHeader, job_id: int) -> JobDetailView:
    """The newest job of this id, with all that happened to it and its place among the live ones."""
    job = queries.find_job(session, job_id)
    if job is None:
        return JobDetailView(top, None)
    own = queries.LiveJobSummary(job.state, job.gpus, job.note).position
    waiting = [other for other in queries.live_job_summaries(session) if other.state == "PENDING"]
    paces = paces_of(session, job)
    before = [other for other in waiting if 0 <= other.position < own]
    expected = expected_start_of(session, job.id)
    return JobDetailView(
        head=top,
        job=job,
        runs=queries.runs_of(session, job),
        usage=queries.usage_of(session, job),
        preemptions=queries.preemptions_of(session, job),
        actions=queries.actions_of(session, job, MAX_CHANGES),
        waiting_before=len(before),
        gpus_before=sum(other.gpus for other in before),
        cpu_proposal=proposal_of(session, job.job_id, job.submit_s),
        cpu_fits=fits_of(session, job.job_id, job.submit_s),
        run_time=run_time_prediction_of(session, job.id),
        progress=progress_of(session, job),
        paces=paces,
        alone=_alone_time(session, job, paces),
        vain_preemptions=queries.vain_preemptions_like(session, job),
        shares=shares_of(session, job.job_id, job.submit_s),
        manual_share=manual_share_of(session, job.job_id, job.submit_s),
        faults=faults_of(session, job),
        expected_start=expected,
        start_score=None if expected is None else score_of_intervals(session),
    )


def shown_to(view: JobDetailView, viewer: Viewer) -> JobDetailView:
    """The same for who may see the job, and perhaps not how busy it was, how far it is, how fast, and who else is there."""
    if view.job is None:
        return view
    shown = replace(view, job=outline_job(view.job, viewer))
    if viewer.may_see_use(view.job):
        return shown
    return replace(shown, usage=(), progress=(), paces=(), alone=None, cpu_fits=())


def _alone_time(session: Session, job: Job, paces: Sequence[JobPaceRow]) -> AloneTime | None:
    """Asked only of jobs that told their progress beside others."""
    own = own_alone_s(paces)
    if own is not None:
        return AloneTime(own, "itself")
    if not any(pace.co_runners for pace in paces):
        return None
    told = iteration_time_of(session, job)
    return None if told is None or told.value <= 0 else AloneTime(told.value, told.source.name.lower())
