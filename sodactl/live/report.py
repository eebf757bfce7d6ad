"""``sodactl report``: what jobs used of what they held, and what would be better; for every user's own jobs."""

from __future__ import annotations

from dataclasses import asdict

import click
from sqlalchemy.orm import Session

from slurm_soda.daemon.job_reports.build import MAX_LINES, read_job_lines, read_job_report
from slurm_soda.daemon.job_reports.model import JobLines, JobReport
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.live.report_text import print_job_lines, print_report
from slurm_soda.sodactl.live.view_source import ViewRequest, ViewSource, open_view_source
from slurm_soda.sodactl.simulation.inputs.parameter_types import STORED_NAME
from slurm_soda.sodactl.site_access import SiteAccess, on_site

DEFAULT_ROWS = 20


@click.command()
@click.argument("job_id", metavar="[JOB]", type=JOB_ID, required=False)
@click.option("--user", "-u", type=STORED_NAME, metavar="NAME", help="The jobs of this user instead of your own.")
@click.option("--all", "-a", "everybody", is_flag=True, help="The jobs of all users that you may see.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_LINES), default=DEFAULT_ROWS, show_default=True, help="The newest N jobs."
)
@on_site
def report(
    site: SiteAccess, *, as_json: bool, job_id: int | None, user: str | None, everybody: bool, limit: int
) -> None:
    """What a job used of what it held, and what would be better.

    Of one JOB, running or ended: each GPU's use, memory and power with its pauses, GPUs that were never used, CPU cores and
    memory against what was asked for, why it waited, what preemption and sharing did, and advice, each with its figure.
    Without JOB: your newest jobs, one a line.

    GPUs are read every 2 s on the job's nodes. Whole figures reach sodad once a minute while a job runs, and at its end.

    \b
    Examples:
      sodactl report                 my newest jobs
      sodactl report 4711            one of them, also while it runs
      sodactl report 4711 --json | jq '.runs[-1].nodes[].gpus[].util_ratio'
      trap 'sodactl report $SLURM_JOB_ID' EXIT     in a job's script: at its end, in its own output
    """  # noqa: D301 - click reads the control character
    if job_id is not None and (user is not None or everybody):
        raise click.UsageError("--user and --all are for the list of jobs; leave them out with JOB")
    if user is not None and everybody:
        raise click.UsageError("--user names one user, --all means all of them; give one of the two")
    with open_view_source(site) as source:
        if job_id is not None:
            found = _one(source, site, job_id)
        else:
            lines = _lines(source, site, user, limit, everybody=everybody)
    if as_json:
        output.print_json(asdict(found if job_id is not None else lines))
    elif job_id is not None:
        print_report(found)
    else:
        print_job_lines(
            lines, with_users=everybody or any(line.job.user != lines.jobs[0].job.user for line in lines.jobs)
        )


def _one(source: ViewSource, site: SiteAccess, job_id: int) -> JobReport:
    def read(session: Session) -> JobReport:
        job = queries.find_job(session, job_id)
        if job is None:
            raise StoreError(f"sodad knows no job {job_id}; `sodactl report` lists yours")
        return read_job_report(session, job, site.now_s())

    return source.read(ViewRequest(JobReport, read, f"/v1/job-reports/{job_id}", {}))


def _lines(source: ViewSource, site: SiteAccess, user: str | None, limit: int, *, everybody: bool) -> JobLines:
    """Who may read the store itself is shown all users' jobs unless one is named; sodad knows who asks."""

    def read(session: Session) -> JobLines:
        return read_job_lines(session, site.now_s(), limit, user=user)

    query = {"limit": str(limit)} | ({"user": user} if user else {}) | ({"everybody": "true"} if everybody else {})
    return source.read(ViewRequest(JobLines, read, "/v1/job-reports", query))
