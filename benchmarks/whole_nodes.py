"""Jobs that want all their GPUs on the fewest nodes: ``soda`` whose jobs move beside ``soda`` whose jobs do not.

The cells of the evaluation in which some or all jobs can checkpoint, by Slurm's mechanism, with all that is learned: but
each gang wants as many GPUs of each of its nodes, and the fewest nodes. ``python -m benchmarks.whole_nodes --help``
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import click
import numpy as np

from benchmarks.evaluate.cells import Cell, balanced_cells
from benchmarks.one_gpu import run_once
from benchmarks.regret import PAIRS, make_scenario
from slurm_soda.simulator.generators.registry import find_generator
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.workload import Workload

POLICY = "soda"
CHOICES = tuple(PolicyChoice(POLICY, {"moves": moves}) for moves in (True, False))


def on_fewest_nodes(workload: Workload, node_gpus: int) -> Workload:
    """The jobs, of which each wants the same number of GPUs on each of the fewest nodes; rounded up where that must be."""
    nodes = np.maximum(workload.nodes, -(-workload.gpus // node_gpus))
    each = -(-workload.gpus // nodes)
    return workload.with_columns(nodes=nodes, gpus_per_node=each, gpus=each * nodes)


def whole_nodes_scenario(cell: Cell, seed: int, jobs: int, pairs: Path | None) -> Scenario:
    """The evaluation's workload of this cell, so changed."""
    found = make_scenario(cell, seed, POLICY, jobs, pairs, known="nothing")
    return replace(found, workload=on_fewest_nodes(found.workload, int(found.cluster.gpus.max())))


def compare_moves(scenario: Scenario) -> tuple[float, int, int]:
    """Average JCT where jobs move over that where they do not, and how many preemptions there were in the one and the other.

    Raises:
        click.ClickException: a run failed.
    """
    moving, staying = (run_once(scenario, choice).summary for choice in CHOICES)
    return moving.avg_jct_s / staying.avg_jct_s, moving.preemptions, staying.preemptions


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path), default=Path("../shared/data"), show_default=True,
              help=f"Folder with {PAIRS}; without it any two jobs take 1.5 times as long.")  # fmt: skip
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1), help="From 1 to this one.")
@click.option("--part", default=0.5, show_default=True, type=click.FloatRange(0.01, 1.0), help="Of each family's jobs.")
def main(data: Path, seeds: int, part: float) -> None:
    """Prints each run as it ends, and means by family and by how many jobs can checkpoint."""
    pairs = data / PAIRS if (data / PAIRS).exists() else None
    found: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for seed in range(1, seeds + 1):
        for cell in balanced_cells():
            if not cell.can_checkpoint:
                continue
            jobs = math.ceil(part * find_generator(cell.family).jobs)
            compared = compare_moves(whole_nodes_scenario(cell, seed, jobs, pairs))
            click.echo(
                f"{cell.name}, seed {seed}: {compared[0]:.3f}, preemptions {compared[2]} -> {compared[1]}", err=True
            )
            for group in (cell.family, f"{cell.can_checkpoint:.0%} can checkpoint", "all"):
                found[group].append(compared)
    click.echo("| workloads | runs | JCT | least, most | preemptions without | with |\n|---|--:|--:|---|--:|--:|")
    for group, runs in found.items():
        ratios, moving, staying = zip(*runs, strict=True)
        extremes = f"{min(ratios):.3f}, {max(ratios):.3f}"
        click.echo(
            f"| {group} | {len(runs)} | {geometric_mean(ratios):.3f} | {extremes} | {sum(staying)} | {sum(moving)} |"
        )


if __name__ == "__main__":
    main()
