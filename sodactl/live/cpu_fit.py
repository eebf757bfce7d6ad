"""``sodactl fit``: how many CPU cores GPU jobs asked for, got and needed, and what the next ones start with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from slurm_soda.daemon.store.cpu_fit_report import (
    CpuFitFilters,
    CpuFitGroup,
    CpuFitJob,
    CpuFitReport,
    group_cpu_fit_jobs,
)
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow
from slurm_soda.slurm_ext.hints.flags import CATEGORIES
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.history import parse_since
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.live.view_source import open_view_source
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import MOST_ROWS, STORED_NAME
from slurm_soda.sodactl.site_access import SiteAccess, on_site

DEFAULT_ROWS = 50

_SETTLE_REASON_TEXTS = {
    "best_fit": "best fit found",
    "measured": "best fit measured",
    "kept": "no better number than its own",
    "independent": "utilisation does not depend on cores",
    "idle": "GPUs hardly work, cannot be judged",
    "cut_short": "search given up",
}


@click.command()
@click.option(
    "--user",
    "-u",
    type=STORED_NAME,
    metavar="NAME",
    help="Only this user, and how many cores the user's next jobs start with.",
)
@click.option("--category", type=click.Choice(CATEGORIES), help="Only jobs with this --soda-category.")
@click.option("--model", type=STORED_NAME, metavar="NAME", help="Only jobs with this --soda-model.")
@click.option("--job", "-j", "job_id", type=JOB_ID, help="Only this job, with every measurement.")
@click.option("--since", metavar="TIME", help="Only jobs submitted since: 90m, 2h, 3d, 2026-11-20, 2026-11-20T14:30.")
@click.option("--jobs", "by_job", is_flag=True, help="One line for each job instead of one for each group.")
@click.option(
    "--limit", type=click.IntRange(0, MOST_ROWS), help=f"With --jobs the newest N; 0: all.  [default: {DEFAULT_ROWS}]"
)
@on_site
def fit(
    site: SiteAccess, *, as_json: bool, user: str | None, category: str | None, model: str | None, job_id: int | None,
    since: str | None, by_job: bool, limit: int | None,
) -> None:  # fmt: skip
    """How many CPU cores GPU jobs asked for, got and needed.

    ASKED is what users submitted, GIVEN what slurm-soda changed it to before the start, BEST the fewest cores with which
    the job's GPUs were as busy as they can be, found by a search while it ran. Groups show cores per GPU, single jobs cores
    per node. GPU USE is shown when the search began and with the best. Jobs are sorted into pools by their GPUs: small
    below 4, large from 4 on. A user whose ASKED is far from BEST asks for too many or too few cores.

    \b
    Examples:
      sodactl fit                         all users, by category and pool
      sodactl fit --user alice            one user, and what the next jobs start with
      sodactl fit --category cv --jobs    job by job
      sodactl fit --job 4711              every number of cores that was tried
    """  # noqa: D301 - click reads the control character
    since_s = None if since is None else parse_since(since, site.now_s())
    filters = CpuFitFilters(job_id, user, category, model, since_s)
    # Groups are of all jobs; a list of jobs is as long as a person reads.
    keep = (DEFAULT_ROWS if limit is None else limit) if by_job or limit is not None else 0
    with open_view_source(site) as source:
        document = _document(source.cores(filters, keep), site, filters, by_job=by_job)
    if as_json:
        output.print_json(document)
    else:
        _draw(document)


def _document(report: CpuFitReport, site: SiteAccess, filters: CpuFitFilters, *, by_job: bool) -> Document:
    document: Document = {"now_s": site.now_s(), "more": report.more}
    if by_job or filters.job_id is not None:
        document["jobs"] = [asdict(job) for job in report.jobs]
    else:
        document["groups"] = [asdict(group) for group in group_cpu_fit_jobs(report.jobs)]
    if filters.job_id is not None:
        document["fits"] = [_fit_keys(one) for one in report.fits]
        document["measurements"] = [_measured_keys(one) for one in report.measurements]
    if filters.user is not None:
        document["next"] = _next(report)
    return document


def _fit_keys(row: CpuFitRow) -> Document:
    keys = (
        "restart",
        "search",
        "node",
        "at_s",
        "start_cores",
        "cores",
        "most_cores",
        "gpus",
        "steps",
        "start_ratio",
        "utilisation_ratio",
        "reason",
    )
    return {key: getattr(row, key) for key in keys}


def _measured_keys(row: CpuMeasurementRow) -> Document:
    keys = (
        "restart",
        "search",
        "step",
        "node",
        "at_s",
        "cores",
        "gpus",
        "utilisation_ratio",
        "spread_ratio",
        "samples",
    )
    return {key: getattr(row, key) for key in keys}


def _next(report: CpuFitReport) -> Document:
    return {
        "earlier_fits": report.earlier_fits,
        "cores_per_gpu": {category: start.cores for category, start in report.next_starts.items()},
        "source": {category: start.source for category, start in report.next_starts.items()},
    }


def _draw(document: Document) -> None:
    if "groups" in document:
        _draw_groups(document["groups"])
    else:
        _draw_jobs(document["jobs"])
    if "measurements" in document:
        _draw_searches(document)
    if "next" in document:
        _draw_next(document["next"])
    if document["more"]:
        output.print_line("the newest only; --limit 0 shows all")


def _draw_groups(rows: Sequence[Document]) -> None:
    if not rows:
        output.print_line("no GPU job")
        return
    names = (
        "jobs",
        "fits",
        "asked",
        "given",
        "best",
        "GPU use at start",
        "with best",
        "GPU use in all",
        "median queue",
    )
    columns = [Column("user"), Column("category"), Column("pool"), *(Column(name, right=True) for name in names)]
    output.print_table(columns, [_group_cells(CpuFitGroup(**row)) for row in rows], title="cores per GPU")


def _group_cells(group: CpuFitGroup) -> list[str]:
    return [
        group.user,
        group.category or "-",
        group.pool,
        str(group.jobs),
        str(group.fits),
        _cores(group.asked_per_gpu),
        _cores(group.given_per_gpu),
        _cores(group.best_per_gpu),
        output.format_percent(group.start_ratio),
        output.format_percent(group.best_ratio),
        output.format_percent(group.gpu_util_ratio),
        output.format_duration(group.queue_median_s),
    ]


def _cores(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _draw_jobs(rows: Sequence[Document]) -> None:
    if not rows:
        output.print_line("no GPU job")
        return
    names = ("nodes", "GPUs", "asked", "given", "best", "GPU use at start", "with best", "queue")
    columns = [
        Column("job", right=True),
        Column("user"),
        Column("category"),
        Column("model"),
        Column("state"),
        *(Column(name, right=True) for name in names),
        Column("how it ended"),
    ]
    output.print_table(columns, [_job_cells(CpuFitJob(**row)) for row in rows], title="cores per node")


def _job_cells(job: CpuFitJob) -> list[str]:
    ended = _SETTLE_REASON_TEXTS.get(job.reason, job.reason) or (
        f"request left alone: {job.left_alone}" if job.left_alone else "-"
    )
    return [
        str(job.job_id),
        job.user,
        job.category or "-",
        job.model or "-",
        job.state.lower(),
        str(job.nodes),
        str(job.gpus),
        str(job.asked_cores),
        str(job.given_cores),
        output.format_amount(job.best_cores),
        output.format_percent(job.start_ratio),
        output.format_percent(job.best_ratio),
        output.format_duration(job.queue_s),
        ended,
    ]


def _draw_searches(document: Document) -> None:
    if not document["measurements"]:
        output.print_line("nothing was measured")
        return
    output.print_line()
    columns = [
        Column("search", right=True),
        Column("step", right=True),
        Column("node"),
        Column("ended"),
        Column("cores", right=True),
        Column("GPU use", right=True),
        Column("samples", right=True),
    ]
    output.print_table(columns, [_measured_cells(row) for row in document["measurements"]], title="measurements")


def _measured_cells(row: Document) -> list[str]:
    return [
        str(row["search"]),
        str(row["step"]),
        row["node"],
        output.format_instant(row["at_s"]),
        str(row["cores"]),
        f"{row['utilisation_ratio'] * 100:.1f} %",
        str(row["samples"]),
    ]


def _draw_next(upcoming: Document) -> None:
    output.print_line()
    output.print_line(f"The next job starts with so many cores per GPU ({upcoming['earlier_fits']} earlier fits):")
    told = {"category": "from earlier jobs", "default": "usual for the category"}
    output.print_fields(
        [(name, f"{cores}  {told[upcoming['source'][name]]}") for name, cores in upcoming["cores_per_gpu"].items()],
        indent=2,
    )
