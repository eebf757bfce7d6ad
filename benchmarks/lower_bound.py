"""What no policy can go below on the evaluation's workloads: ``python -m benchmarks.lower_bound --help``.

A lower bound of the average JCT where jobs do not share GPUs, whatever is known, and preemption costs nothing. GPUs are as
one node, a job may run on a part of its GPUs as much slower, and a user holds no more of them than Slurm's limit lets him.
A job ends at least half its run time after the mean time of its work. Which work is to be done when, so that these times are
early, is a problem of least-cost flow (time-indexed relaxation of preemptive scheduling; Schulz and Skutella, *Scheduling
unrelated machines by randomized rounding*, 2002). Time is cut into slots, and work counts from its slot's beginning.
"""

from __future__ import annotations

import math
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import geometric_mean
from typing import NamedTuple

import click
import numpy as np
from ortools.graph.python import min_cost_flow

from benchmarks import one_gpu
from benchmarks.evaluate.__main__ import read_seeds
from benchmarks.evaluate.cells import TRUTH, Cell, balanced_cells
from benchmarks.evaluate.runs import RunSpec, users_limit
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.generators.registry import find_generator
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.simulator.runs.batch import end_with_parent
from slurm_soda.simulator.workload import Workload

SLOTS = 400
_FLOW_A_SLOT, _MOST_COST = 10**6, 10**7
"""Units of flow that fill all GPUs for a slot, and the largest cost of a unit: flows and costs are whole numbers."""


class BoundedRun(NamedTuple):
    """Average JCT of one workload, in seconds."""

    bound_s: float
    policy_s: float
    """Of the policy, told all run times."""
    stock_s: float


def bound_average_jct_s(jobs: Workload, gpus: int, user_gpus: int, slots: int = SLOTS) -> float:
    """The lower bound; jobs without GPUs start at once.

    Args:
        jobs: the workload.
        gpus: of the cluster.
        user_gpus: that one user's jobs may hold together.
        slots: as many parts of the time until all jobs have surely ended.
    """
    on_gpus = jobs.select(jobs.gpus > 0)
    least_s = float(on_gpus.run_s.sum())
    found_s = max(_least_completion_s(on_gpus, gpus, min(user_gpus, gpus), slots), least_s) if len(on_gpus) else 0.0
    return (found_s + float(jobs.run_s[jobs.gpus == 0].sum())) / len(jobs)


