"""A Gantt chart as HTML: a lane a GPU, a bar a job, placed in percent of the page's width."""

from __future__ import annotations

from html import escape

from slurm_soda.simulator.report.charts.gantt import GPU_COUNT_LABELS, GanttBar, GanttChart, gpu_count_class
from slurm_soda.simulator.report.charts.line_chart_html import render_axis
from slurm_soda.simulator.report.time_text import span_text, time_ticks

_HIGHEST_PX, _LOWEST_PX, _ALL_PX = 20, 6, 640
"""Height of a lane; as high as all lanes have room in ``_ALL_PX``."""
_LABEL_PX = 11
_NAMED_RATIO = 0.025
"""A bar of this part of the chart's width has room for the beginning of a job's name."""


def render_gantt(lanes: GanttChart) -> str:
    """The chart with its names and its axis."""
    count, span_s = len(lanes.names), lanes.span_s or 1.0
    lane_px = max(_LOWEST_PX, min(_HIGHEST_PX, _ALL_PX // count))
    bars = "".join(_bar(bar, lane_px, span_s) for bar in lanes.bars)
    edges = "".join(f'<u style="top:{lane * lane_px}px"></u>' for lane in lanes.first_of_node[1:])
    return (
        f'<div class="lanes">{_names(lanes, lane_px)}'
        f'<div class="bars" style="height:{count * lane_px}px">{edges}{bars}</div>'
        f"{render_axis(time_ticks(span_s))}</div>"
    )


def _names(lanes: GanttChart, lane_px: int) -> str:
    """Every node's name, or as many GPU numbers as have room where GPUs are only counted."""
    if lanes.first_of_node:
        shown = [(lane, lanes.names[lane].split(":")[0]) for lane in lanes.first_of_node if lane < len(lanes.names)]
    else:
        shown = [(lane, f"GPU {name}") for lane, name in enumerate(lanes.names)]
    kept: list[tuple[int, str]] = []
    for lane, name in shown:
        if not kept or (lane - kept[-1][0]) * lane_px >= _LABEL_PX:
            kept.append((lane, name))
    return "".join(f'<span class="lane" style="top:{lane * lane_px}px">{escape(name)}</span>' for lane, name in kept)


def _bar(bar: GanttBar, lane_px: int, span_s: float) -> str:
    plural = "GPU" if bar.gpus == 1 else "GPUs"
    title = (
        f"{bar.label}: {bar.gpus} {plural}, from {span_text(bar.start_s)} for {span_text(bar.end_s - bar.start_s)}"
        f"{', then stopped' if bar.stopped else ''}"
    )
    wide = bar.end_s - bar.start_s >= _NAMED_RATIO * span_s and bar.lanes * lane_px >= _LABEL_PX
    name = escape(bar.label) if wide else ""
    return (
        f'<i class="g{gpu_count_class(bar.gpus)}{" cut" if bar.stopped else ""}" title="{escape(title, quote=True)}" style="'
        f"left:{100 * bar.start_s / span_s:.3f}%;width:{100 * (bar.end_s - bar.start_s) / span_s:.3f}%;"
        f'top:{bar.lane * lane_px}px;height:{bar.lanes * lane_px}px">{name}</i>'
    )


def render_gantt_legend() -> str:
    """What the colours mean."""
    sizes = "".join(f'<span><i class="g{count}"></i>{words}</span>' for count, words in GPU_COUNT_LABELS.items())
    return f'<div class="key">{sizes}<span><b>▎</b>stopped: preempted, or its node failed</span></div>'
