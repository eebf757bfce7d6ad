"""``sodactl demo --arrays``: a burst of CPU jobs, under stock Slurm and under arrays."""

from __future__ import annotations

from typing import Any

from slurm_soda.demo.burst.mix import draw
from slurm_soda.demo.burst.page import ROWS, value_text
from slurm_soda.demo.burst.settings import BurstSettings
from slurm_soda.demo.burst.story import PAGE, REPORT, tell
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column
from slurm_soda.sodactl.watching import watching


def burst(settings: BurstSettings, *, as_json: bool) -> int:
    """Run the burst and show its report; 1 if something that the page promises does not hold."""
    with watching(len(draw(settings.seed, scale=settings.scale))) as watch:
        report = tell(settings, watch)
    if as_json:
        output.print_json(report)
    else:
        _draw(report)
        output.print_line(f"page: {settings.out / PAGE}   report: {settings.out / REPORT}")
    return 0 if all(row["holds"] for row in report["verdicts"]) else 1


def _draw(report: dict[str, Any]) -> None:
    runs = report["runs"]
    columns = [Column(""), Column("stock Slurm", right=True), Column("arrays", right=True)]
    rows = [
        [name, value_text(runs["stock"][key], unit), value_text(runs["soda"][key], unit)] for key, name, unit in ROWS
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
