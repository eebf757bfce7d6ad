"""The page's charts as PNG files, for places that show no HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from slurm_soda.demo.job_mix.gantt_chart import GPU_COUNTS, gpu_count_class
from slurm_soda.demo.job_mix.report_page import TITLES, headline_text, jct_steps, price
from slurm_soda.simulator.report.charts.palette import GPU_LIGHT, MARK_LIGHT

WAIT = "#cdd5df"
PREEMPTION: dict[str, Any] = {"linestyle": "none", "marker": "D", "color": MARK_LIGHT, "markersize": 4}
"""How the end of a run that was preempted is drawn."""

CURVE_COLOURS = {"stock": "#8a6d3b", "soda": "#0b7d75"}


def save_charts(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``gantt.png`` and ``jct.png``; the paths written."""
    paths = [folder / "gantt.png", folder / "jct.png"]
    for path, figure in zip(paths, figures(report), strict=True):
        figure.savefig(path, dpi=150)
    return paths


def figures(report: Mapping[str, Any]) -> tuple[Figure, Figure]:
    """The chart of both runs, job by job, and that of completion times."""
    return _gantt(report["runs"]), _curves(report["runs"])


def _gantt(runs: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    figure.suptitle(f"{headline_text(runs)}\n{price(runs)}", fontsize=12)
    axes = figure.subplots(1, 2, sharex=True)
    for axis, phase in zip(axes, ("stock", "soda"), strict=True):
        axis.set_title(TITLES[phase], fontsize=10)
        _rows(axis, runs[phase]["per_job"])
    handles: list[Artist] = [Patch(color=GPU_LIGHT[n], label=f"{n} GPU{'s' if n > 1 else ''}") for n in GPU_COUNTS]
    handles.append(Line2D([], [], color=WAIT, linewidth=2, label="waits"))
    handles.append(Line2D([], [], **PREEMPTION, label="preempted"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return figure


def _rows(axis: Axes, jobs: list[Mapping[str, Any]]) -> None:
    began_s = min(job["submit_s"] for job in jobs)
    for row, job in enumerate(jobs):
        axis.hlines(row, job["submit_s"] - began_s, job["end_s"] - began_s, color=WAIT, linewidth=2, zorder=1)
        spans = [(run["start_s"] - began_s, run["end_s"] - run["start_s"]) for run in job["runs"]]
        axis.broken_barh(spans, (row - 0.4, 0.8), color=GPU_LIGHT[gpu_count_class(job["gpus"])], zorder=2)
        ends = [run["end_s"] - began_s for run in job["runs"][:-1]]
        axis.plot(ends, [row] * len(ends), **PREEMPTION, zorder=3)
    axis.set_yticks(range(len(jobs)), [str(job["name"]) for job in jobs], fontsize=6)
    axis.set_ylim(len(jobs) - 0.5, -0.5)
    axis.set_xlabel("seconds since the first submission", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _curves(runs: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    for phase, colour in CURVE_COLOURS.items():
        corners = jct_steps(runs[phase])
        axis.plot(
            [x for x, _ in corners], [100 * y for _, y in corners], color=colour, label=TITLES[phase], linewidth=2
        )
    axis.set(xlabel="completion time (s)", ylabel="jobs completed (%)", xlim=(0, None), ylim=(0, 101))
    axis.grid(color="#dfe4ea", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    return figure
