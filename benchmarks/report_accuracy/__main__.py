"""``python -m benchmarks.report_accuracy``: are reports of 60 jobs right to 2 points of utilisation and 5 s of idle time?"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

EMULATION = Path(__file__).parents[2] / "emulation"
UTIL_BOUND, IDLE_BOUND_S = 2.0, 5.0


@click.command()
@click.option("--jobs", default=60, show_default=True, help="How many made-up jobs.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="All figures, GPU by GPU.")
def main(*, jobs: int, seed: int, as_json: bool) -> None:
    """Compare reports with what the emulated GPUs did."""
    with tempfile.TemporaryDirectory() as directory:
        built, state = Path(directory, "built"), Path(directory, "node")
        state.mkdir()
        subprocess.run(["make", "-s", "-C", str(EMULATION), f"OUT={built}", f"{built}/libnvidia-ml.so.1"], check=True)
        found = measured(built, state, jobs, seed)
    if as_json:
        click.echo(json.dumps(found))
    else:
        print_summary(found)
    sys.exit(0 if is_right(found) else 1)


def measured(built: Path, state: Path, jobs: int, seed: int, longest_s: float = 5400.0) -> dict[str, Any]:
    """One measurement in a process that loads the emulated library."""
    numbers = (str(jobs), str(seed), str(longest_s))
    argv = [sys.executable, "-m", "benchmarks.report_accuracy.measurement", *numbers, str(state)]
    environ = {**os.environ, "LD_LIBRARY_PATH": str(built), "SODA_GPU_STATE": str(state)}
    done = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def is_right(found: dict[str, Any]) -> bool:
    """All of it, within the bounds."""
    gpus = [gpu for job in found["jobs"] for gpu in job["gpus"]]
    return all(
        abs(gpu["util_off"]) <= UTIL_BOUND
        and max(gpu["span_start_off_s"], gpu["span_length_off_s"]) <= IDLE_BOUND_S
        and not gpu["invented"]
        and not gpu["lost"]
        and gpu["never_used_right"]
        for gpu in gpus
    ) and not any(job["missing"] for job in found["jobs"])


def print_summary(found: dict[str, Any]) -> None:
    """The largest errors, and what it costs."""
    gpus = [gpu for job in found["jobs"] for gpu in job["gpus"]]
    spans, hours = sum(gpu["spans_told"] for gpu in gpus), found["emulated_s"] / 3600
    click.echo(f"{len(found['jobs'])} jobs, {len(gpus)} GPUs, {hours:.1f} h of run time, {spans} idle spans told")
    rows = [
        ("utilisation of a job, points", [abs(job["util_off"]) for job in found["jobs"]]),
        ("utilisation of a GPU, points", [abs(gpu["util_off"]) for gpu in gpus]),
        ("start of an idle span, s", [gpu["span_start_off_s"] for gpu in gpus if gpu["spans_told"]]),
        ("length of an idle span, s", [gpu["span_length_off_s"] for gpu in gpus if gpu["spans_told"]]),
        ("idle time of a GPU, points", [abs(gpu["idle_off"]) for gpu in gpus]),
    ]
    click.echo(f"{'off by':<32}{'median':>9}{'largest':>9}")
    for name, values in rows:
        click.echo(f"{name:<32}{statistics.median(values):>9.2f}{max(values):>9.2f}")
    wrong = {name: sum(gpu[name] for gpu in gpus) for name in ("invented", "lost")}
    unused = sum(not gpu["never_used_right"] for gpu in gpus)
    click.echo(f"spans invented {wrong['invented']}, lost {wrong['lost']}; GPUs wrongly (not) called unused {unused}")
    of_gpu, of_job = found["json_bytes"] / found["gpus"], found["page_bytes"] / found["rows"]
    click.echo(f"store: {of_gpu:.0f} bytes of JSON a GPU, {of_job:.0f} bytes in all a job")


if __name__ == "__main__":
    main()
