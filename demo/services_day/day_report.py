"""The report of the day, its page and its table: plain data first, everything else from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from slurm_soda.demo.cluster_runs import DemoObserver, DemoPhase
from slurm_soda.demo.job_mix.gantt_chart import render_gantt, render_time_axis
from slurm_soda.demo.job_mix.mix_figures import run_document
from slurm_soda.demo.job_mix.page_style import CSS
from slurm_soda.demo.job_mix.report_page import format_change, format_value
from slurm_soda.demo.report_files import write_report_files
from slurm_soda.demo.services_day import day_settings
from slurm_soda.demo.services_day.day_figures import PARTS, compare_days, service_document
from slurm_soda.demo.services_day.day_load import needed_part
from slurm_soda.demo.services_day.day_runs import DayResult, run_day_twice
from slurm_soda.demo.services_day.day_settings import CLUSTER_GPUS, HEADROOM, TARGET_MS, DaySettings

PICTURE = "services.png"
TITLES: Mapping[DemoPhase, str] = {"pinned": "Always on a GPU", "placed": "slurm-soda"}
GPU_HELD_WANTED, JCT_WANTED = 0.60, 0.90
DEVICE_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_COLOURS = {"cpu": "#d0692c", "gpu": "#0b7d75"}

Report = Mapping[str, Any]


def run_services_demo(settings: DaySettings, watch: DemoObserver) -> dict[str, Any]:
    """Run the whole demo and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or the service did not become ready.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    report = report_document(settings, run_day_twice(settings, watch))
    write_report(report, settings.out)
    return report


def report_document(settings: DaySettings, result: DayResult) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again."""
    runs = {
        phase: {
            "service": service_document(run.queries, run.service_runs, TARGET_MS, settings.day_s),
            "jobs": run_document(run.jobs, CLUSTER_GPUS, run.measured),
        }
        for phase, run in result.runs.items()
    }
    rates = result.rates
    return {
        "runs": runs,
        "placed_over_pinned": compare_days(runs["pinned"], runs["placed"]),
        "seed": settings.seed,
        "day_s": settings.day_s,
        "target_ms": TARGET_MS,
        "rates": {
            **asdict(rates),
            "above_cores_part": round(needed_part(rates, settings.day_s, HEADROOM * rates.cpu_qps), 4),
        },
        "profile": dict(result.profile),
        "settings": {
            "nodes": day_settings.NODES,
            "gpus": CLUSTER_GPUS,
            "model": f"{day_settings.MODEL}, width {day_settings.WIDTH}",
            "gpu_speedup": day_settings.GPU_SPEEDUP,
            "jobs": len(result.jobs),
        },
        "versions": dict(result.versions),
        "commands": [
            f"sodactl demo --services --seed {settings.seed} --minutes {settings.minutes:g}",
            f"sodactl service start {day_settings.SERVICE_FILE}",
            f"sodactl service show {day_settings.SERVICE}",
        ],
        "mix": [asdict(job) for job in result.jobs],
    }


def headline_text(report: Report) -> str:
    """The result in one line."""
    placed, over = report["runs"]["placed"]["service"], report["placed_over_pinned"]
    return (
        f"The service holds a GPU for {placed['gpu_part']:.0%} of the day, {placed['errors']} of {placed['queries']} queries"
        f" fail, and training jobs complete in {over['avg_jct']:.0%} of the time"
    )


def table_rows(report: Report) -> list[list[str]]:
    """Name, a figure for each phase, and the change or what was wanted."""
    services, jobs = ([report["runs"][phase][what] for phase in TITLES] for what in ("service", "jobs"))

    def row(name: str, texts: Iterable[str], last: str = "") -> list[str]:
        return [name, *texts, last]

    return [
        row("Queries", (str(one["queries"]) for one in services)),
        row("Failed queries", (str(one["errors"]) for one in services)),
        row("Later than the target", map(_violations, services)),
        row("Latency p50", (f"{one['p50_ms']:.0f} ms" for one in services)),
        row("Latency p95", (f"{one['p95_ms']:.0f} ms" for one in services)),
        row("Latency p99", (f"{one['p99_ms']:.0f} ms" for one in services), f"target {report['target_ms']:g} ms"),
        row("GPU held, part of the day", map(_held, services), f"wanted {GPU_HELD_WANTED:.0%} at most"),
        row("It ran on", (" → ".join(DEVICE_NAMES[device] for device in one["devices"]) for one in services)),
        *(
            row(name, (format_value(run[key], "s") for run in jobs), format_change(jobs[0][key], jobs[1][key]))
            for key, name in (("avg_jct_s", "Jobs: average completion time"), ("avg_queue_s", "Jobs: average wait"))
        ),
        row("Jobs: requeued", (str(run["preemptions"]) for run in jobs)),
    ]


def _held(service: Report) -> str:
    return f"{service['gpu_part']:.0%}"


def _violations(service: Report) -> str:
    return f"{service['violations']} ({service['violations'] / max(1, service['queries']):.2%})"


def unmet(report: Report) -> list[str]:
    """What the day was to show and did not."""
    placed, over = report["runs"]["placed"]["service"], report["placed_over_pinned"]
    found = []
    if placed["errors"]:
        found.append(f"{placed['errors']} queries failed; none should")
    if placed["gpu_part"] > GPU_HELD_WANTED:
        found.append(f"a GPU was held for {placed['gpu_part']:.0%} of the day; {GPU_HELD_WANTED:.0%} is wanted at most")
    if over["avg_jct"] > JCT_WANTED:
        found.append(f"training jobs took {over['avg_jct']:.2f} of the time; {JCT_WANTED} is wanted at most")
    if placed["within_target_ratio"] < 0.99:
        found.append(f"{placed['within_target_ratio']:.2%} of the queries were within the target; 99 % is wanted")
    return found


def write_report(report: dict[str, Any], folder: Path) -> None:
    """Write report, page and picture."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.services_day.day_chart import save_chart  # noqa: PLC0415

    write_report_files(report, folder, draw=lambda one, where: save_chart(one, where / PICTURE), page=render_page)


