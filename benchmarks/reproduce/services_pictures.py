"""Figures 12, 13, 16, 17 and 18 of SODA as pictures, by hour of the day, with its services."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.reproduce import services
from benchmarks.reproduce.simulation import Results, SimulationResult
from benchmarks.reproduce.soda import BUSY, NAMES, SYSTEMS, curves_of
from benchmarks.reproduce.soda_pictures import plain

_COLOURS = {"kelp-fifo": "#8a93a0", "kelp-drf": "#c2723a", "coda": "#2f6fb3", "soda": "#2d8a57"}
_HOURS = np.arange(25)


def draw(results: Results, cores: int, folder: Path, prefix: str) -> None:
    """Write ``PREFIX-hours.png`` (Figures 12, 13 and 18) and ``PREFIX-latency.png`` (16 and 17), over all seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("hours", _hours(results, cores)), ("latency", _latency(results))):
        figure.savefig(folder / f"{prefix}-{name}.png", dpi=110, metadata={"Software": None})


def _hours(results: Results, cores: int) -> Figure:
    figure = Figure(figsize=(9, 8), layout="constrained")
    rows = figure.subplots(3, 1, sharex=True)
    for system in SYSTEMS:
        found = services.runs(results, system)
        if not found:
            continue
        active, busy, on_cores = np.mean([curves_of(each).by_hour for each in found], axis=0)
        shown = (active / found[0].total_gpus, busy / np.maximum(active, 1e-9), on_cores / cores)
        for axes, values in zip(rows, shown, strict=True):
            axes.stairs(100 * values, _HOURS, baseline=None, color=_COLOURS[system], label=NAMES[system], lw=1.3)
    titles = ("12: GPU active rate", "13: GPU utilisation of active GPUs", "18: CPU active rate")
    for axes, title in zip(rows, titles, strict=True):
        axes.set_ylim(0, 101)
        plain(axes, f"Figure {title} (%)")
    rows[-1].set_xlabel("hour of the day; mean of all days and seeds")
    rows[0].legend(loc="lower left", ncols=4, fontsize=8, frameon=False)
    return figure


def _latency(results: Results) -> Figure:
    figure = Figure(figsize=(9, 7), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    before, after = services.runs(results, "coda"), services.runs(results, "soda")
    if before and after:
        names = services.record_of(after[0]).services
        places = np.arange(len(names))
        bars = (("on GPUs always", before, "coda"), ("SODA", after, "soda"))
        for number, (label, found, colour) in enumerate(bars):
            for hours, alpha, when in ((services.DAY, 1.0, "day"), (services.NIGHT, 0.55, "night")):
                at = places + 0.2 * (2 * number + (when == "night")) - 0.3
                values = services.p99_ms(found, hours)
                upper.bar(at, values, 0.2, color=_COLOURS[colour], alpha=alpha, label=f"{label}, by {when}")
        upper.set_xticks(places, names, rotation=30, ha="right", fontsize=8)
        upper.axhline(200, color="#a33", lw=1)
        upper.legend(fontsize=8, ncols=4, frameon=False, loc="upper left")
        upper.set_ylim(0, 240)
    plain(upper, "Figure 16: 99th percentile of latency (ms), target 200")
    shown = [(services.ABACUS[one][0], services.runs(results, one, "packed"), one) for one in services.PACKED]
    for place, (name, runs, colour) in enumerate([*shown, ("SODA", after, "soda")]):
        if runs:
            lower.bar(place, 100 * _mean(runs), 0.5, color=_COLOURS[colour])
        lower.text(place, 3, name, ha="center", fontsize=9, color="white")
    lower.set_xticks([])
    plain(lower, "Figure 17: GPU utilisation of active GPUs (%)")
    return figure


def _mean(found: tuple[SimulationResult, ...]) -> float:
    return float(np.mean([getattr(each.run.summary, BUSY) for each in found]))
