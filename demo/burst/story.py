"""From an invocation of the burst to its report, its page and its picture on disk."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_soda.demo.burst import batch, page
from slurm_soda.demo.burst.figures import Node, run_document, verdicts
from slurm_soda.demo.burst.mix import BurstJob, draw
from slurm_soda.demo.burst.run import APPLY, Burst, run_twice
from slurm_soda.demo.burst.settings import NODE, NODES, POLICY, BurstSettings
from slurm_soda.demo.run import Watch

REPORT, PAGE = "report.json", "index.html"


def tell(settings: BurstSettings, watch: Watch) -> dict[str, Any]:
    """Run the whole burst and write its files into ``settings.out``; the report.

    Raises:
        ClusterError: no cluster can be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: a scale that is not in (0, 1].
    """
    jobs = draw(settings.seed, scale=settings.scale)
    settings.out.mkdir(parents=True, exist_ok=True)
    report = document(settings, jobs, run_twice(settings, jobs, watch))
    write(report, settings.out)
    return report


def document(settings: BurstSettings, jobs: tuple[BurstJob, ...], burst: Burst) -> dict[str, Any]:
    """The report: plain data, enough to draw the page again."""
    runs = {
        "stock": run_document(burst.stock, NODE),
        "soda": run_document(burst.soda, NODE, burst.layout),
    }
    first = jobs[0]
    return {
        "headline": page.headline(runs),
        "verdicts": verdicts(runs["stock"], runs["soda"], settings.max_aborts),
        "runs": runs,
        "longest_queue_s": max(job["queue_s"] for run in runs.values() for job in run["per_job"]),
        "cluster": _whole(NODE),
        "cpu_cores": {"stock": None, "soda": burst.layout.cpu_cores},
        "arrays": burst.arrays,
        "log": burst.log,
        "seed": settings.seed,
        "settings": {"scale": settings.scale, "policy": POLICY, "max_aborts": settings.max_aborts},
        "versions": burst.versions,
        "commands": [
            f"sodactl demo --arrays --seed {settings.seed}",
            f"{shlex.join(batch.sbatch_argv(first))} <<'END'",
            *batch.batch_script(first).splitlines(),
            "END",
            shlex.join(("sodactl", *APPLY)),
            "sodactl arrays log",
        ],
        "mix": [asdict(job) for job in jobs],
    }


def _whole(node: Node) -> dict[str, int]:
    return {"nodes": NODES, "cores": NODES * node.cores, "gpus": NODES * node.gpus}


def write(report: dict[str, Any], folder: Path) -> None:
    """Write report, picture and page."""
    # Drawing needs matplotlib, which takes a second to import: not before there is something to draw.
    from slurm_soda.demo.burst.pictures import save_picture  # noqa: PLC0415

    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    picture = save_picture(report, folder)
    (folder / PAGE).write_text(page.render(report, picture.read_bytes()))
