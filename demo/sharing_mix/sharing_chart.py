"""The sharing demo's runs as a picture: a row a job, the time as a guest in another colour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from slurm_soda.demo.job_mix.charts import PREEMPTION, WAIT

OWN, GUEST = "#0b7d75", "#d0692c"


def save_chart(report: Mapping[str, Any], path: Path) -> None:
    """Write it as PNG."""
    runs = report["runs"]
    figure = Figure(figsize=(5 * len(runs) + 2, 6.5), layout="constrained")
    axes = figure.subplots(1, len(runs), sharex=True, squeeze=False)[0]
    for axis, (phase, run) in zip(axes, runs.items(), strict=True):
        axis.set_title(f"{phase}: {run['avg_jct_s']:.0f} s on average", fontsize=10)
        _rows(axis, run)
    handles: list[Artist] = [
        Patch(color=OWN, label="has its GPUs, or hosts there"),
        Patch(color=GUEST, label="is a guest"),
        Line2D([], [], color=WAIT, linewidth=2, label="waits"),
        Line2D([], [], **PREEMPTION, label="stopped, starts again"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _rows(axis: Axes, run: Mapping[str, Any]) -> None:
    jobs = run["per_job"]
    began_s = min(job["submit_s"] for job in jobs)
    for row, job in enumerate(jobs):
        axis.hlines(row, job["submit_s"] - began_s, job["end_s"] - began_s, color=WAIT, linewidth=2, zorder=1)
        for at, one in enumerate(job["runs"]):
            colour = GUEST if _is_guest(run, job, at) else OWN
            axis.broken_barh(
                [(one["start_s"] - began_s, one["end_s"] - one["start_s"])], (row - 0.4, 0.8), color=colour
            )
        ends = [one["end_s"] - began_s for one in job["runs"][:-1]]
        axis.plot(ends, [row] * len(ends), **PREEMPTION, zorder=3)
    axis.set_yticks(range(len(jobs)), [str(job["name"]) for job in jobs], fontsize=6)
    axis.set_ylim(len(jobs) - 0.5, -0.5)
    axis.set_xlabel("seconds since the first submission", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _is_guest(run: Mapping[str, Any], job: Mapping[str, Any], at: int) -> bool:
    """Whether this run of a job was one on GPUs of others."""
    return any(share["job_id"] == job["job_id"] and share["restart"] == at for share in run["shares"])
