"""How much service past jobs took in the end: the distribution that a Gittins index is computed from."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.tables.scheduling import Job, JobRun

MAX_JOBS = 5000
"""Jobs change with their users; this many of the newest tell enough."""


def completed_services_gpu_s(session: Session, limit: int = MAX_JOBS) -> list[float]:
    """Total service, GPUs x run time over all runs, of the newest GPU jobs that completed; ascending, in GPU seconds.

    Jobs that failed or were cancelled are left out: they do not tell how much they would have taken.
    """
    service = func.sum(JobRun.gpus * (JobRun.end_s - JobRun.start_s))
    query = (
        select(service)
        .join(Job, Job.id == JobRun.job_pk)
        .where(Job.state == "COMPLETED", Job.gpus > 0, JobRun.end_s.is_not(None))
        .group_by(Job.id)
        .order_by(func.max(JobRun.end_s).desc())
        .limit(limit)
    )
    return sorted(float(gpu_s) for gpu_s in session.scalars(query) if gpu_s > 0)
