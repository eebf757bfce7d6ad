"""Gantt chart of one run as HTML: a row a job by submission, a thin line while it waits, a bar while it runs.

Positions are percentages, so that a chart is as readable on a phone as on a wall; both charts get the same span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from slurm_soda.simulator.report.charts import line_chart_html
from slurm_soda.simulator.report.time_text import tick_step

GPU_COUNTS = (1, 2, 4, 8)
PREEMPTED = "◆"

Job = Mapping[str, Any]
"""One entry of ``runs.*.per_job`` of the report."""


def render_gantt(jobs: Sequence[Job], span_s: float) -> str:
    """The chart; ``span_s`` is the time that fills its width."""
    began_s = min(job["submit_s"] for job in jobs)
    rows = "".join(_row(job, began_s, span_s) for job in jobs)
    return f'<div class="gantt">{rows}<div class="row"><span></span>{render_time_axis(span_s)}</div></div>'


def _row(job: Job, began_s: float, span_s: float) -> str:
    waits = list(_waits(job))
    pieces = [_piece("wait", start, end, began_s, span_s) for start, end in waits]
    colour = f"run g{gpu_count_class(job['gpus'])}"
    pieces += [_piece(colour, run["start_s"], run["end_s"], began_s, span_s) for run in job["runs"]]
    pieces += [
        f'<b style="left:{_percent(run["end_s"] - began_s, span_s)}" title="preempted">{PREEMPTED}</b>'
        for run in job["runs"][:-1]
    ]
    plural = "GPU" if job["gpus"] == 1 else "GPUs"
    label = f"{job['name']} · {job['gpus']}"
    tooltip = (
        f"{job['name']} of {job['user']}: {job['gpus']} {plural}, completed after {job['jct_s']:.0f} s,"
        f" waited {job['queue_s']:.0f} s, preempted {job['preemptions']} times"
    )
    return (
        f'<div class="row" title="{escape(tooltip, quote=True)}"><span>{escape(label)}</span>'
        f'<div class="track">{"".join(pieces)}</div></div>'
    )


def _waits(job: Job) -> list[tuple[float, float]]:
    """Intervals in which the job did not run."""
    edges = [job["submit_s"], *(edge for run in job["runs"] for edge in (run["start_s"], run["end_s"])), job["end_s"]]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]


def _piece(kind: str, start_s: float, end_s: float, began_s: float, span_s: float) -> str:
    left, width = _percent(start_s - began_s, span_s), _percent(end_s - start_s, span_s)
    return f'<i class="{kind}" style="left:{left};width:{width}"></i>'


def _percent(part_s: float, span_s: float) -> str:
    return f"{100 * part_s / span_s:.2f}%"


def gpu_count_class(gpus: int) -> int:
    """The smallest of :data:`GPU_COUNTS` that holds so many GPUs; the largest one for still more."""
    return next((count for count in GPU_COUNTS if gpus <= count), GPU_COUNTS[-1])


def render_time_axis(span_s: float) -> str:
    """Time axis under a track or plot, in seconds."""
    step = tick_step(span_s)
    last = int(span_s / step)
    texts = [f"{step * at:g}{' s' if at == last else ''}" for at in range(last + 1)]
    return line_chart_html.render_axis([(step * at / span_s, text) for at, text in enumerate(texts)])
