"""One report as one HTML file without outside assets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from slurm_soda.simulator.report.charts.curves import Distribution, UsageCurve, log_bounds, step_corners
from slurm_soda.simulator.report.charts.gantt_html import render_gantt, render_gantt_legend
from slurm_soda.simulator.report.charts.line_chart_html import PERCENT_TICKS, ChartLine, render_axis, render_line_chart
from slurm_soda.simulator.report.charts.palette import hue_index, line_width, stroke_index
from slurm_soda.simulator.report.comparison_table import make_comparison_table, percent_text
from slurm_soda.simulator.report.page_style import CSS
from slurm_soda.simulator.report.run_results import PolicyRuns, fastest_policy, on_same_seeds, times_better
from slurm_soda.simulator.report.time_text import log_ticks, span_text, time_ticks


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Sentences under a heading."""

    title: str
    lines: tuple[str, ...]
    code: bool = False
    """They are lines of a file, or of a table."""
    ratios: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """A chart below them, of lines by name: from 0 to 1 across, ratios up."""


@dataclass(frozen=True, slots=True)
class ReportContent:
    """Everything that a page or a chart tells."""

    rows: tuple[PolicyRuns, ...]
    """The first one is what the others are compared with."""
    about: str
    """Workload and cluster, in one sentence."""
    gpus: int
    """Of the cluster."""
    facts: tuple[tuple[str, str], ...] = ()
    """How it was simulated: names and values."""
    title: str = ""
    """The result in one line; empty: :func:`headline` says it."""
    passages: tuple[ReportSection, ...] = ()
    """What follows from the figures, below the table."""


def render_page(page: ReportContent) -> str:
    """The page."""
    title = escape(page.title or headline(page.rows))
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{CSS}</style></head>\n"
    )
    cards = (
        f'<section class="card wide">{_table(page.rows)}</section>',
        *(_card(passage.title, _text(passage)) for passage in page.passages),
        f'<div class="pair">{_card("Completion time (JCT)", _distributions(page.rows, "jct"))}'
        f"{_card('Time waited', _distributions(page.rows, 'queue'))}</div>",
        _card("GPUs in use", _strips(page)) if page.gpus else "",
        *(_chart(row) for row in page.rows),
        _method(page),
    )
    about = f'<p class="soft">{escape(page.about)}</p>'
    return f"{head}<body><main><h1>{title}</h1>{about}{''.join(cards)}</main></body></html>\n"


def headline(rows: Sequence[PolicyRuns]) -> str:
    """The result in one line."""
    first, best = rows[0], fastest_policy(rows)
    if len(rows) == 1:
        return f"{first.policy}: jobs complete in {span_text(first.mean('avg_jct_s'))} on average"
    if best is first or not times_better(first, best) > 1:
        return f"No policy completes jobs faster than {first.policy}: {span_text(first.mean('avg_jct_s'))} on average"
    first_s, best_s = (one.mean("avg_jct_s") for one in on_same_seeds(first, best) or (first, best))
    return (
        f"{best.policy} completes jobs in {span_text(best_s)} on average,"
        f" {first.policy} in {span_text(first_s)}: {times_better(first, best):.2f} times better"
    )


def _card(title: str, body: str) -> str:
    return f'<section class="card"><h2>{escape(title)}</h2>{body}</section>'


def _text(passage: ReportSection) -> str:
    lines = passage.lines
    chart = _ratio_chart(passage.ratios, passage.title) if passage.ratios else ""
    if passage.code:
        return f"<pre>{escape(chr(10).join(lines))}</pre>{chart}"
    return "".join(f"<p>{escape(line)}</p>" for line in lines) + chart


def _ratio_chart(ratios: Mapping[str, Sequence[tuple[float, float]]], label: str) -> str:
    top = max(1.0, *(ratio for points in ratios.values() for _, ratio in points))
    ticks = [(ratio / top, f"{ratio:g}×") for ratio in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0) if ratio <= top]
    lines = [
        ChartLine(name, _style(number), [(x, ratio / top) for x, ratio in points], line_width(number, len(ratios)))
        for number, (name, points) in enumerate(ratios.items())
    ]
    return _key(list(ratios)) + render_line_chart(lines, PERCENT_TICKS, ticks, label)