def _least_completion_s(jobs: Workload, gpus: int, user_gpus: int, slots: int) -> float:
    """Sum of completion times less those of submission."""
    number = len(jobs)
    first_s = float(jobs.submit_s.min())
    work = jobs.run_s * jobs.gpus
    last_s = float(jobs.submit_s.max() + jobs.run_s.max() + work.sum() / min(user_gpus, gpus))
    width_s = (last_s - first_s) / slots
    unit = gpus * width_s / _FLOW_A_SLOT
    job, slot = _list_arcs(((jobs.submit_s - first_s) // width_s).astype(np.int64), slots)
    begin_s = np.maximum(first_s + width_s * slot, jobs.submit_s[job])
    room = (first_s + width_s * (slot + 1) - begin_s) * jobs.gpus[job]
    cost = (begin_s - jobs.submit_s[job]) / work[job]
    scale = _MOST_COST / max(float(cost.max()), 1e-12)
    users, of_job = np.unique(jobs.user, return_inverse=True)
    held = np.arange(len(users) * slots)  # nodes of the graph: jobs, then users by slot, then slots, then the end
    graph = min_cost_flow.SimpleMinCostFlow()
    _add_arcs(graph, job, number + of_job[job] * slots + slot, np.ceil(room / unit), np.floor(cost * scale))
    user_room = np.full(len(held), math.ceil(user_gpus * width_s / unit))
    slot_nodes, end = number + len(held) + np.arange(slots), number + len(held) + slots
    _add_arcs(graph, number + held, slot_nodes[held % slots], user_room, np.zeros(len(held)))
    _add_arcs(graph, slot_nodes, np.full(slots, end), np.full(slots, _FLOW_A_SLOT), np.zeros(slots))
    supply = np.zeros(end + 1)
    supply[:number] = np.floor(work / unit)
    supply[end] = -supply[:number].sum()
    graph.set_nodes_supplies(np.arange(end + 1, dtype=np.int32), supply.astype(np.int64))
    status = graph.solve()
    if status != graph.OPTIMAL:
        raise click.ClickException(f"{jobs.name}: no flow was found ({status})")
    return graph.optimal_cost() / scale * unit + float(jobs.run_s.sum()) / 2.0


def _list_arcs(first: IntColumn, slots: int) -> tuple[IntColumn, IntColumn]:
    """Each job with each slot in which it may run, from its first one on."""
    first = np.minimum(first, slots - 1)
    job = np.repeat(np.arange(len(first)), slots - first)
    slot = np.concatenate([np.arange(one, slots) for one in first.tolist()])
    return job, slot


def _add_arcs(
    graph: min_cost_flow.SimpleMinCostFlow, tail: IntColumn, head: IntColumn, room: FloatColumn, cost: FloatColumn
) -> None:
    graph.add_arcs_with_capacity_and_unit_cost(
        tail.astype(np.int32), head.astype(np.int32), room.astype(np.int64), cost.astype(np.int64)
    )


def run_bounded(cell: Cell, seed: int, policy: str, jobs: int, slots: int = SLOTS) -> BoundedRun:
    """The bound beside what a policy reaches that is told all run times, and stock Slurm; none of them shares GPUs.

    Raises:
        click.ClickException: a run failed.
    """
    scenario = RunSpec(replace(cell, knowledge=TRUTH), seed, policy, jobs, None, 1.5).scenario()
    scenario = replace(scenario, sharing=None)
    workload, cluster = scenario.workload, scenario.cluster
    bound_s = bound_average_jct_s(workload, cluster.total_gpus, users_limit(workload, cluster), slots)
    return BoundedRun(bound_s, *(one_gpu.average_jct_s(scenario, name) for name in (policy, STOCK)))


@click.command(help=__doc__)
@click.option("--seeds", default="1-3", show_default=True, callback=read_seeds, help="One, or from and to.")
@click.option("--part", default=1.0, show_default=True, type=click.FloatRange(0.01, 1.0), help="Of each family's jobs.")
@click.option("--policy", default="soda", show_default=True)
@click.option(
    "--slots", default=SLOTS, show_default=True, type=click.IntRange(10), help="More are slower, and sharper."
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(seeds: tuple[int, ...], part: float, policy: str, slots: int, workers: int | None) -> None:
    """Lower bounds where all jobs can checkpoint."""
    cells = [cell for cell in balanced_cells() if cell.can_checkpoint == 1]
    asked = [(cell, seed) for seed in seeds for cell in cells]
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        waiting = [
            pool.submit(run_bounded, cell, seed, policy, math.ceil(part * find_generator(cell.family).jobs), slots)
            for cell, seed in asked
        ]
        found = [run.result() for run in waiting]
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (cell, _), one in zip(asked, found, strict=True):
        rows[cell.family].append((one.bound_s / one.stock_s, one.policy_s / one.stock_s))
    rows["all"] = [one for ratios in list(rows.values()) for one in ratios]
    print(f"| workloads | runs | lower bound over stock Slurm | {policy}, told all run times | over the bound |")
    print("|---|--:|--:|--:|--:|")
    for group, ratios in rows.items():
        bound, reached = map(geometric_mean, zip(*ratios, strict=True))
        print(f"| {group} | {len(ratios)} | {bound:.3f} | {reached:.3f} | {reached / bound:.3f} |")


if __name__ == "__main__":
    main()
