"""The sharing demo's report, its page and its picture: plain data first, everything else from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from slurm_soda.containers.images import find_checkout
from slurm_soda.demo.cluster_runs import DemoObserver
from slurm_soda.demo.job_mix.demo_settings import GPUS_PER_NODE, NODES
from slurm_soda.demo.job_mix.gantt_chart import render_gantt
from slurm_soda.demo.job_mix.mix_figures import compare_figures, run_document
from slurm_soda.demo.job_mix.page_style import CSS
from slurm_soda.demo.job_mix.report_page import ROWS, format_change, format_value
from slurm_soda.demo.report_files import write_report_files
from slurm_soda.demo.sharing_mix.sharing_forecast import forecast_sharing
from slurm_soda.demo.sharing_mix.sharing_jobs import LIGHT_MODELS
from slurm_soda.demo.sharing_mix.sharing_runs import (
    POLICIES,
    SharingDemoResult,
    SharingDemoSettings,
    run_sharing_phases,
)
from slurm_soda.demo.sharing_mix.speed_table import read_speeds

PICTURE = "sharing.png"
TITLES = {"stock": "Stock Slurm, with backfill", "tiresias": "Tiresias", "sharing": "Sharing"}

Report = Mapping[str, Any]


def run_sharing_demo(settings: SharingDemoSettings, watch: DemoObserver) -> dict[str, Any]:
    """Run the whole demo and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: too few jobs.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    report = report_document(settings, run_sharing_phases(settings, watch))
    write_report(report, settings.out)
    return report


def report_document(settings: SharingDemoSettings, result: SharingDemoResult) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again."""
    gpus = NODES * GPUS_PER_NODE
    runs = {phase: run_document(run.jobs, gpus, run.measured) for phase, run in result.runs.items()}
    speeds = read_speeds(find_checkout() / "emulation" / "trainer")
    predicted = forecast_sharing(result.mix, speeds, result.table, tuple(result.runs))
    for phase, run in result.runs.items():
        runs[phase]["shares"] = [dict(share) for share in run.shares]
    return {
        "runs": runs,
        "sharing_over": {
            phase: compare_figures(run, runs["sharing"])
            for phase, run in runs.items()
            if phase != "sharing" and "sharing" in runs
        },
        "predicted": {phase: round(value, 4) for phase, value in predicted.items()},
        "seed": settings.seed,
        "settings": {"jobs": settings.jobs, "nodes": NODES, "gpus": gpus, "models": list(LIGHT_MODELS)},
        "policies": dict(POLICIES),
        "versions": dict(result.versions),
        "commands": [f"sodactl demo --sharing --seed {settings.seed} --jobs {settings.jobs}", "sodactl shares"],
        "mix": [asdict(job) for job in result.mix],
    }


def headline_text(report: Report) -> str:
    """The result in one line."""
    runs = report["runs"]
    found = {phase: run["avg_jct_s"] for phase, run in runs.items()}
    others = " and ".join(
        f"{found[phase]:.0f} s under {TITLES[phase].split(',')[0]}" for phase in found if phase != "sharing"
    )
    return f"With sharing jobs complete in {found['sharing']:.0f} s on average; {others}"


def table_rows(report: Report) -> list[list[str]]:
    """Name, a figure for each run, and how much sharing changes Tiresias' (stock's where that was not run)."""
    runs = report["runs"]
    base = "tiresias" if "tiresias" in runs else "stock"
    rows = []
    for key, name, unit in ROWS:
        change = format_change(runs[base][key], runs["sharing"][key]) if unit and base in runs else ""
        rows.append([name, *(format_value(run[key], unit) for run in runs.values()), change])
    rows.append(
        ["Jobs that were guests", *(str(len({s["job_id"] for s in run["shares"]})) for run in runs.values()), ""]
    )
    rows.append(["Foretold by the simulator", *(format_value(report["predicted"][phase], "s") for phase in runs), ""])
    return rows


def write_report(report: dict[str, Any], folder: Path) -> None:
    """Write report, page and picture."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.sharing_mix.sharing_chart import save_chart  # noqa: PLC0415

    write_report_files(report, folder, draw=lambda one, where: save_chart(one, where / PICTURE), page=render_page)


def render_page(report: Report) -> str:
    """The page: one HTML file without outside assets."""
    runs, title = report["runs"], escape(headline_text(report))
    span_s = max(run["makespan_s"] for run in runs.values()) * 1.01
    charts = "".join(
        f'<section class="card"><h2>{escape(TITLES[phase])}</h2>{render_gantt(run["per_job"], span_s)}</section>'
        for phase, run in runs.items()
    )
    head = "".join(f"<th>{escape(TITLES[phase])}</th>" for phase in runs)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table_rows(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{CSS}</style></head>\n<body><main><h1>{title}</h1>{_lead(report)}"
        f'<section class="card wide"><table><thead><tr><th></th>{head}<th>change</th></tr></thead><tbody>{rows}</tbody>'
        f'</table></section><section class="card wide"><h2>Who shared with whom</h2>{_shares(runs)}</section>'
        f'<div class="pair">{charts}</div>{_method(report)}</main></body></html>\n'
    )


def _lead(report: Report) -> str:
    settings = report["settings"]
    cannot = sum(not job["checkpoints"] for job in report["mix"])
    return (
        f'<p class="soft">The same {settings["jobs"]} jobs by three users on {settings["gpus"]} GPUs of {settings["nodes"]}'
        f" nodes, under Slurm {escape(report['versions'].get('slurm', ''))}. {cannot} of them cannot save their state, so"
        " nothing but sharing helps those that wait for them. A guest joins a running job of its own user on its GPUs under"
        " MPS, where both together get more done than one after the other. Times are real seconds; the trainings are"
        " emulated.</p>"
    )


def _shares(runs: Mapping[str, Any]) -> str:
    names = {job["job_id"]: job["name"] for run in runs.values() for job in run["per_job"]}
    shares: Sequence[Mapping[str, Any]] = [share for run in runs.values() for share in run["shares"]]
    if not shares:
        return "<p>Nobody.</p>"
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(str(cell))}</td>"
            for cell in (
                names.get(share["job_id"], share["job_id"]),
                ", ".join(str(names.get(host, host)) for host in share["hosts"]),
                f"{', '.join(share['nodes'])}: {', '.join(map(str, share['gpus']))}",
                share["phase"],
                share["reason"],
            )
        )
        + "</tr>"
        for share in shares
    )
    return f"<table><tr><th>guest</th><th>host</th><th>GPUs</th><th></th><th>ended because</th></tr>{rows}</table>"


def _method(report: Report) -> str:
    facts = {"Seed": report["seed"], **report["versions"], **report["policies"], "Times from": "sacct --duplicates"}
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items())
    return (
        '<section class="card"><details><summary>How this was measured</summary>'
        f"<dl>{rows}</dl><pre>{escape(chr(10).join(report['commands']))}</pre></details></section>"
    )
