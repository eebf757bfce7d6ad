"""``sodactl demo --services``: a day of an inference service amid training jobs."""

from __future__ import annotations

from slurm_soda.demo.report_files import PAGE, REPORT
from slurm_soda.demo.services_day.day_jobs import draw_day_jobs
from slurm_soda.demo.services_day.day_report import (
    TITLES,
    headline_text,
    run_services_demo,
    table_rows,
    unmet,
)
from slurm_soda.demo.services_day.day_runs import PHASES
from slurm_soda.demo.services_day.day_settings import DaySettings
from slurm_soda.sodactl import output
from slurm_soda.sodactl.containers.demo_progress import show_demo_progress
from slurm_soda.sodactl.output import Column


def show_services_demo(settings: DaySettings, *, as_json: bool) -> int:
    """Run it and show its report; 1 if the day did not show what it was to show."""
    with show_demo_progress(len(draw_day_jobs(settings.seed, settings.day_s)), PHASES) as watch:
        report = run_services_demo(settings, watch)
    missed = unmet(report)
    if as_json:
        output.print_json(report)
        return int(bool(missed))
    columns = [Column(""), *(Column(title, right=True) for title in TITLES.values()), Column("", right=True)]
    output.print_table(columns, table_rows(report))
    output.print_line()
    output.print_line(headline_text(report))
    for line in missed:
        output.warn(line)
    output.print_line(f"page: {settings.out / PAGE}   report: {settings.out / REPORT}")
    return int(bool(missed))
