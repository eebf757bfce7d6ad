"""From an invocation of the demo to its report, its page and its pictures on disk."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_soda.demo import accounting
from slurm_soda.demo.cluster_runs import DemoObserver, DemoPhase, DemoPhaseResult, run_mix_twice
from slurm_soda.demo.job_mix import report_page, sbatch
from slurm_soda.demo.job_mix.demo_settings import CLUSTER_GPUS, NODES, DemoSettings
from slurm_soda.demo.job_mix.mix_figures import compare_figures, run_document
from slurm_soda.demo.job_mix.mix_jobs import JobMix, draw_mix
from slurm_soda.demo.job_mix.sacct_dump import DUMP_FILES, whatif_command
from slurm_soda.demo.report_files import write_report_files


def run_demo(settings: DemoSettings, watch: DemoObserver) -> dict[str, Any]:
    """Run the whole demo and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: too few jobs, or a time scale that is not positive.
    """
    mix = draw_mix(settings.seed, settings.jobs, settings.time_scale)
    settings.out.mkdir(parents=True, exist_ok=True)
    results, versions = run_mix_twice(settings, mix, watch)
    report = report_document(settings, mix, results, versions, _forecast(settings, mix, watch))
    write_report(report, settings.out)
    return report


def _forecast(settings: DemoSettings, mix: JobMix, watch: DemoObserver) -> dict[str, Any] | None:
    """What whatif makes of the stock run; None, and a line about it, if it makes nothing of it."""
    # It brings the whole simulator in, which takes a moment: not before there is something to predict.
    from slurm_soda.demo.job_mix.whatif_forecast import forecast_runs  # noqa: PLC0415

    try:
        return forecast_runs(settings.out / DUMP_FILES["stock"], settings, mix)
    except Exception as error:  # noqa: BLE001 - the runs took minutes, and are whole without it
        watch.say(f"no prediction: {error}")
        return None


def report_document(
    settings: DemoSettings,
    mix: JobMix,
    results: dict[DemoPhase, DemoPhaseResult],
    versions: dict[str, str],
    predicted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again. ``predicted`` is a forecast of both runs."""
    runs = {phase: run_document(result.jobs, CLUSTER_GPUS, result.measured) for phase, result in results.items()}
    return {
        "runs": runs,
        "soda_over_stock": compare_figures(runs["stock"], runs["soda"]),
        "predicted": predicted,
        "whatif_command": whatif_command(settings, mix),
        "seed": settings.seed,
        "settings": {
            "jobs": settings.jobs,
            "time_scale": settings.time_scale,
            "policy": settings.policy,
            "nodes": NODES,
            "gpus": CLUSTER_GPUS,
            "work_gpu_s": round(mix.work_gpu_s, 1),
            "threshold_gpu_s": round(mix.threshold_gpu_s, 2),
        },
        "versions": versions,
        "commands": _commands(settings, mix),
        "mix": [asdict(job) for job in mix.jobs],
    }


def _commands(settings: DemoSettings, mix: JobMix) -> list[str]:
    first = mix.jobs[0]
    return [
        f"sodactl demo --seed {settings.seed} --jobs {settings.jobs} --time-scale {settings.time_scale:g}"
        f" --policy {settings.policy}",
        f"{shlex.join(sbatch.sbatch_argv(first))} <<'END'",
        *sbatch.batch_script(first, mix.time_scale).splitlines(),
        "END",
        f"SLURM_TIME_FORMAT=%s {shlex.join(accounting.sacct_argv([0]))}",
        "sodactl history --json",
    ]


def write_report(report: dict[str, Any], folder: Path) -> None:
    """Write report, page and pictures."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.job_mix.charts import save_charts  # noqa: PLC0415

    write_report_files(report, folder, draw=save_charts, page=report_page.render_page)
