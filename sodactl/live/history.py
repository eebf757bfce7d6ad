"""``sodactl history``: what finished jobs used, how long they waited and ran, and who says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click

from slurm_soda.daemon.store.jobs.finished_jobs import finished_jobs
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import MOST_ROWS, STORED_NAME
from slurm_soda.sodactl.site_access import SiteAccess, on_site

DEFAULT_ROWS = 50

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@click.command()
@click.option("--job", "-j", "job_id", type=JOB_ID, help="Only this job.")
@click.option("--user", "-u", type=STORED_NAME, metavar="NAME", help="Only jobs of this user.")
@click.option("--since", metavar="TIME", help="Only jobs that ended since: 90m, 2h, 3d, 2026-11-20, 2026-11-20T14:30.")
@click.option(
    "--limit",
    type=click.IntRange(0, MOST_ROWS),
    help=f"The newest N; 0: all.  [default: {DEFAULT_ROWS}, with --json 0]",
)
@on_site
def history(
    site: SiteAccess, *, as_json: bool, job_id: int | None, user: str | None, since: str | None, limit: int | None
) -> None:
    """What finished jobs used and how long they waited.

    For root and SlurmUser, on the controller: it reads the store itself. Users find their own jobs with sacct.

    Run time is the sum of all runs of a job; queue time is the rest until its end, waits after preemptions included. CPU
    seconds and memory are from Slurm's accounting where it has them, else from the agents; GPU figures are from the agents.
    `sources` in --json says which.

    \b
    Examples:
      sodactl history --since 2h
      sodactl history --user alice --limit 0
      sodactl history --json | jq '[.jobs[].jct_s] | add / length'
    """  # noqa: D301 - click reads the control character
    since_s = None if since is None else parse_since(since, site.now_s())
    keep = (0 if as_json else DEFAULT_ROWS) if limit is None else limit
    with site.store() as store, store.read() as session:
        # One more than asked for shows whether something was left out.
        found = finished_jobs(session, job_id=job_id, user=user, since_s=since_s, limit=keep + 1 if keep else 0)
    rows = [asdict(job) for job in (found[-keep:] if keep else found)]
    document: Document = {"now_s": site.now_s(), "more": len(found) > len(rows), "jobs": rows}
    if as_json:
        output.print_json(document)
        return
    _draw(rows)
    if document["more"]:
        output.print_line(f"the newest {len(rows)}; --limit 0 shows all")


def parse_since(text: str, now_s: float) -> float:
    """Unix seconds of ``2h`` ago, or of a date and time in this machine's zone unless it names one.

    Raises:
        click.BadParameter: it is neither.
    """
    if span := _SPAN.fullmatch(text.strip()):
        return now_s - float(span[1]) * _UNIT_S[span[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is no time; use a span such as 90m, 2h or 3d, or a date such as 2026-11-20 or 2026-11-20T14:30",
            param_hint="--since",
        ) from None


def _draw(rows: Sequence[Document]) -> None:
    if not rows:
        output.print_line("no finished job")
        return
    titles = ("GPUs", "queue", "run", "GPU use", "GPU memory", "CPU time", "memory", "runs")
    columns = [
        Column("job", right=True),
        Column("user"),
        Column("name"),
        Column("state"),
        Column("ended"),
        *(Column(title, right=True) for title in titles),
    ]
    output.print_table(columns, [_cells(row) for row in rows])


def _cells(row: Document) -> list[str]:
    return [
        str(row["job_id"]),
        row["user"],
        row["name"],
        row["state"].lower(),
        output.format_instant(row["end_s"]),
        str(row["gpus"]),
        output.format_duration(row["queue_s"]),
        output.format_duration(row["run_s"]),
        output.format_percent(row["gpu_util_ratio"]),
        output.format_amount(row["gpu_memory_peak_mib"], "MiB"),
        output.format_duration(row["cpu_s"]),
        output.format_amount(row["memory_peak_mib"], "MiB"),
        str(row["runs"]),
    ]
