"""The day as a picture: load and placement, latency against the target, for both phases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slurm_soda.demo.services_day.day_report import DEVICE_NAMES, TITLES

COLOURS = {"cpu": "#d0692c", "gpu": "#0b7d75"}


def save_chart(report: Mapping[str, Any], path: Path) -> None:
    """Write it as PNG."""
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, (phase, title) in enumerate(TITLES.items()):
        service = report["runs"][phase]["service"]
        _load(axes[0][column], service, f"{title}: GPU held {service['gpu_part']:.0%} of the day")
        _latency(axes[1][column], service, report["target_ms"])
    axes[0][0].set_ylabel("queries per second")
    axes[1][0].set_ylabel("p99 latency (ms)")
    axes[0][1].legend(loc="upper right", frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _load(axis: Axes, service: Mapping[str, Any], title: str) -> None:
    axis.set_title(title, fontsize=10)
    top = max(part["load_qps"] for part in service["parts"])
    seen: set[str] = set()
    for run in service["runs"]:
        name = run["device"]
        label = "" if name in seen else f"an instance on a {DEVICE_NAMES[name]}"
        seen.add(name)
        axis.axvspan(run["start_s"], run["end_s"], color=COLOURS[name], alpha=0.25, label=label or None)
    at_s = [part["at_s"] for part in service["parts"]]
    axis.plot(at_s, [part["load_qps"] for part in service["parts"]], color="#333333", label="load")
    axis.set_ylim(0, 1.1 * top)
    axis.spines[["top", "right"]].set_visible(False)


def _latency(axis: Axes, service: Mapping[str, Any], target_ms: float) -> None:
    at_s = [part["at_s"] for part in service["parts"]]
    axis.plot(at_s, [part["p99_ms"] for part in service["parts"]], color="#333333")
    axis.axhline(target_ms, color="#b03030", linewidth=1, linestyle="--")
    axis.set_yscale("log")
    axis.set_xlabel("seconds of the day")
    axis.spines[["top", "right"]].set_visible(False)
