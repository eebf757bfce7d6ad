"""How often jobs are slowed beyond their owners' bounds: ``python -m benchmarks.owners_bounds --pairs FILE``.

Jobs of the kinds of a pair table, drawn by seed, a quarter of them without a bound; the truth of the table moves the
simulation, policies know what ``--knowledge`` says. A bound is broken where the mean slowdown of a job over the time that it
shared exceeds it. With ``--no-parting`` such jobs stay together.
"""

from __future__ import annotations

import csv
import json
import math
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import click

from slurm_soda.policies.sharing.prediction.speed_tables import parse_speed_table
from slurm_soda.simulator.runs.batch import end_with_parent
from slurm_soda.sodactl.main import run

POLICIES = (
    "sjf-ffs bound_caution=0", "sjf-ffs", "sjf-bsbf bound_caution=0", "sjf-bsbf bound_caution=1", "sjf-bsbf",
    "sjf-bsbf caution=2", "srsf-share", "ojpp", "colocation bound_caution=0", "colocation", "soda",
)  # fmt: skip
KNOWLEDGE = ("truth", "predicted")
JOBS = 400
BOUNDS = ("", 1.1, 1.3, 1.6)
CLUSTER = "4x4"
_TOLERANCE = 1.001


class Broken(NamedTuple):
    """Of one simulation; jobs with a bound count."""

    avg_jct_s: float
    bounded: int
    shared: int
    broken: int
    worst: float
    """Largest slowdown over its bound."""
    beyond_h: float
    """Hours that those whose bound is broken shared."""
    parted: int


def draw(pairs: Path, gpu_type: str, seed: int, path: Path) -> None:
    """Jobs that arrive every 250 s on average, of 1 to 4 GPUs and some half an hour, onto 16 GPUs."""
    kinds = parse_speed_table(json.loads(pairs.read_text(encoding="utf-8"))).kinds(gpu_type)
    rng, at_s = random.Random(seed), 0.0
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["num_gpu", "submit_time", "duration", "model_name", "batch_size", "max_slowdown"])
        for _ in range(JOBS):
            at_s += rng.expovariate(1 / 250)
            kind, gpus, run_s = rng.choice(kinds), rng.choice((1, 1, 1, 2, 4)), round(rng.lognormvariate(7.3, 1.1))
            lines.writerow([gpus, round(at_s, 1), run_s, kind.model, kind.batch, rng.choice(BOUNDS)])


def judge(pairs: Path, gpu_type: str, told: str, policy: str, seed: int, *, parting: bool) -> Broken:
    """One simulation; O(jobs) besides."""
    name, *settings = policy.split()
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder, "trace.csv"), Path(folder, "out")
        draw(pairs, gpu_type, seed, trace)
        asked = ["--trace", trace, "--cluster", f"{CLUSTER}:{gpu_type}", "--pairs", pairs, "--knowledge", told,
                 "--policy", name, *(word for one in settings for word in ("--set", one)), "--out", out,
                 "--passing-limit-s", "inf", "--parting" if parting else "--no-parting"]  # fmt: skip
        with redirect_stdout(StringIO()):
            status = run(["simulate", *map(str, asked)])
        if status:
            raise click.ClickException(f"{policy} with knowledge {told} and seed {seed} failed: see above")
        bounds = [float(row["max_slowdown"] or "inf") for row in _rows(trace)]
        jobs = _rows(out / "jobs.csv")
        parted = json.loads((out / "report.json").read_text(encoding="utf-8"))["parted"]
    shared = [(job, bound) for job, bound in zip(jobs, bounds, strict=True) if job["xi"] and bound < math.inf]
    ratios = [float(job["xi"]) / bound for job, bound in shared]
    beyond_s = sum(float(job["shared_s"]) for (job, _), ratio in zip(shared, ratios, strict=True) if ratio > _TOLERANCE)
    jct_s = sum(float(job["jct_s"]) for job in jobs) / len(jobs)
    broken = sum(ratio > _TOLERANCE for ratio in ratios)
    bounded = sum(bound < math.inf for bound in bounds)
    return Broken(jct_s, bounded, len(ratios), broken, max(ratios, default=0.0), beyond_s / 3600, parted)


def _rows(path: Path) -> Sequence[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@click.command()
@click.option("--pairs", required=True, type=click.Path(exists=True, path_type=Path), help="Table in Gavel's format.")
@click.option("--gpu-type", default="v100", show_default=True, help="Type of GPU in the table.")
@click.option("--policy", "policies", multiple=True, type=click.Choice(POLICIES), help="Only these.")
@click.option("--knowledge", multiple=True, type=click.Choice(KNOWLEDGE), help="Only this.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="From 1 to this one.")
@click.option("--parting/--no-parting", default=True, show_default=True, help="As in sodactl simulate.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(  # noqa: PLR0917 - options
    pairs: Path,
    gpu_type: str,
    policies: Sequence[str],
    knowledge: Sequence[str],
    seeds: int,
    parting: bool,
    workers: int | None,
) -> None:
    """How often jobs are slowed beyond their owners' bounds."""
    print(
        "| policy | knowledge | average JCT, s | jobs with a bound | of these shared | broken | worst, of the bound | "
        "hours beyond | parted |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        asked = list(product(policies or POLICIES, knowledge or KNOWLEDGE))
        waiting = [
            [pool.submit(judge, pairs, gpu_type, told, policy, seed, parting=parting) for seed in range(1, seeds + 1)]
            for policy, told in asked
        ]
        for (policy, told), runs in zip(asked, waiting, strict=True):
            found = [one.result() for one in runs]
            jct_s, worst = sum(one.avg_jct_s for one in found) / len(found), max(one.worst for one in found)
            bounded, shared = sum(one.bounded for one in found), sum(one.shared for one in found)
            broken, parted = sum(one.broken for one in found), sum(one.parted for one in found)
            beyond_h = sum(one.beyond_h for one in found)
            print(
                f"| `{policy}` | {told} | {jct_s:,.0f} | {bounded} | {shared} | {broken} | {worst:.2f} | {beyond_h:.1f} |"
                f" {parted} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
