"""Which job of the store is which job of Slurm."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SodaError


def drop_stored_job_of_reused_id(view: JobDetailView, record: SlurmJob | None) -> JobDetailView:
    """The store's view if it is of the job that Slurm lists; without the job if that is a later one of its id."""
    if view.job is not None and record is not None and not record.was_submitted_at(view.job.submit_s):
        return JobDetailView(view.head, None)
    return view


def unknown_job_error(job_id: int, trouble: str) -> SodaError:
    """That nobody knows a job. ``trouble``: why Slurm told nothing; empty if it did answer."""
    if trouble:
        return SodaError(f"the store does not know job {job_id}, and {trouble}")
    return SodaError(f"neither Slurm nor the store knows job {job_id}; `sodactl jobs` lists jobs")


def find_stored_job(jobs: Iterable[Job], record: SlurmJob) -> Job | None:
    """The newest of the store's jobs that this record is of."""
    own = [job for job in jobs if job.job_id == record.job_id and record.was_submitted_at(job.submit_s)]
    return max(own, key=lambda job: job.submit_s, default=None)
