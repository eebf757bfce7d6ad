"""``sodactl demo --sharing``: jobs that share GPUs, against Tiresias and stock Slurm."""

from __future__ import annotations

from slurm_soda.demo.report_files import PAGE, REPORT
from slurm_soda.demo.sharing_mix.sharing_report import (
    TITLES,
    headline_text,
    run_sharing_demo,
    table_rows,
)
from slurm_soda.demo.sharing_mix.sharing_runs import SharingDemoSettings
from slurm_soda.sodactl import output
from slurm_soda.sodactl.containers.demo_progress import show_demo_progress
from slurm_soda.sodactl.output import Column


def show_sharing_demo(settings: SharingDemoSettings, *, as_json: bool) -> int:
    """Run it and show its report."""
    with show_demo_progress(settings.jobs, settings.phases) as watch:
        report = run_sharing_demo(settings, watch)
    if as_json:
        output.print_json(report)
        return 0
    columns = [
        Column(""),
        *(Column(TITLES[phase], right=True) for phase in report["runs"]),
        Column("change", right=True),
    ]
    output.print_table(columns, table_rows(report))
    output.print_line()
    output.print_line(headline_text(report))
    output.print_line(f"page: {settings.out / PAGE}   report: {settings.out / REPORT}")
    return 0