def render_page(report: Report) -> str:
    """The page: one HTML file without outside assets, but for the picture beside it."""
    runs, title = report["runs"], escape(headline_text(report))
    head = "".join(f"<th>{escape(name)}</th>" for name in TITLES.values())
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table_rows(report))
    missed = "".join(f"<li>{escape(line)}</li>" for line in unmet(report))
    span_s = max(run["jobs"]["makespan_s"] for run in runs.values()) * 1.01
    placement = "".join(_placement(TITLES[phase], runs[phase]["service"], report["day_s"]) for phase in TITLES)
    charts = "".join(
        f'<section class="card"><h2>{escape(TITLES[phase])}</h2>'
        f"{render_gantt(runs[phase]['jobs']['per_job'], span_s)}</section>"
        for phase in TITLES
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{CSS}</style></head>\n<body><main><h1>{title}</h1>{_lead(report)}"
        f'<section class="card wide"><table><thead><tr><th></th>{head}<th></th></tr></thead><tbody>{rows}</tbody></table>'
        f"{f'<p>Not met:</p><ul>{missed}</ul>' if missed else ''}</section>"
        f'<section class="card wide"><h2>Where the service ran</h2>{placement}</section>'
        f'<section class="card wide"><img src="{PICTURE}" alt="Load, latency and placement over the day" style="width:100%">'
        f'</section><div class="pair">{charts}</div>{_method(report)}</main></body></html>\n'
    )


def _placement(title: str, service: Report, day_s: float) -> str:
    """A row for each device, a bar while an instance ran there."""
    rows = []
    for device, colour in _COLOURS.items():
        pieces = "".join(
            f'<i class="run" style="background:{colour};left:{100 * run["start_s"] / day_s:.2f}%;'
            f'width:{100 * (run["end_s"] - run["start_s"]) / day_s:.2f}%" title="{escape(run["node"], quote=True)}"></i>'
            for run in service["runs"]
            if run["device"] == device
        )
        label = f"{title} · {DEVICE_NAMES[device]}"
        rows.append(f'<div class="row"><span>{escape(label)}</span><div class="track">{pieces}</div></div>')
    axis = f'<div class="row"><span></span>{render_time_axis(day_s)}</div>'
    return f'<div class="gantt">{"".join(rows)}{axis}</div>'


def _lead(report: Report) -> str:
    rates, settings = report["rates"], report["settings"]
    return (
        f'<p class="soft">A day in {report["day_s"] / 60:g} minutes on {settings["gpus"]} emulated GPUs of'
        f" {settings['nodes']} nodes: one inference service ({escape(settings['model'])}, ONNX Runtime) and"
        f" {settings['jobs']} training jobs, twice the same. The load goes from {rates['night_qps']:.1f} queries a second"
        f" at night to {rates['peak_qps']:.1f} at noon; one instance on a core answers {rates['cpu_qps']:.1f} by its"
        f" profile, of which {HEADROOM:.0%} are counted on, and the load is above that for"
        f" {rates['above_cores_part']:.0%} of the day. The emulated GPU is {settings['gpu_speedup']:g} times as fast as a"
        " core. Times are real seconds; trainings are emulated."
        "</p>"
    )


def _method(report: Report) -> str:
    facts = {
        "Seed": report["seed"],
        **report["versions"],
        "Queries": f"open loop, in {PARTS} stretches in the charts; latency counts from when a query was due",
        "Times of jobs and instances": "sacct --duplicates",
        "Training jobs": "first in first out in both phases, with Slurm's backfill",
        "Profile": json.dumps(report["profile"]),
    }
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items())
    return (
        '<section class="card"><details><summary>How this was measured</summary>'
        f"<dl>{rows}</dl><pre>{escape(chr(10).join(report['commands']))}</pre></details></section>"
    )
