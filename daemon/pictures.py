"""What people are shown of the store, each read at one instant: how sodad fares, the live jobs, one job's story.

sodactl takes them from the store where it may read it, and gets them from sodad's HTTP side elsewhere: the same either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.cores import fits_of, start_of
from slurm_soda.daemon.store.cores_schema import CoreFitted, CoreStart
from slurm_soda.daemon.store.knowledge import told_of
from slurm_soda.daemon.store.knowledge_schema import RunTimeTold
from slurm_soda.daemon.store.schema import Action, Cycle, Epoch, Job, NodeSeen, Preemption, Run, Usage

MOST_CHANGES = 5000
"""Newest changes in one job's story: one that waits for weeks may be moved every few seconds."""


@dataclass(frozen=True, slots=True)
class Head:
    """Who schedules, and by what rules; part of every picture."""

    epoch: Epoch | None
    daemon_alive: bool
    mode: str
    policy: str
    parameters: dict[str, Any]
    """The policy's, where the configuration gives any; the others have their defaults."""


@dataclass(frozen=True, slots=True)
class Overview:
    """How sodad fares."""

    head: Head
    cycles: Sequence[Cycle]
    """The last ones, newest first."""
    failed: Cycle | None
    """The newest cycle that ended in an error, however long ago."""
    states: Mapping[str, int]
    """Live jobs by Slurm's state."""
    queues: Mapping[str, Mapping[str, int]]
    """Live jobs by the policy's queue and by state."""
    preemptions: Sequence[Preemption]
    """Those that are not over."""
    changes: Mapping[str, int]
    """Changes by state, since the instant that was asked for."""
    nodes: Sequence[NodeSeen]


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """Every job that has not ended, by job id."""

    head: Head
    jobs: Sequence[Job]
    more: bool
    """Some were left out."""


@dataclass(frozen=True, slots=True)
class Story:
    """All about one job; ``job`` is ``None`` if the store does not know it."""

    head: Head
    job: Job | None
    runs: Sequence[Run] = ()
    usage: Sequence[Usage] = ()
    preemptions: Sequence[Preemption] = ()
    actions: Sequence[Action] = ()
    """The newest :data:`MOST_CHANGES`, oldest first."""
    waiting_before: int = 0
    """Waiting jobs with a smaller position."""
    gpus_before: int = 0
    core_start: CoreStart | None = None
    """What sodad thought of its request for cores."""
    core_fits: Sequence[CoreFitted] = ()
    """How searches for its cores ended, by time."""
    run_time: RunTimeTold | None = None
    """What was expected of its run time when it came."""


def heart_beats(epoch: Epoch | None, now_s: float, interval_s: float) -> bool:
    """Whether a daemon that looks every ``interval_s`` has shown a sign of life lately, and none of its end."""
    return epoch is not None and epoch.ended_s is None and now_s - epoch.heartbeat_s <= max(30.0, 3 * interval_s)


def head(epoch: Epoch | None, chosen: Mapping[str, str], settings: Settings, *, daemon_alive: bool) -> Head:
    """Combine the configuration with what admins chose at run time, by key."""
    policy = chosen.get("policy", settings.policy.name)
    return Head(
        epoch=epoch,
        daemon_alive=daemon_alive,
        mode=chosen.get("mode", settings.mode),
        policy=policy,
        parameters=dict(settings.policy.parameters) if policy == settings.policy.name else {},
    )


def chosen(session: Session) -> dict[str, str]:
    """What admins set at run time, by key."""
    return {key: setting.value for key, setting in queries.settings(session).items()}


def overview(session: Session, top: Head, *, cycles: int, since_s: float) -> Overview:
    """How sodad fares, with its last ``cycles`` and the number of changes since an instant."""
    standings = queries.live_standings(session)
    return Overview(
        head=top,
        cycles=queries.recent_cycles(session, cycles),
        failed=queries.last_failed_cycle(session),
        states=dict(sorted(Counter(job.state for job in standings).items())),
        queues=_by_queue(standings),
        preemptions=queries.running_preemptions(session),
        changes=queries.action_counts(session, since_s),
        nodes=queries.nodes_seen(session),
    )


def _by_queue(standings: Sequence[queries.Standing]) -> dict[str, dict[str, int]]:
    queues: dict[int, Counter[str]] = {}
    for job in standings:
        if isinstance(queue := job.note.get("queue"), int) and queue >= 0:
            queues.setdefault(queue, Counter())[job.state] += 1
    return {str(queue): dict(sorted(counts.items())) for queue, counts in sorted(queues.items())}


def live_jobs(session: Session, top: Head, *, most: int = 0) -> LiveJobs:
    """Every live job, or the first ``most`` of them by id; 0 is all."""
    found = queries.live_jobs(session, most + 1 if most else 0)
    return LiveJobs(top, found[:most] if most else found, more=bool(most) and len(found) > most)


def story(session: Session, top: Head, job_id: int) -> Story:
    """The newest job of this id, with all that happened to it and its place among the live ones."""
    job = queries.find_job(session, job_id)
    if job is None:
        return Story(top, None)
    own = queries.Standing(job.state, job.gpus, job.note).position
    waiting = [other for other in queries.live_standings(session) if other.state == "PENDING"]
    before = [other for other in waiting if 0 <= other.position < own]
    return Story(
        head=top,
        job=job,
        runs=queries.runs_of(session, job),
        usage=queries.usage_of(session, job),
        preemptions=queries.preemptions_of(session, job),
        actions=queries.actions_of(session, job, MOST_CHANGES),
        waiting_before=len(before),
        gpus_before=sum(other.gpus for other in before),
        core_start=start_of(session, job.job_id, job.submit_s),
        core_fits=fits_of(session, job.job_id, job.submit_s),
        run_time=told_of(session, job.id),
    )
