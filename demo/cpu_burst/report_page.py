"""The burst's page: one HTML file with its chart inside, made from the report alone."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from slurm_soda.demo.cpu_burst.charts import TITLES
from slurm_soda.simulator.report.page_style import BASE_CSS

Report = Mapping[str, Any]

ROWS = (
    ("gpu_queue_s", "GPU jobs: mean queueing time", "s"),
    ("gpu_queue_p95_s", "GPU jobs: 95th percentile", "s"),
    ("cpu_queue_s", "CPU jobs: mean queueing time", "s"),
    ("cpu_queue_p95_s", "CPU jobs: 95th percentile", "s"),
    ("makespan_s", "Makespan", "s"),
    ("borrowed_core_s", "Borrowed core time", "core s"),
    ("aborts", "Aborted runs", ""),
    ("most_aborts", "Most aborts of one job", ""),
    ("lost_core_s", "Core time of aborted runs", "core s"),
    ("longest_return_s", "Longest return of borrowed cores", "s"),
)
"""Key, name and unit of each line of the table."""


def headline_text(runs: Mapping[str, Any]) -> str:
    """The result in one line."""
    gpu = [runs[phase]["gpu_queue_s"] for phase in ("stock", "soda")]
    cpu = [runs[phase]["cpu_queue_s"] for phase in ("stock", "soda")]
    return (
        f"In a burst of CPU jobs, GPU jobs queue {gpu[1]:.1f} s instead of {gpu[0]:.1f} s;"
        f" CPU jobs {cpu[1]:.1f} s instead of {cpu[0]:.1f} s"
    )


def format_value(value: float, unit: str) -> str:
    """A figure for people."""
    return f"{value:.1f} {unit}" if unit == "s" else f"{value:.0f} {unit}".rstrip()


def render_page(report: Report, chart: bytes) -> str:
    """The page; ``chart`` is a PNG."""
    image = base64.b64encode(chart).decode()
    title = escape(str(report["headline"]))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{BASE_CSS} img {{ max-width: 100%; background: #fff; }}</style></head>\n<body><main>"
        f"<h1>{title}</h1>{_lead(report)}"
        f'<section class="card wide">{_verdicts(report)}</section>'
        f'<section class="card"><img alt="Cores and GPUs in use, and queueing times" src="data:image/png;base64,{image}">'
        f'</section><section class="card wide">{_table(report)}</section>{_method(report)}</main></body></html>\n'
    )


def _lead(report: Report) -> str:
    stock, cluster = report["runs"]["stock"], report["cluster"]
    return (
        f"<p>{stock['gpu_jobs']} training jobs and {stock['cpu_jobs']} CPU jobs on {cluster['nodes']} nodes with"
        f" {cluster['gpus']} GPUs and {cluster['cores']} cores in all, twice: with stock Slurm, and with pools"
        " (SODA, Section V-C). CPU jobs borrow the cores that GPU jobs leave idle, and give them back when one comes.</p>"
    )


def _verdicts(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(row['name'])}</td><td>{row['value']:.3g}</td><td>{row['at_most']:.3g}</td>"
        f"<td>{'yes' if row['holds'] else 'NO'}</td></tr>"
        for row in report["verdicts"]
    )
    return f"<table><tr><th></th><th>measured</th><th>at most</th><th>holds</th></tr>{rows}</table>"


def _table(report: Report) -> str:
    runs = report["runs"]
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{format_value(runs['stock'][key], unit)}</td>"
        f"<td>{format_value(runs['soda'][key], unit)}</td></tr>"
        for key, name, unit in ROWS
    )
    return f"<table><tr><th></th><th>{escape(TITLES['stock'])}</th><th>{escape(TITLES['soda'])}</th></tr>{rows}</table>"


def _method(report: Report) -> str:
    commands = "\n".join(escape(line) for line in report["commands"])
    known = ", ".join(f"{escape(name)} {escape(text)}" for name, text in report["versions"].items())
    return (
        '<section class="card"><h2>How it was measured</h2><p>Times are Slurm\'s own accounting, in whole seconds. A job'
        " queues from its submission to the start of the run that completed: what an aborted run did is lost, so it counts"
        " as queueing. Borrowed cores return from the moment that nothing but borrowers was in a GPU job's way to its"
        " start. Both runs use the same nodes, jobs, time limits and intervals of Slurm's scheduler.</p>"
        f"<pre>{commands}</pre><p>{known}</p></section>"
    )