def _table(rows: Sequence[PolicyRuns]) -> str:
    titles, lines = make_comparison_table(rows)
    best = fastest_policy(rows) if len(rows) > 1 else None
    best_class = ' class="best"'
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr{best_class if row is best else ''}>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>"
        for row, line in zip(rows, lines, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _style(number: int) -> str:
    return f"p{hue_index(number)} s{stroke_index(number)}"


def _distributions(rows: Sequence[PolicyRuns], which: str) -> str:
    found: list[Distribution] = [getattr(row, which) for row in rows]
    low_s, high_s = log_bounds(found)

    def place(seconds: float) -> float:
        return math.log(seconds / low_s) / math.log(high_s / low_s)

    lines = [
        ChartLine(
            row.policy,
            _style(number),
            [(place(x), y) for x, y in [*step_corners(steps, low_s), (high_s, float(steps.part[-1]))]],
            line_width(number, len(rows)),
        )
        for number, (row, steps) in enumerate(zip(rows, found, strict=True))
    ]
    ticks = log_ticks(low_s, high_s)
    edge = f"; less than {ticks[0][1]} stands at the left edge" if which == "queue" else ""
    marks = [(place(seconds), text) for seconds, text in ticks]
    label = f"part of the jobs by {'completion time' if which == 'jct' else 'time waited'}"
    chart = _key([row.policy for row in rows]) + render_line_chart(lines, marks, PERCENT_TICKS, label)
    return f'{chart}<p class="x">{label}, logarithmic{edge}</p>'


def _key(names: Sequence[str]) -> str:
    entries = "".join(
        f'<span><svg viewBox="0 0 26 8"><line class="{_style(number)}" x1="0" x2="26" y1="4" y2="4"/></svg>'
        f"{escape(name)}</span>"
        for number, name in enumerate(names)
    )
    return f'<div class="key">{entries}</div>'


def _strips(page: ReportContent) -> str:
    """One band a policy, below each other on one clock; of several seeds the first."""
    uses = [row.runs[0].gpus for row in page.rows]
    span_s = max(float(use.edges_s[-1]) for use in uses)
    strips = "".join(
        f"<span>{escape(row.policy)}</span>{_band(use, page.gpus, span_s, number)}"
        f"<span>{percent_text(row.mean('gpu_util_ratio'))}</span>"
        for number, (row, use) in enumerate(zip(page.rows, uses, strict=True))
    )
    return (
        f'<p class="soft">Part of the {page.gpus:,} GPUs that jobs hold, since the first submission; right: over the whole'
        f' makespan.</p><div class="strip">{strips}<span></span>{render_axis(time_ticks(span_s))}<span></span></div>'
    )


def _band(use: UsageCurve, gpus: int, span_s: float, number: int) -> str:
    edges = (100 * use.edges_s / span_s).tolist()
    heights = (100 * (1 - use.mean / gpus)).tolist()
    top = " ".join(
        f"{left:.2f},{y:.1f} {right:.2f},{y:.1f}" for left, right, y in zip(edges[:-1], edges[1:], heights, strict=True)
    )
    grid = "".join(f'<line x1="0" x2="100" y1="{y}" y2="{y}"/>' for y in (0, 50))
    return (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="GPUs in use over time">{grid}'
        f'<polygon class="f{hue_index(number)}" points="0,100 {top} {edges[-1]:.2f},100"/></svg>'
    )


def _chart(row: PolicyRuns) -> str:
    """Gantt chart of a small run; of several seeds the first."""
    lanes = row.runs[0].lanes
    return (
        "" if lanes is None else _card(f"{row.policy}: who held which GPU", render_gantt_legend() + render_gantt(lanes))
    )


def _method(page: ReportContent) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in page.facts)
    return (
        '<section class="card"><details><summary>How this was simulated, and what the figures mean</summary>'
        f"<dl>{facts}</dl>"
        '<p class="soft">JCT, job completion time: submission to end. Wait: JCT less all time on resources, so waits after'
        " preemptions count. Makespan: first submission to last end. GPUs used: GPU seconds that jobs held, over all GPUs"
        " times the makespan; a GPU that jobs share counts once. Times better: the first policy's average JCT over this"
        " one's. Percentiles are linear between"
        " two jobs. With several seeds, cells are means over the seeds, ± is the sample standard deviation, and curves"
        " take all jobs of all seeds together.</p></details></section>"
    )
