"""The demo's page: one HTML file without outside assets, made from the report alone."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from slurm_soda.demo.job_mix.gantt_chart import GPU_COUNTS, PREEMPTED, render_gantt
from slurm_soda.demo.job_mix.mix_figures import most_delayed
from slurm_soda.demo.job_mix.page_style import CSS
from slurm_soda.simulator.report.charts.curves import make_distribution, step_corners
from slurm_soda.simulator.report.charts.line_chart_html import PERCENT_TICKS, ChartLine, render_line_chart
from slurm_soda.simulator.report.time_text import time_ticks

Report = Mapping[str, Any]

TITLES = {"stock": "Stock Slurm, with backfill", "soda": "slurm-soda"}

ROWS = (
    ("avg_jct_s", "Average completion time", "s"),
    ("p50_jct_s", "Median completion time", "s"),
    ("p95_jct_s", "95th percentile", "s"),
    ("avg_queue_s", "Average time not running", "s"),
    ("makespan_s", "Makespan", "s"),
    ("gpu_util_ratio", "GPU utilisation", "%"),
    ("preemptions", "Preemptions", ""),
)
"""Key, name and unit of each line of the table; less is better but for utilisation."""


def render_page(report: Report) -> str:
    """The page."""
    runs = report["runs"]
    span_s = max(run["makespan_s"] for run in runs.values()) * 1.01
    charts = "".join(
        f'<section class="card"><h2>{TITLES[phase]}</h2>{_gantt_key()}'
        f"{render_gantt(runs[phase]['per_job'], span_s)}</section>"
        for phase in ("stock", "soda")
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(headline_text(runs))}</title><style>{CSS}</style></head>\n<body><main>"
        f"<h1>{escape(headline_text(runs))}</h1><p>{escape(price(runs))}.</p>{_lead(report)}"
        f'<section class="card wide">{_table(runs)}</section>'
        f'<div class="pair">{charts}</div>'
        f'<section class="card"><h2>Jobs completed within a time</h2>{_curves(runs)}</section>'
        f"{_forecast(report)}{_method(report)}</main></body></html>\n"
    )


def headline_text(runs: Mapping[str, Any]) -> str:
    """The result in one line."""
    stock, soda = runs["stock"]["avg_jct_s"], runs["soda"]["avg_jct_s"]
    word = "shorter" if soda <= stock else "longer"
    change = abs(soda / stock - 1)
    return f"Jobs complete in {soda:.0f} s instead of {stock:.0f} s: {change:.0%} {word} on average"


def price(runs: Mapping[str, Any]) -> str:
    """Who pays for the result, in one line."""
    job = most_delayed(runs)
    if job is None:
        return "No job completes later"
    size = f"{job.gpus} GPU{'' if job.gpus == 1 else 's'}"
    return f"{job.name} ({size}) pays most: it completes in {job.soda_jct_s:.0f} s instead of {job.stock_jct_s:.0f} s"


def format_change(stock: float | None, soda: float | None) -> str:
    """Relative change, signed; empty where one side is unknown or zero."""
    if not stock or soda is None:
        return ""
    return f"{soda / stock - 1:+.0%}".replace("-", "−")


def format_value(value: float | None, unit: str) -> str:
    """A figure with its unit; a dash if unknown."""
    if value is None:
        return "–"
    return f"{value:.0%}".replace("%", " %") if unit == "%" else f"{value:.1f} s" if unit == "s" else f"{value:.0f}"


def _lead(report: Report) -> str:
    settings = report["settings"]
    return (
        f'<p class="soft">The same {report["runs"]["stock"]["jobs"]} jobs, submitted at the same moments by three'
        f" users to the same Slurm {escape(report['versions']['slurm'])} cluster ({settings['nodes']} nodes, "
        f"{settings['gpus']} GPUs): once scheduled by Slurm alone, once with slurm-soda's "
        f"{escape(settings['policy'])}. Times are real seconds; the trainings are emulated, "
        f"{settings['time_scale']:g} times faster than the paper's.</p>"
    )


def _table(runs: Mapping[str, Any]) -> str:
    lines = []
    for number, (key, name, unit) in enumerate(ROWS):
        stock, soda = runs["stock"][key], runs["soda"][key]
        change = "" if unit == "" else format_change(stock, soda)
        lines.append(
            f'<tr class="{"first" if number == 0 else ""}"><td>{name}</td><td>{format_value(stock, unit)}</td>'
            f'<td>{format_value(soda, unit)}</td><td class="{_better_or_worse(stock, soda, unit)}">{change}</td></tr>'
        )
    head = '<tr><th></th><th>stock</th><th>slurm-soda</th><th><span class="soft">change</span></th></tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _better_or_worse(stock: float | None, soda: float | None, unit: str) -> str:
    if unit == "" or not stock or soda is None or abs(soda / stock - 1) < 0.01:
        return ""
    return "good" if (soda > stock) == (unit == "%") else "bad"


def _gantt_key() -> str:
    gpus = "".join(f'<span><i class="g{n}"></i>{n} GPU{"s" if n > 1 else ""}</span>' for n in GPU_COUNTS)
    return (
        f'<div class="key">{gpus}<span><i class="wait"></i>waits</span><span><b>{PREEMPTED}</b>preempted</span></div>'
    )


def jct_steps(run: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Corners of the empirical distribution of a run's JCTs: ``(seconds, part of the jobs)``, from (0, 0)."""
    jct_s = np.array([job["jct_s"] for job in run["per_job"]], dtype=np.float64)
    return step_corners(make_distribution(jct_s, most=len(jct_s)))


