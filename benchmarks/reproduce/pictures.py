"""Figures 10, 11 and 13 of Tiresias, as the pictures of reports."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.reproduce.simulation import SimulationResult
from slurm_soda.simulator.report.charts.png_charts import save_png_charts
from slurm_soda.simulator.report.page import ReportContent
from slurm_soda.simulator.report.run_results import PolicyRuns


def draw(
    lines: Sequence[tuple[str, list[SimulationResult]]], about: str, wanted: Sequence[str], folder: Path, prefix: str
) -> None:
    """Write some of a report's pictures as ``PREFIX-NAME.png``; a line is a name and the runs of all seeds.

    Raises:
        SimulatorError: a file cannot be written.
    """
    rows = tuple(PolicyRuns(name, tuple(replace(each.run, policy=name) for each in found)) for name, found in lines)
    story = ReportContent(rows, about, lines[0][1][0].total_gpus)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as draft:
        save_png_charts(story, Path(draft))
        for name in wanted:
            (folder / f"{prefix}-{name}.png").write_bytes((Path(draft) / f"{name}.png").read_bytes())
