"""Jobs that ran lately, as the derivation of shares wants them."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_soda.daemon.store.cores_schema import CoreFitted
from slurm_soda.daemon.store.schema import Job, Run
from slurm_soda.policies.arrays.history import PastJob
from slurm_soda.slurm_ext.hostlist import expand
from sqlalchemy import func, select
from sqlalchemy.orm import Session


def past_jobs(session: Session, *, since_s: float, now_s: float, gpu_types: Mapping[str, str]) -> list[PastJob]:
    """Jobs with a run that ended after ``since_s`` or still goes on, by the store's key.

    Args:
        gpu_types: GPU type by node name; a job is of the type of the node where it ran last.
    """
    until_s = func.coalesce(Run.end_s, now_s)
    ran = (
        select(Run.job_pk, func.sum(until_s - Run.start_s).label("run_s"), func.max(Run.id).label("last"))
        .where(until_s > since_s)
        .group_by(Run.job_pk)
        .subquery()
    )
    rows = session.execute(
        select(Job.job_id, Job.submit_s, Job.gpus, Job.nodes, Job.cpus, ran.c.run_s, Run.node_names)
        .join(ran, ran.c.job_pk == Job.id)
        .join(Run, Run.id == ran.c.last)
        .order_by(Job.id)
    ).all()
    fits = _fits(session)
    return [
        PastJob(
            gpus=row.gpus,
            nodes=max(row.nodes, 1),
            cpus=row.cpus,
            run_s=max(row.run_s, 0.0),
            best_cores=fits.get((row.job_id, row.submit_s)),
            gpu_type=next((gpu_types[node] for node in expand(row.node_names) if node in gpu_types), ""),
        )
        for row in rows
    ]


def _fits(session: Session) -> dict[tuple[int, float], int]:
    """Cores on each node that the newest search of a job ended on; of its nodes the one that wants most."""
    found: dict[tuple[int, float], tuple[float, int]] = {}
    for fit in session.execute(select(CoreFitted.job_id, CoreFitted.submit_s, CoreFitted.search, CoreFitted.cores)):
        if fit.submit_s is not None and fit.cores > 0:
            key = (fit.job_id, fit.submit_s)
            found[key] = max(found.get(key, (-1, 0)), (fit.search, fit.cores))
    return {key: cores for key, (_, cores) in found.items()}
