"""Which job of the store is which job of Slurm, and which one a command means."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.sodactl.site_access import CommandContext

_MOST_JOB_ID = 2**32 - 1
"""Slurm's own limit."""
_TASK = re.compile(r"[1-9][0-9]{0,9}_[0-9]{1,9}")


class _JobId(click.ParamType[int]):
    """A job's number, or ``14_2``, a task of an array that Slurm lists; says what to give instead of anything else."""

    name = "job id"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        text = str(value).strip()
        if text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_JOB_ID:
            return int(text)
        if _TASK.fullmatch(text):
            return self._number_of(text, param, ctx)
        remedy = "give its number, such as 4711; `sodactl jobs` lists jobs"
        return self.fail(f"{value!r} is not a valid job id; {remedy}", param, ctx)

    def _number_of(self, task: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Each task has a number of its own once it no longer waits with others; the last one has the array's."""
        outside = (ctx.find_object(CommandContext) if ctx else None) or CommandContext()
        array, _, index = task.partition("_")
        try:
            jobs = outside.connect(Settings()).jobs()
        except SlurmError as error:
            return self.fail(f"{task} is a task of an array, and Slurm is asked for its number: {error}", param, ctx)
        tasks = {job.array_task: job for job in jobs if job.array_job_id == int(array)}
        if index in tasks:
            return tasks[index].job_id
        rest = next((name for name, job in tasks.items() if job.array_rest), "")
        told = (
            f"tasks {rest} of it wait as one job; {array} means whichever of them comes first"
            if rest
            else "give the number that it had; `sodactl history` lists jobs"
        )
        return self.fail(f"Slurm lists no task {index} of array {array} alone: {told}", param, ctx)


JOB_ID = _JobId()


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
