"""How much service past jobs took in the end: the distribution that a Gittins index is computed from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.queries import never_shared
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun

MAX_SAMPLES = 5000
"""This many samples tell enough, and more make decisions slow."""
MAX_JOBS_PER_OWNER = 500
"""The newest jobs of an owner: people change what they do."""
MIN_SAMPLES_PER_OWNER = 20


def completed_services_gpu_s(session: Session, per_owner: int = MAX_JOBS_PER_OWNER) -> list[float]:
    """Total service, GPUs x run time over all runs, of the newest GPU jobs that completed; ascending, in GPU seconds.

    Every owner has as many samples, spread evenly over his own jobs, so that one owner's jobs, however many they are, move
    no share of the distribution by more than one over the number of owners. Jobs that failed or were cancelled are left out:
    they do not tell how much they would have taken. So are jobs that ever shared a GPU, which took longer for it.
    """
    service = func.sum(JobRun.gpus * (JobRun.end_s - JobRun.start_s)).label("gpu_s")
    place = func.row_number().over(partition_by=Job.user, order_by=func.max(JobRun.end_s).desc()).label("place")
    jobs = (
        select(Job.user, service, place)
        .join(Job, Job.id == JobRun.job_pk)
        .where(Job.state == "COMPLETED", Job.gpus > 0, JobRun.end_s.is_not(None))
        .group_by(Job.id, Job.user)
        .having(never_shared())
        .subquery()
    )
    by_owner: dict[str, list[float]] = defaultdict(list)
    rows = session.execute(select(jobs.c.user, jobs.c.gpu_s).where(jobs.c.place <= per_owner))
    for owner, gpu_s in rows:
        if gpu_s > 0:
            by_owner[owner].append(float(gpu_s))
    return sorted(gpu_s for owned in _equally_many(list(by_owner.values())) for gpu_s in owned)


def _equally_many(owners: Sequence[list[float]]) -> list[list[float]]:
    """As many samples of each owner as one of them has, evenly spread over his own."""
    if not owners:
        return []
    most = max(map(len, owners))
    samples = min(most, max(MAX_SAMPLES // len(owners), MIN_SAMPLES_PER_OWNER))
    positions, ordered = range(1, 2 * samples, 2), [sorted(owned) for owned in owners]
    return [[own[at * len(own) // (2 * samples)] for at in positions] for own in ordered]
