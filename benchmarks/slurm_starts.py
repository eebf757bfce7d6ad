"""What it costs that Slurm starts jobs, not the policy: ``python -m benchmarks.slurm_starts --help``.

In the evaluation the policy starts jobs itself, and lets any job past a wide one that does not fit. On a real cluster it
changes priorities and preempts, and Slurm starts jobs by its own rules: by priority, and by backfill, which keeps nodes for
the first that do not fit. The same workloads are run both ways, without sharing, with all that is learned.
"""

from __future__ import annotations

import math
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import geometric_mean

import click

from benchmarks import one_gpu
from benchmarks.evaluate.cells import Cell, balanced_cells
from benchmarks.regret import make_scenario
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.generators.registry import find_generator
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.simulator.runs.batch import end_with_parent

STARTERS = ("the policy", "Slurm", "stock Slurm alone")


def average_jct_s(cell: Cell, seed: int, policy: str, jobs: int, *, starter: str) -> float:
    """Of one run of the cell's workload.

    Args:
        cell: the combination.
        seed: of the workload.
        policy: which orders and preempts.
        jobs: how many.
        starter: one of :data:`STARTERS`.

    Raises:
        click.ClickException: it failed.
    """
    scenario = replace(make_scenario(cell, seed, policy, jobs, None, known="nothing"), sharing=None)
    if starter == "Slurm":
        scenario = replace(scenario, scope=Scope())
    return one_gpu.average_jct_s(scenario, STOCK if starter == "stock Slurm alone" else policy)


@click.command(help=__doc__)
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1), help="From 1 to this one.")
@click.option("--part", default=0.5, show_default=True, type=click.FloatRange(0.01, 1.0), help="Of each family's jobs.")
@click.option("--policy", default="soda", show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(seeds: int, part: float, policy: str, workers: int | None) -> None:
    """Average JCT by who starts jobs."""
    asked = [(cell, seed, who) for seed in range(1, seeds + 1) for cell in balanced_cells() for who in STARTERS]
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        waiting = [
            pool.submit(
                average_jct_s, cell, seed, policy, math.ceil(part * find_generator(cell.family).jobs), starter=who
            )
            for cell, seed, who in asked
        ]
        jct_s = {one: run.result() for one, run in zip(asked, waiting, strict=True)}
    print(f"| jobs that can checkpoint | runs | {policy} over stock Slurm | the same, started by Slurm | of these |")
    print("|---|--:|--:|--:|--:|")
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell, seed, who in asked:
        if who == STARTERS[0]:
            free_s, real_s, stock_s = (jct_s[cell, seed, one] for one in STARTERS)
            rows[f"{cell.can_checkpoint:.0%}"].append((free_s / stock_s, real_s / stock_s))
    rows["all"] = [one for ratios in list(rows.values()) for one in ratios]
    for group, ratios in rows.items():
        free, real = map(geometric_mean, zip(*ratios, strict=True))
        print(f"| {group} | {len(ratios)} | {free:.3f} | {real:.3f} | {real / free:.3f} |")


if __name__ == "__main__":
    main()
