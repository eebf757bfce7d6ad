"""The burst's charts: cores and GPUs over time under both, and how long jobs queued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slurm_soda.demo.cpu_burst.resource_usage import KINDS, cores_in_use, gpus_in_use

TITLES = {"stock": "Stock Slurm: one partition", "soda": "slurm-soda: pools"}
COLOURS = {"gpu": "#0b7d75", "cpu": "#b7a27a", "borrowed": "#e2b04a"}
LABELS = {"gpu": "training jobs", "cpu": "CPU jobs", "borrowed": "CPU jobs, borrowed"}
CHART_FILE = "burst.png"


def save_chart(report: Mapping[str, Any], folder: Path) -> Path:
    """Write ``burst.png``; its path."""
    figure = Figure(figsize=(12, 8.5), layout="constrained")
    figure.suptitle(str(report["headline"]))
    axes = figure.subplots(3, 2, sharey="row", gridspec_kw={"height_ratios": [3, 2, 3]})
    span_s = max(run["makespan_s"] for run in report["runs"].values())
    for column, phase in enumerate(("stock", "soda")):
        per_job = report["runs"][phase]["per_job"]
        axes[0][column].set_title(TITLES[phase], fontsize=11)
        _cores(axes[0][column], per_job, report["cluster"]["cores"], report["cpu_cores"][phase])
        _gpus(axes[1][column], per_job, report["cluster"]["gpus"])
        for row in (0, 1):
            axes[row][column].set_xlim(0, span_s)
        axes[1][column].set_xlabel("seconds since the first submission", fontsize=8)
        _queues(axes[2][column], per_job, report["longest_queue_s"])
    axes[0][0].set_ylabel("cores in use")
    axes[1][0].set_ylabel("GPUs in use")
    axes[2][0].set_ylabel("jobs started (%)")
    path = folder / CHART_FILE
    figure.savefig(path, dpi=150)
    return path


def _cores(axis: Axes, per_job: list[Mapping[str, Any]], cores: int, cpu_cores: int | None) -> None:
    steps = cores_in_use(per_job, cpu_cores)
    times = [at_s for at_s, _ in steps["gpu"]]
    levels = [[amount for _, amount in steps[kind]] for kind in KINDS]
    axis.stackplot(
        times, levels, step="post", colors=[COLOURS[kind] for kind in KINDS], labels=[LABELS[kind] for kind in KINDS]
    )
    aborted = [(run["end_s"], job) for job in per_job for run in job["runs"] if run["state"] == "PREEMPTED"]
    if aborted:
        began_s = min(job["submit_s"] for job in per_job)
        axis.plot(
            [at_s - began_s for at_s, _ in aborted],
            [cores * 1.03] * len(aborted),
            "v",
            color="#a33",
            markersize=5,
            label="a borrower gives back",
        )
    axis.axhline(cores, color="#8894a3", linewidth=0.8)
    axis.set_ylim(0, cores * 1.3)
    axis.legend(frameon=False, fontsize=7, loc="upper right", ncols=2)
    axis.spines[["top", "right"]].set_visible(False)


def _gpus(axis: Axes, per_job: list[Mapping[str, Any]], gpus: int) -> None:
    steps = gpus_in_use(per_job)
    axis.fill_between([x for x, _ in steps], [y for _, y in steps], step="post", color=COLOURS["gpu"], alpha=0.8)
    axis.axhline(gpus, color="#8894a3", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)


def _queues(axis: Axes, per_job: list[Mapping[str, Any]], longest_s: float) -> None:
    for kind, has_gpus in (("gpu", True), ("cpu", False)):
        waits = np.sort([job["queue_s"] for job in per_job if bool(job["gpus"]) is has_gpus])
        parts = 100 * np.arange(1, len(waits) + 1) / max(len(waits), 1)
        axis.step([0.0, *waits], [0.0, *parts], where="post", color=COLOURS[kind], linewidth=2, label=LABELS[kind])
    axis.set(xlabel="queued for at most (s)", xlim=(0, max(longest_s, 1.0)), ylim=(0, 101))
    axis.grid(color="#dfe4ea", linewidth=0.6)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
