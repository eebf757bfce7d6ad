"""Figures 12 to 15 and 18 of SODA as pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.reproduce.simulation import SimulationResult
from benchmarks.reproduce.soda import curves_of
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.report.charts.curves import UsageCurve
from slurm_soda.simulator.report.soda_figures import SodaCurves

_COLOURS = ("#8a93a0", "#c2723a", "#2f6fb3", "#2d8a57")
_DAY_S = 86_400.0
Systems = Mapping[str, Sequence[SimulationResult]]


def draw(systems: Systems, cores: int, folder: Path, prefix: str) -> None:
    """Write ``PREFIX-use.png`` (Figures 12, 13, 18; the first seed) and ``PREFIX-waits.png`` (14, 15; all seeds)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("use", _use(systems, cores)), ("waits", _waits(systems))):
        figure.savefig(folder / f"{prefix}-{name}.png", dpi=110, metadata={"Software": None})


def _use(systems: Systems, cores: int) -> Figure:
    figure = Figure(figsize=(9, 8), layout="constrained")
    rows = figure.subplots(3, 1, sharex=True)
    gpus = next(iter(systems.values()))[0].total_gpus
    shown: tuple[tuple[str, Callable[[SodaCurves], FloatColumn]], ...] = (
        ("Figure 12: GPU active rate (%)", lambda site: site.gpus_active.mean / gpus),
        ("Figure 13: GPU utilisation of active GPUs (%)", lambda site: _over(site.gpus_busy, site.gpus_active)),
        ("Figure 18: CPU active rate (%)", lambda site: site.cpus_active.mean / cores),
    )
    for axes, (title, take) in zip(rows, shown, strict=True):
        for colour, (name, found) in zip(_COLOURS, systems.items(), strict=True):
            site = curves_of(found[0])
            line = "--" if name == "SODA" else "-"  # it lies on CODA nearly everywhere
            days = site.gpus_active.edges_s / _DAY_S
            axes.stairs(100 * take(site), days, baseline=None, color=colour, label=name, lw=1.1, ls=line)
        axes.set_ylim(0, 101)
        plain(axes, title)
    rows[-1].set_xlabel("days since the first submission, a Monday; seed 1")
    rows[0].legend(loc="lower left", ncols=4, fontsize=8, frameon=False)
    return figure


def _waits(systems: Systems) -> Figure:
    figure = Figure(figsize=(9, 7), layout="constrained")
    places = figure.subplots(2, 2)
    for colour, (name, found) in zip(_COLOURS, systems.items(), strict=True):
        sites = [curves_of(each) for each in found]
        for axes, waits_s in (
            (places[0, 0], [site.gpu_wait_s for site in sites]), (places[0, 1], [site.cpu_wait_s for site in sites])
        ):  # fmt: skip
            _cdf(axes, np.maximum(np.concatenate(waits_s), 1.0), colour, name)
        users = np.mean([site.user_p99_s for site in sites], axis=0)
        places[1, 0].plot(np.arange(1, len(users) + 1), np.maximum(users, 1.0) / 3600, "o-", ms=3, color=colour, lw=1)
        if name in ("CODA", "SODA"):
            _cdf(places[1, 1], np.concatenate([site.more_cores for site in sites]), colour, name)
    for axes, title in ((places[0, 0], "GPU"), (places[0, 1], "CPU")):
        axes.set_xscale("log")
        axes.set_xlabel("seconds until the first start; under 1 s at the left edge")
        plain(axes, f"Figure 15a: {title} jobs started (%)")
    places[1, 0].set_yscale("log")
    places[1, 0].set_xlabel("users by number of jobs, most first")
    plain(places[1, 0], "Figure 14: 99th percentile of waits (hours)")
    places[1, 1].set_xlabel("cores for each GPU: given less asked for")
    plain(places[1, 1], "Figure 15b: training jobs (%)")
    places[0, 0].legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def _cdf(axes: Axes, values: FloatColumn, colour: str, name: str) -> None:
    known = np.sort(values[np.isfinite(values)])
    picked = known[np.linspace(0, len(known) - 1, min(len(known), 2_000)).round().astype(int)]
    axes.plot(picked, 100 * np.searchsorted(known, picked, side="right") / len(known), color=colour, label=name, lw=1.3)


def _over(part: UsageCurve, whole: UsageCurve) -> FloatColumn:
    return np.divide(part.mean, whole.mean, out=np.zeros_like(part.mean), where=whole.mean > 0)


def plain(axes: Axes, title: str) -> None:
    """A title at the left, a light grid, and no frame at the top and right."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(color="#dfe4ea", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
