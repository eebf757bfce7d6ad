"""From an invocation of the demo to its report, its page and its pictures on disk."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_soda.demo import batch, page, truth
from slurm_soda.demo.dump import DUMPS, whatif_command
from slurm_soda.demo.mix import Mix, draw
from slurm_soda.demo.report import compare, run_document
from slurm_soda.demo.run import Phase, PhaseResult, Watch, run_mix_twice
from slurm_soda.demo.settings import CLUSTER_GPUS, NODES, DemoSettings

REPORT, PAGE = "report.json", "index.html"


def tell(settings: DemoSettings, watch: Watch) -> dict[str, Any]:
    """Run the whole demo and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: too few jobs, or a time scale that is not positive.
    """
    mix = draw(settings.seed, settings.jobs, settings.time_scale)
    settings.out.mkdir(parents=True, exist_ok=True)
    results, versions = run_mix_twice(settings, mix, watch)
    report = document(settings, mix, results, versions, _predicted(settings, mix, watch))
    write(report, settings.out)
    return report


def _predicted(settings: DemoSettings, mix: Mix, watch: Watch) -> dict[str, Any] | None:
    """What whatif makes of the stock run; None, and a line about it, if it makes nothing of it."""
    # It brings the whole simulator in, which takes a moment: not before there is something to predict.
    from slurm_soda.demo.forecast import forecast  # noqa: PLC0415

    try:
        return forecast(settings.out / DUMPS["stock"], settings, mix)
    except Exception as error:  # noqa: BLE001 - the runs took minutes, and are whole without it
        watch.say(f"no prediction: {error}")
        return None


def document(
    settings: DemoSettings,
    mix: Mix,
    results: dict[Phase, PhaseResult],
    versions: dict[str, str],
    predicted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again. ``predicted`` is a forecast of both runs."""
    runs = {phase: run_document(result.jobs, CLUSTER_GPUS, result.measured) for phase, result in results.items()}
    return {
        "runs": runs,
        "soda_over_stock": compare(runs["stock"], runs["soda"]),
        "predicted": predicted,
        "whatif_command": whatif_command(settings, mix),
        "seed": settings.seed,
        "settings": {
            "jobs": settings.jobs, "time_scale": settings.time_scale, "policy": settings.policy, "nodes": NODES,
            "gpus": CLUSTER_GPUS, "work_gpu_s": round(mix.work_gpu_s, 1),
            "threshold_gpu_s": round(mix.threshold_gpu_s, 2),
        },
        "versions": versions,
        "commands": _commands(settings, mix),
        "mix": [asdict(job) for job in mix.jobs],
    }  # fmt: skip


def _commands(settings: DemoSettings, mix: Mix) -> list[str]:
    first = mix.jobs[0]
    return [
        f"sodactl demo --seed {settings.seed} --jobs {settings.jobs} --time-scale {settings.time_scale:g}"
        f" --policy {settings.policy}",
        f"{shlex.join(batch.sbatch_argv(first))} <<'END'",
        *batch.batch_script(first, mix.time_scale).splitlines(),
        "END",
        f"SLURM_TIME_FORMAT=%s {shlex.join(truth.sacct_argv([0]))}",
        "sodactl history --json",
    ]


def write(report: dict[str, Any], folder: Path) -> None:
    """Write report, page and pictures."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.pictures import save_pictures  # noqa: PLC0415

    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    (folder / PAGE).write_text(page.render(report))
    save_pictures(report, folder)
