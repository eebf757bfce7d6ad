"""``python -m benchmarks.evaluate``, ``make evaluate``: policies judged on a matrix of generated workloads."""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.evaluate.cells import POLICIES, Cell, all_cells, choose_policies, quick_cells
from benchmarks.evaluate.findings import find
from benchmarks.evaluate.report import write_report
from benchmarks.evaluate.runs import (
    GPU,
    RESTART_S,
    SAVED_EVERY_S,
    USERS_PART,
    FinishedRun,
    RunSpec,
    finished_runs,
    run_missing,
)
from slurm_soda.policies.errors import PolicyError
from slurm_soda.simulator.generators.registry import find_generator
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.wire.errors import SodaError

PAIRS = "gavel/throughputs.json"
_SEEDS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_QUICK_PART = 0.5
_EVERY = 10


def read_seeds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """``3`` or ``1-5``.

    Raises:
        click.BadParameter: anything else.
    """
    if value is None:
        return None
    found = _SEEDS.fullmatch(value)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise click.BadParameter(f"{value!r} is not allowed; give one seed, such as 3, or some, such as 1-5")
    return tuple(range(first, last + 1))


@click.command()
@click.option("--data", default=Path("../shared/data"), show_default=True, type=click.Path(path_type=Path),
              help=f"Folder with {PAIRS}, the table of measured pairs.")  # fmt: skip
@click.option("--pair-slowdown", type=click.FloatRange(min=1.0), metavar="X",
              help="Without that table: any two jobs fit onto a GPU, and each takes X times as long.")  # fmt: skip
@click.option("--seeds", callback=read_seeds, metavar="A-B", help="Of the workloads.  [default: 1-5; quick: 1]")
@click.option("--quick", is_flag=True, help="Six cells, one seed, half of the jobs: a look, in minutes.")
@click.option("--without", multiple=True, type=click.Choice([name for name in POLICIES if name != STOCK]),
              help="Leave this policy out; repeatable.")  # fmt: skip
@click.option("--jobs", "workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: one a CPU]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Folder of results.  [default: build/evaluate, build/evaluate-quick]")  # fmt: skip
@click.option("--any-code", is_flag=True, help="Take results of other versions of the source as they are.")
@click.option("--report-only", is_flag=True, help="Run nothing; write the report of the results that are there.")
def main(
    *, data: Path, pair_slowdown: float | None, seeds: tuple[int, ...] | None, quick: bool, without: tuple[str, ...],
    workers: int | None, out: Path | None, any_code: bool, report_only: bool,
) -> None:  # fmt: skip
    """Policies on a matrix of generated workloads, against stock Slurm.

    Each run leaves a file; what is there with the same inputs, of the same version of the source, is not run again. So an
    evaluation that was ended goes on where it was.
    """
    folder = out or Path("build/evaluate-quick" if quick else "build/evaluate")
    seeds = seeds or ((1,) if quick else (1, 2, 3, 4, 5))
    cells = quick_cells() if quick else all_cells()
    try:
        policies = choose_policies(without)
        specs = make_specs(cells, seeds, policies, _pairs(data, pair_slowdown), pair_slowdown or 1.0, quick=quick)
        if report_only:
            found = finished_runs(specs, folder, None)
        else:
            processes = workers or len(os.sched_getaffinity(0))
            found = run_missing(specs, folder, workers=processes, any_code=any_code, progress=_tell)
        if not found:
            raise click.ClickException(f"{folder} has no results yet: leave --report-only out")
        ordered = {spec: found[spec] for spec in specs if spec in found}
        written = write_report(find(ordered), about(ordered, specs, pair_slowdown), folder)
    except (SodaError, PolicyError) as error:
        raise click.ClickException(str(error)) from error
    for path in written:
        click.echo(path)
    if any(run.failed for run in found.values()):
        raise click.ClickException("some runs failed: the report names them, and the next evaluation tries them again")


def _pairs(data: Path, pair_slowdown: float | None) -> Path | None:
    if pair_slowdown is not None:
        return None
    path = data / PAIRS
    if not path.exists():
        raise click.ClickException(
            f"{path} is not there: Gavel's table of measured pairs (stanford-futuredata/gavel,"
            " simulation_throughputs.json; docs/evaluation.md). Say where it is with --data, or take --pair-slowdown 1.5"
        )
    return path


def make_specs(
    cells: tuple[Cell, ...], seeds: tuple[int, ...], policies: tuple[str, ...], pairs: Path | None, slowdown: float,
    *, quick: bool,
) -> list[RunSpec]:  # fmt: skip
    """All runs: seed by seed, so that what is there early has every cell."""
    part = _QUICK_PART if quick else 1.0
    return [
        RunSpec(cell, seed, policy, math.ceil(part * find_generator(cell.family).jobs), pairs, slowdown)
        for seed in seeds
        for cell in cells
        for policy in policies
    ]


def about(found: dict[RunSpec, FinishedRun], specs: list[RunSpec], slowdown: float | None) -> dict[str, Any]:
    """What was run, for the head of the report."""
    seeds = sorted({spec.seed for spec in found})
    jobs = {spec.cell.family: spec.jobs for spec in specs}
    took_s = sum(run.took_s for run in found.values())
    return {
        "runs": f"{len(found):,} of {len(specs):,}, {span_text(took_s)} of processor time",
        "seeds": ", ".join(map(str, seeds)),
        "policies": ", ".join(dict.fromkeys(spec.policy for spec in specs)),
        "workloads": ", ".join(f"{family} ({count} jobs)" for family, count in jobs.items()),
        "pairs": f"Gavel's table, {GPU}" if slowdown is None else f"any two fit and take {slowdown:g} times as long",
        "costs": f"{RESTART_S:g} s for a restart; jobs that can checkpoint do so every {SAVED_EVERY_S:g} s of work",
        "users": f"equal shares; one holds at most {100 * USERS_PART:g} % of the GPUs, or one job",
        "source": ", ".join(sorted({run.code for run in found.values()})),
    }


def _tell(done: int, total: int, left_s: float) -> None:
    left = f", about {span_text(left_s)} left" if math.isfinite(left_s) and done < total else ""
    text = f"{done} of {total} runs{left}"
    if sys.stderr.isatty():
        click.echo(f"\r{text:<50}", nl=done == total, err=True)
    elif done % _EVERY == 0 or done == total:
        click.echo(text, err=True)


if __name__ == "__main__":
    main()
