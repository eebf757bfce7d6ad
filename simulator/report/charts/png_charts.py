"""The page's charts as PNG files, for places that show no HTML."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.charts.curves import Distribution, log_bounds, step_corners
from slurm_soda.simulator.report.charts.gantt import (
    GPU_COUNT_CLASSES,
    GPU_COUNT_LABELS,
    GanttBar,
    GanttChart,
    gpu_count_class,
)
from slurm_soda.simulator.report.charts.palette import (
    GPU_LIGHT,
    INK_FROM_GPUS,
    LIGHT,
    MARK_LIGHT,
    STROKES,
    hue_index,
    line_width,
    stroke_index,
)
from slurm_soda.simulator.report.comparison_table import percent_text
from slurm_soda.simulator.report.page import ReportContent
from slurm_soda.simulator.report.run_results import PolicyRuns
from slurm_soda.simulator.report.time_text import axis_unit, log_ticks, tick_step

_GRID = "#dfe4ea"
_SOFT = "#5b6877"
_DPI = 150
_NAMED_RATIO = 0.02
"""A bar of this part of the chart's width has room for the beginning of a job's name."""


def save_png_charts(page: ReportContent, folder: Path) -> list[Path]:
    """Write ``jct.png``, ``queue.png``, ``utilisation.png`` (a cluster with GPUs) and of each small run a Gantt chart.

    Returns the paths, in that order; the Gantt chart of one policy is ``gantt.png``, of several ``gantt-POLICY.png``.

    Raises:
        SimulatorError: a file cannot be written.
    """
    figures = {
        "jct.png": _distributions(page, "jct", "completion time (JCT)"),
        "queue.png": _distributions(page, "queue", "time waited"),
    }
    if page.gpus:
        figures["utilisation.png"] = _strips(page)
    for row in page.rows:
        lanes = row.runs[0].lanes
        if lanes is not None:
            name = "gantt.png" if len(page.rows) == 1 else f"gantt-{row.policy}.png"
            figures[name] = _gantt(lanes, f"{row.policy}: {page.about}")
    for name, figure in figures.items():
        write_atomically(folder / name, png_bytes(figure))
    return [folder / name for name in figures]


def png_bytes(figure: Figure) -> bytes:
    """The file's bytes, the same wherever matplotlib draws the same."""
    drawn = BytesIO()
    # Without its own version in the file matplotlib writes the same bytes everywhere that it draws the same.
    figure.savefig(drawn, dpi=_DPI, format="png", metadata={"Software": None})
    return drawn.getvalue()


def _line_style(number: int, lines: int) -> dict[str, Any]:
    parts = STROKES[stroke_index(number)]
    # Widths and strokes of the page are in pixels, those of matplotlib in points and in widths.
    points = 0.75 * line_width(number, lines)
    stroked = (0, tuple(0.75 * part / points for part in parts)) if parts else "-"
    return {"color": LIGHT[hue_index(number)], "linestyle": stroked, "linewidth": points}


def plain_axes(axes: Axes) -> None:
    """A light grid behind what is drawn, and no frame above and to the right."""
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _distributions(page: ReportContent, which: str, what: str) -> Figure:
    found: list[Distribution] = [getattr(row, which) for row in page.rows]
    low_s, high_s = log_bounds(found)
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for number, (row, steps) in enumerate(zip(page.rows, found, strict=True)):
        line = [*step_corners(steps, low_s), (high_s, float(steps.part[-1]))]
        axes.plot([x for x, _ in line], [100 * y for _, y in line], label=row.policy, **_line_style(number, len(found)))
    axes.set_xscale("log")
    ticks = log_ticks(low_s, high_s)
    axes.set_xticks([seconds for seconds, _ in ticks], [text for _, text in ticks])
    axes.set_xticks([], minor=True)
    edge = f"; under {ticks[0][1]} at the left edge" if which == "queue" else ""
    axes.set(xlabel=f"{what}, logarithmic{edge}", ylabel="jobs (%)", xlim=(low_s, high_s), ylim=(0, 101))
    plain_axes(axes)
    title_axes(axes, f"Jobs by {what}", page.about)
    figure.legend(loc="outside right center", frameon=False, fontsize=9, handlelength=3.2)
    return figure


def title_axes(axes: Axes, title: str, about: str) -> None:
    """A title, and below it what it is about, in small letters."""
    axes.set_title(title, fontsize=12, loc="left", pad=22)
    axes.annotate(about, (0, 1), (0, 8), "axes fraction", "offset points", fontsize=8.5, color=_SOFT)


