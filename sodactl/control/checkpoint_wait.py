"""Jobs that were asked to save their state and have not been requeued yet: who leaves slurm-soda waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.boot_time import read_boot_s
from slurm_soda.daemon.preemption.state_machine import ActivePreemption, lacks_requeue
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.preemptions import load_leaving
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.site_access import SiteAccess

_AFTER_GRACE_S = 10.0
"""Longest wait for what comes after a grace: the job leaves its nodes, and a living sodad requeues it."""

_LATE_S = 120.0
"""Without a sodad, a job that still runs so long after its grace has ignored the signal: nothing is expected of it."""

_POLL_S, _TELL_EVERY_S = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class UnfinishedCheckpoints:
    """What is under way at one instant."""

    job_ids: tuple[int, ...] = ()
    left_s: float = 0.0
    """How long the longest of their graces still lasts."""


def find_unfinished(
    session: Session, client: SlurmClient, jobs: Mapping[int, SlurmJob], site: SiteAccess
) -> UnfinishedCheckpoints:
    """Jobs whose preemption has begun and whose run goes on; with a living sodad also those that it has yet to requeue.

    Args:
        session: reads.
        client: says when slurmctld was started.
        jobs: all jobs that Slurm lists.
        site: where.
    """
    now_s = store_now_s(session, site.now_s())
    at, alive = Instant(now_s, now_s), is_daemon_alive(session, queries.latest_epoch(session), site)
    leaving = load_leaving(session, at)
    boot_s = read_boot_s(client, leaving, jobs)
    found = [each for each in leaving if _goes_on(each, jobs.get(each.job_id), at, boot_s, alive=alive)]
    ends_s = [_grace_end_s(preemption, site) for preemption in found]
    return UnfinishedCheckpoints(tuple(each.job_id for each in found), max([0.0, *(end_s - now_s for end_s in ends_s)]))


def _goes_on(preemption: ActivePreemption, job: SlurmJob | None, at: Instant, boot_s: float, *, alive: bool) -> bool:
    if job is None or not job.was_submitted_at(preemption.submit_s):
        return False
    if job.state == "COMPLETING":  # perhaps for its requeue: its request can be restored once it is in the queue
        return job.restarts <= preemption.restart + 1
    if job.restarts != preemption.restart:
        return False
    if job.state not in ("RUNNING", "SUSPENDED"):
        return alive and lacks_requeue(preemption, job, at, boot_s)
    if job.hints.checkpoint_signal in (None, "TERM"):
        return False  # its requeue sends the signal itself, and has not been sent
    return alive or at.now_s < max(preemption.deadline_s, preemption.created_s) + _LATE_S


def _grace_end_s(preemption: ActivePreemption, site: SiteAccess) -> float:
    return min(preemption.deadline_s, preemption.created_s + site.settings.preemption.max_grace_s)


def wait_for_checkpoints(
    site: SiteAccess, look: Callable[[], UnfinishedCheckpoints]
) -> tuple[UnfinishedCheckpoints, bool]:
    """Wait until each such job has ended or been requeued, at most as long as their graces last.

    Args:
        site: where.
        look: finds those that are under way now.

    Returns:
        Those that are left, and whether there was anything to wait for.
    """
    found = look()
    most_s, waited_s = found.left_s + _AFTER_GRACE_S, 0.0
    while found.job_ids and waited_s < most_s:
        if waited_s % _TELL_EVERY_S == 0.0:
            jobs = output.format_first(found.job_ids)
            output.warn(f"waiting for jobs that save their state ({jobs}): {most_s - waited_s:.0f} s at most")
        site.context.sleep(_POLL_S)
        waited_s += _POLL_S
        found = look()
    return found, waited_s > 0.0
