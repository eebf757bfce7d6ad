"""From an invocation of the burst to its report, its page and its chart on disk."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_soda.demo.cluster_runs import DemoObserver
from slurm_soda.demo.cpu_burst import report_page, sbatch
from slurm_soda.demo.cpu_burst.burst_figures import BurstNode, check_promises, run_document
from slurm_soda.demo.cpu_burst.burst_jobs import BurstJob, draw_burst
from slurm_soda.demo.cpu_burst.burst_runs import APPLY_COMMAND, BurstResult, run_burst_twice
from slurm_soda.demo.cpu_burst.burst_settings import NODE, NODES, POLICY, BurstSettings
from slurm_soda.demo.report_files import write_report_files


def run_burst_demo(settings: BurstSettings, watch: DemoObserver) -> dict[str, Any]:
    """Run the whole burst and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: a scale that is not in (0, 1].
    """
    jobs = draw_burst(settings.seed, scale=settings.scale)
    settings.out.mkdir(parents=True, exist_ok=True)
    report = report_document(settings, jobs, run_burst_twice(settings, jobs, watch))
    write_report(report, settings.out)
    return report


def report_document(settings: BurstSettings, jobs: tuple[BurstJob, ...], burst: BurstResult) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again."""
    runs = {
        "stock": run_document(burst.stock, NODE),
        "soda": run_document(burst.soda, NODE, burst.layout),
    }
    first = jobs[0]
    return {
        "headline": report_page.headline_text(runs),
        "verdicts": check_promises(runs["stock"], runs["soda"], settings.max_aborts),
        "runs": runs,
        "longest_queue_s": max(job["queue_s"] for run in runs.values() for job in run["per_job"]),
        "cluster": _node_document(NODE),
        "cpu_cores": {"stock": None, "soda": burst.layout.cpu_cores},
        "pools": burst.pools,
        "log": burst.log,
        "seed": settings.seed,
        "settings": {"scale": settings.scale, "policy": POLICY, "max_aborts": settings.max_aborts},
        "versions": burst.versions,
        "commands": [
            f"sodactl demo --pools --seed {settings.seed}",
            f"{shlex.join(sbatch.sbatch_argv(first))} <<'END'",
            *sbatch.batch_script(first).splitlines(),
            "END",
            shlex.join(("sodactl", *APPLY_COMMAND)),
            "sodactl pools log",
        ],
        "mix": [asdict(job) for job in jobs],
    }


def _node_document(node: BurstNode) -> dict[str, int]:
    return {"nodes": NODES, "cores": NODES * node.cores, "gpus": NODES * node.gpus}


def write_report(report: dict[str, Any], folder: Path) -> None:
    """Write report, chart and page."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.cpu_burst.charts import CHART_FILE, save_chart  # noqa: PLC0415

    write_report_files(
        report,
        folder,
        draw=save_chart,
        page=lambda one: report_page.render_page(one, (folder / CHART_FILE).read_bytes()),
    )
