"""Which knowledge ``soda`` lacks, and what that costs: ``python -m benchmarks.regret --help``.

The cells of the evaluation in which some or all jobs can checkpoint, by Slurm's mechanism. Run times are predicted from the
run's own jobs as they end, from many other runs of each job's script before, told by the jobs once they have run for a
while, or known; slowdowns of pairs are predicted from other pairs and learned as they are seen, or known. Regret is the
average JCT over that where both are known. With --past the site has run before: users and scripts are the same, and their
ended jobs have taught.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean

import click
import numpy as np

from benchmarks import one_gpu
from benchmarks.evaluate.cells import PREDICTED, TRUTH, Cell, balanced_cells
from benchmarks.evaluate.runs import RunSpec
from slurm_soda.simulator.generators.registry import find_generator
from slurm_soda.simulator.runs.batch import end_with_parent
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.whatif.candidate_runs import TOLD_AFTER_S
from slurm_soda.simulator.workload import Workload

KNOWN = ("nothing", "scripts", "progress", "pairs", "run times", "both")
"""``scripts``: as nothing, but each job's script has been run before, so that all is known but which of its runs this is;
``progress``: as nothing, but jobs tell what is left of them once they have run for :data:`.TOLD_AFTER_S`."""
OTHER_RUNS = 50
"""Of each job's script, before the workload; a script of ten jobs has 500."""
PAIRS = "gavel/throughputs.json"


def make_scenario(
    cell: Cell, seed: int, policy: str, jobs: int, pairs: Path | None, *, known: str, past: int = 0
) -> Scenario:
    """The evaluation's workload of this cell.

    Args:
        cell: the combination.
        seed: of the workload.
        policy: for which it is.
        jobs: how many.
        pairs: Gavel's table; None: any two jobs take 1.5 times as long.
        known: one of :data:`KNOWN`.
        past: so many times as many jobs have been there before, and have taught where run times are learned.
    """
    told = TRUTH if known in {"pairs", "both"} else PREDICTED
    found = RunSpec(replace(cell, knowledge=told), seed, policy, (1 + past) * jobs, pairs, 1.5).scenario()
    learns = known not in {"run times", "both"}
    workload, before = with_estimates(found.workload, PREDICTED if learns else "exact"), past * jobs
    latest = workload.select(np.arange(before, len(workload)))
    ended = workload.select(np.arange(before)) if before and learns else None
    return replace(
        found,
        workload=latest.with_columns(submit_s=latest.submit_s - latest.submit_s[0]),
        past=_other_runs(latest, cell.family, seed, len(workload)) if known == "scripts" else ended,
        predicted=learns,
        tells_after_s=TOLD_AFTER_S if known == "progress" else math.inf,
    )


def _other_runs(jobs: Workload, family: str, seed: int, drawn: int) -> Workload:
    """Of the same scripts as these jobs, which belong to so many that were drawn."""
    drawn_by = find_generator(family).family
    assert drawn_by is not None, family
    run_s = drawn_by.draw_other_runs(np.random.default_rng(seed), drawn, OTHER_RUNS)
    others = jobs.select(np.tile(np.arange(len(jobs)), OTHER_RUNS))
    mine = np.array([int(label) - 1 for label in jobs.label])
    run_s = np.minimum(run_s[:, mine].ravel(), others.time_limit_s)
    return others.with_columns(run_s=run_s, expected_s=run_s)


def average_jct_s(
    cell: Cell, seed: int, policy: str, jobs: int, pairs: Path | None, *, known: str, past: int = 0
) -> float:
    """Of one run; the arguments are those of :func:`make_scenario`.

    Raises:
        click.ClickException: it failed.
    """
    try:
        return one_gpu.average_jct_s(make_scenario(cell, seed, policy, jobs, pairs, known=known, past=past), policy)
    except click.ClickException as error:
        raise click.ClickException(f"{cell.name}, {known} known: {error.message}") from error


def regrets(jct_s: Mapping[tuple[Cell, int, str], float]) -> dict[str, list[list[float]]]:
    """By family, and of all, for each but the last of :data:`KNOWN`: the ratios to the last."""
    found: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in KNOWN[:-1]])
    for (cell, seed, known), value in jct_s.items():
        if known != KNOWN[-1]:
            ratio = value / jct_s[cell, seed, KNOWN[-1]]
            for group in (cell.family, "all"):
                found[group][KNOWN.index(known)].append(ratio)
    return dict(found)


@click.command(help=__doc__)
@click.option("--data", default=Path("../shared/data"), show_default=True, type=click.Path(path_type=Path),
              help=f"Folder with {PAIRS}; without it any two jobs take 1.5 times as long.")  # fmt: skip
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1), help="From 1 to this one.")
@click.option("--part", default=0.5, show_default=True, type=click.FloatRange(0.01, 1.0), help="Of each family's jobs.")
@click.option("--past", default=0, show_default=True, type=click.IntRange(0),
              help="Jobs of the same users that ended before, in times of those that are run.")  # fmt: skip
@click.option("--policy", default="soda", show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(data: Path, seeds: int, part: float, *, past: int, policy: str, workers: int | None) -> None:
    """Regret by what is known."""
    pairs = data / PAIRS if (data / PAIRS).exists() else None
    cells = [cell for cell in balanced_cells() if cell.can_checkpoint]
    jobs = {cell.family: math.ceil(part * find_generator(cell.family).jobs) for cell in cells}
    asked = [(cell, seed, known) for seed in range(1, seeds + 1) for cell in cells for known in KNOWN]
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        waiting = [
            pool.submit(average_jct_s, cell, seed, policy, jobs[cell.family], pairs, known=known, past=past)
            for cell, seed, known in asked
        ]
        jct_s = {one: run.result() for one, run in zip(asked, waiting, strict=True)}
    print(f"| workloads | runs | {' | '.join(f'{known} known' for known in KNOWN[:-1])} |")
    print(f"|---|--:|{'--:|' * len(KNOWN[:-1])}")
    for group, columns in regrets(jct_s).items():
        print(f"| {group} | {len(columns[0])} | {' | '.join(f'{geometric_mean(one):.3f}' for one in columns)} |")


if __name__ == "__main__":
    main()