def _time_axis(axes: Axes, span_s: float) -> None:
    span_s = span_s or 1.0
    unit, size_s = axis_unit(span_s)
    step = tick_step(span_s / size_s)
    ticks = [step * at for at in range(int(span_s / size_s / step + 1e-9) + 1)]
    axes.set_xlim(0, span_s / size_s)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(f"time since the first submission ({unit})")


def _strips(page: ReportContent) -> Figure:
    """One band a policy on one clock; of several seeds the first."""
    rows: Sequence[PolicyRuns] = page.rows
    span_s = max(float(row.runs[0].gpus.edges_s[-1]) for row in rows)
    _, size_s = axis_unit(span_s)
    figure = Figure(figsize=(8, 1.6 + 0.75 * len(rows) + (1.2 if len(rows) == 1 else 0)), layout="constrained")
    bands = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for number, (axes, row) in enumerate(zip(bands, rows, strict=True)):
        use = row.runs[0].gpus
        axes.stairs(100 * use.mean / page.gpus, use.edges_s / size_s, fill=True, color=LIGHT[hue_index(number)])
        axes.set(ylim=(0, 101), yticks=(0, 50, 100))
        axes.tick_params(labelsize=8)
        plain_axes(axes)
        text = f"{row.policy}\n{percent_text(row.mean('gpu_util_ratio'))}"
        axes.text(1.01, 0.5, text, transform=axes.transAxes, va="center", fontsize=9)
    title_axes(bands[0], f"GPUs in use, % of {page.gpus:,}; right: over the makespan", page.about)
    _time_axis(bands[-1], span_s)
    return figure


def _gantt(lanes: GanttChart, about: str) -> Figure:
    _, size_s = axis_unit(lanes.span_s or 1.0)
    figure = Figure(figsize=(11, min(12.0, 1.8 + 0.16 * len(lanes.names))), layout="constrained")
    axes = figure.subplots()
    for bar in lanes.bars:
        _bar(axes, bar, size_s, lanes.span_s)
    _lane_names(axes, lanes)
    _time_axis(axes, lanes.span_s)
    axes.spines[["top", "right"]].set_visible(False)
    title_axes(axes, "Who held which GPU", about)
    handles: list[Any] = [
        Rectangle((0, 0), 1, 1, facecolor=GPU_LIGHT[n], label=GPU_COUNT_LABELS[n]) for n in GPU_COUNT_CLASSES
    ]
    handles += axes.plot([], [], color=MARK_LIGHT, linewidth=2, label="stopped: preempted, or its node failed")
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return figure


def _bar(axes: Axes, bar: GanttBar, size_s: float, span_s: float) -> None:
    left, right, shade = bar.start_s / size_s, bar.end_s / size_s, gpu_count_class(bar.gpus)
    box = Rectangle((left, bar.lane), right - left, bar.lanes, facecolor=GPU_LIGHT[shade], edgecolor="white", lw=0.5)
    axes.add_patch(box)
    if bar.stopped:
        axes.vlines(right, bar.lane + 0.1, bar.lane + bar.lanes - 0.1, color=MARK_LIGHT, linewidth=1.2, zorder=3)
    if bar.end_s - bar.start_s >= _NAMED_RATIO * span_s:
        ink = "white" if shade >= INK_FROM_GPUS else "black"
        middle = bar.lane + bar.lanes / 2
        axes.text(left, middle, f" {bar.label}", fontsize=5, color=ink, va="center", clip_path=box, clip_on=True)


def _lane_names(axes: Axes, lanes: GanttChart) -> None:
    count = len(lanes.names)
    axes.set_ylim(count, 0)
    if lanes.first_of_node:
        firsts = [lane for lane in lanes.first_of_node if lane < count]
        axes.hlines(firsts, 0, 1, transform=axes.get_yaxis_transform(), color=_GRID, linewidth=0.8, zorder=0)
        ends = [*firsts[1:], count]
        names = [lanes.names[lane].split(":")[0] for lane in firsts]
        axes.set_yticks([(a + b) / 2 for a, b in zip(firsts, ends, strict=True)], names, fontsize=7)
        axes.tick_params(axis="y", length=0)
        axes.set_ylabel("node; one lane a GPU" if lanes.each == 1 else f"node; {lanes.each} lanes a GPU")
    else:
        axes.set_ylabel("GPU")