def _curves(runs: Mapping[str, Any]) -> str:
    span_s = max(job["jct_s"] for run in runs.values() for job in run["per_job"]) * 1.02
    lines = [
        ChartLine(TITLES[phase], phase, [*((x / span_s, y) for x, y in jct_steps(runs[phase])), (1.0, 1.0)])
        for phase in ("stock", "soda")
    ]
    key = "".join(f'<span><i class="{phase}"></i>{TITLES[phase]}</span>' for phase in ("stock", "soda"))
    chart = render_line_chart(lines, time_ticks(span_s), PERCENT_TICKS, "Distribution of completion times")
    return f'<div class="key">{key}</div>{chart}'


def _forecast(report: Report) -> str:
    """Both runs as whatif sees them from the first one's accounting; nothing if there is no such prediction."""
    predicted = report.get("predicted")
    if not predicted:
        return ""
    lines = []
    for phase in ("stock", "soda"):
        measured, expected = report["runs"][phase]["avg_jct_s"], predicted[phase]["avg_jct_s"]
        lines.append(
            f"<tr><td>{TITLES[phase]}</td><td>{format_value(expected, 's')}</td><td>{format_value(measured, 's')}</td>"
            f"<td>{format_change(measured, expected)}</td></tr>"
        )
    titles = ("Average completion time", "predicted", "measured", '<span class="soft">off by</span>')
    head = f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"
    return (
        '<section class="card"><h2>What whatif would have said beforehand</h2>'
        f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"
        '<p class="soft">From the accounting of the run under stock Slurm alone, as any site can ask about itself:</p>'
        f"<pre>{escape(report['whatif_command'])}</pre></section>"
    )


def _method(report: Report) -> str:
    facts = {
        "Seed": report["seed"],
        **{key.replace("_", " "): value for key, value in report["settings"].items()},
        **report["versions"],
        "Times from": "sacct --duplicates",
        "Utilisation from": "NVML, by soda-agent",
    }
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items())
    commands = escape("\n".join(report["commands"]))
    return (
        '<section class="card"><details><summary>How this was measured</summary>'
        f'<dl>{rows}</dl><p class="soft">Commands, and the first job\'s submission:</p><pre>{commands}</pre>'
        '<p class="soft">Both runs use one slurm.conf, in which backfill looks at the queue every second. The mix is a '
        "scaled-down draw of the testbed workload of Tiresias (NSDI 2019): half of the jobs ask for one GPU, a fifth are "
        "long. Speeds of the emulated models are parameters, not measurements.</p></details></section>"
    )
