"""Rows without the texts that may name jobs and nodes which are private from a viewer."""

from __future__ import annotations

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.store.tables.scheduling import Job


def outline_job(job: Job, viewer: Viewer) -> Job:
    """Without what names other jobs and their nodes, where those are private."""
    shares = job.note.get("shares")
    if not viewer.private & {"jobs", "nodes"} or not isinstance(shares, dict) or "unguarded" not in shares:
        return job
    shown = {column.key: getattr(job, column.key) for column in Job.__table__.columns}
    return Job(**shown | {"note": job.note | {"shares": shares | {"unguarded": "operators are told which"}}})
