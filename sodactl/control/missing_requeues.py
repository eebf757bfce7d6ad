"""Jobs that saved their state and ended for a preemption while no sodad was there to requeue them.

Slurm forgets an ended job after MinJobAge, and then nobody can requeue it any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.boot_time import read_boot_s
from slurm_soda.daemon.preemption.state_machine import lacks_requeue
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.preemptions import load_leaving
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.write.job_changes import lift_end_change, requeue_change
from slurm_soda.sodactl.control.manual_changes import ManualChange


def missing_requeues(
    session: Session, client: SlurmClient, jobs: Mapping[int, SlurmJob], why: str, now_s: float
) -> list[ManualChange]:
    """The requeue of each such job, followed by the end of its lift, which it would have again.

    Args:
        session: reads.
        client: says when slurmctld was started.
        jobs: all jobs that Slurm lists.
        why: for the record of changes.
        now_s: Unix seconds.
    """
    at = _by_wall_clock(now_s)
    leaving = load_leaving(session, at)
    boot_s = read_boot_s(client, leaving, jobs)
    found = [each for each in leaving if lacks_requeue(each, jobs.get(each.job_id), at, boot_s)]
    lifted = queries.recorded_lifts(session, [preemption.job_id for preemption in found])
    changes: list[ManualChange] = []
    for preemption in found:
        job_id, submit_s = preemption.job_id, preemption.submit_s
        reason = f"{why}: it saved its state and ended ({jobs[job_id].exit_code}) for: {preemption.reason}"
        requeue = requeue_change(job_id, reason, ended=True)
        changes.append(ManualChange(requeue, submit_s, preemption_id=preemption.pk))
        if job_id in lifted:
            changes.append(ManualChange(lift_end_change(job_id, why), submit_s))
    return changes


def may_lack_requeue(session: Session, *, since_s: float, now_s: float) -> bool:
    """Whether a job that was to be preempted may still end after ``since_s`` because of that."""
    return any(preemption.deadline_s >= since_s for preemption in load_leaving(session, _by_wall_clock(now_s)))


def _by_wall_clock(now_s: float) -> Instant:
    """A command lives too briefly for its clock to be set: both of its clocks are the one by which the store dates."""
    return Instant(now_s, now_s)
