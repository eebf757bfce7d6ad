"""``sodactl demo --pools``: a burst of CPU jobs, under stock Slurm and under pools."""

from __future__ import annotations

from typing import Any

from slurm_soda.demo.cpu_burst.burst_demo import run_burst_demo
from slurm_soda.demo.cpu_burst.burst_jobs import draw_burst
from slurm_soda.demo.cpu_burst.burst_settings import BurstSettings
from slurm_soda.demo.cpu_burst.report_page import ROWS, format_value
from slurm_soda.demo.report_files import PAGE, REPORT
from slurm_soda.sodactl import output
from slurm_soda.sodactl.containers.demo_progress import show_demo_progress
from slurm_soda.sodactl.output import Column


def run_pools_demo(settings: BurstSettings, *, as_json: bool) -> int:
    """Run the burst and show its report; 1 if something that the page promises does not hold."""
    with show_demo_progress(len(draw_burst(settings.seed, scale=settings.scale))) as watch:
        report = run_burst_demo(settings, watch)
    if as_json:
        output.print_json(report)
    else:
        _draw(report)
        output.print_line(f"page: {settings.out / PAGE}   report: {settings.out / REPORT}")
    return 0 if all(row["holds"] for row in report["verdicts"]) else 1


def _draw(report: dict[str, Any]) -> None:
    runs = report["runs"]
    columns = [Column(""), Column("stock Slurm", right=True), Column("pools", right=True)]
    rows = [
        [name, format_value(runs["stock"][key], unit), format_value(runs["soda"][key], unit)]
        for key, name, unit in ROWS
    ]
    output.print_table(columns, rows)
    output.print_line()
    columns = [Column(""), Column("measured", right=True), Column("at most", right=True), Column("holds")]
    output.print_table(
        columns,
        [
            [row["name"], f"{row['value']:.3g}", f"{row['at_most']:.3g}", "yes" if row["holds"] else "NO"]
            for row in report["verdicts"]
        ],
    )
    output.print_line()
    output.print_line(report["headline"])
