"""How well interference is predicted: ``python -m benchmarks.interference --pairs FILE`` prints the tables.

Every method on every type of GPU, of pairs and of models that it did not see; what a table of one type tells about another;
how much has to be measured; and whether jobs fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.predictors.judging import (
    between_batches,
    carried_over,
    covered,
    error_of_slowdown,
    error_of_xi,
    rows_of,
    with_few_pairs,
    without_each_model,
)
from benchmarks.predictors.methods import AIP, CHOSEN, METHODS
from slurm_soda.learning.held_out_errors import HeldOutPredictions, hold_out_pairs, hold_out_pairs_exactly
from slurm_soda.learning.interference import measured_gpu_types
from slurm_soda.learning.memory_fit import collect_fits, hold_out_fits
from slurm_soda.policies.sharing.prediction.predicted_interference import collect_pairs
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable, parse_speed_table
from slurm_soda.simulator.runs.batch import end_with_parent

SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
SEEDS = (1, 2, 3)
SINGLE = tuple(name for name in METHODS if name != "aip")
"""AIP is the best of its four, so it needs no judging of its own."""


class PredictionFigures(NamedTuple):
    """Of one set of predictions."""

    of_xi: float
    of_slowdown: float
    within_1: float
    within_2: float


class MethodFigures(NamedTuple):
    """One method on one type of GPU."""

    method: str
    pairs: PredictionFigures
    models: PredictionFigures


class MemoryFitFigures(NamedTuple):
    """Whether pairs fit, predicted without each."""

    pairs: int
    apart: int
    missed: int
    """Do not fit, predicted to."""
    refused: int
    """Fit, predicted not to."""
    doubted: int
    """Nothing is predicted, so that they may be tried."""


class Roughness(NamedTuple):
    """How far pairs are from their neighbours, and from what is predicted of the same ones."""

    pairs: int
    halfway: PredictionFigures
    """Between those with the next smaller and the next larger batch."""
    predicted: PredictionFigures


class Part(NamedTuple):
    """One type of GPU."""

    gpu_type: str
    measured: int
    mean_cost: float
    """Of xi - 1."""
    lines: tuple[MethodFigures, ...]
    memory: MemoryFitFigures
    roughness: Roughness


class Transfer(NamedTuple):
    """What is known of one type of GPU from another, from the prior, and from a few of its own pairs."""

    source: str
    target: str
    carried: PredictionFigures
    turns: PredictionFigures
    few: tuple[tuple[int, PredictionFigures], ...]
    """Unordered pairs measured, mean of seeds, on the others."""


class Report(NamedTuple):
    """All tables."""

    parts: tuple[Part, ...]
    transfers: tuple[Transfer, ...]


def figures(judged: HeldOutPredictions) -> PredictionFigures:
    """What is told of predictions."""
    return PredictionFigures(error_of_xi(judged), error_of_slowdown(judged), covered(judged, 1), covered(judged, 2))


def judge(path: Path, gpu_type: str, method: str) -> MethodFigures:
    """One method without each pair and without each model."""
    pairs, fit = collect_pairs(_read(path), gpu_type), METHODS[method]
    exactly = method == "gaussian"
    by_pair = hold_out_pairs_exactly(pairs) if exactly else hold_out_pairs(pairs, fit)
    return MethodFigures(method, figures(by_pair), figures(without_each_model(pairs, fit)))


def memory(table: SpeedTable, gpu_type: str) -> MemoryFitFigures:
    """How often it is predicted wrongly whether two jobs fit."""
    meetings = collect_fits(table, gpu_type)
    told = hold_out_fits(meetings)
    truth = meetings.fits.tolist()
    return MemoryFitFigures(
        len(truth),
        truth.count(False),
        sum(said is True and not fits for said, fits in zip(told, truth, strict=True)),
        sum(said is False and fits for said, fits in zip(told, truth, strict=True)),
        told.count(None),
    )


def roughness(path: Path, gpu_type: str) -> Roughness:
    """What the measurements' own scatter leaves to be known, beside the chosen method without each pair."""
    pairs = collect_pairs(_read(path), gpu_type)
    known, halfway = between_batches(pairs)
    predicted = hold_out_pairs_exactly(pairs)
    return Roughness(len(halfway.log_xi), figures(halfway), figures(rows_of(predicted, known)))


def transfer(path: Path, source: str, target: str) -> Transfer:
    """From one type of GPU to another; then the other by itself, from few pairs."""
    table = _read(path)
    there, here = collect_pairs(table, source), collect_pairs(table, target)
    turns = HeldOutPredictions(here.log_xi, np.full(len(here), np.log(2.0)), np.full(len(here), 0.5))
    few = []
    for share in SHARES:
        found = [with_few_pairs(here, METHODS[CHOSEN], share, seed) for seed in SEEDS]
        mean = np.mean([figures(judged) for _, judged in found], axis=0)
        few.append((found[0][0], PredictionFigures(*map(float, mean))))
    return Transfer(source, target, figures(carried_over(METHODS[CHOSEN](there), here)), figures(turns), tuple(few))


def measure(path: Path, workers: int | None = None, say: Callable[[str], None] = lambda _: None) -> Report:
    """All tables of a file of measured pairs; minutes."""
    table = _read(path)
    types = [name for name in measured_gpu_types(table) if len({kind.model for kind in table.kinds(name)}) > 2]
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        lines = {name: [pool.submit(judge, path, name, method) for method in SINGLE] for name in types}
        routes = [pool.submit(transfer, path, *route) for route in _routes(types)]
        rough = {name: pool.submit(roughness, path, name) for name in types}
        parts = []
        for name in types:
            say(f"interference on {name}")
            pairs = collect_pairs(table, name)
            cost = float(np.expm1(pairs.log_xi).mean())
            found = tuple(line.result() for line in lines[name])
            parts.append(Part(name, len(pairs), cost, found, memory(table, name), rough[name].result()))
        return Report(tuple(parts), tuple(route.result() for route in routes))


def aip_of(part: Part) -> MethodFigures:
    """AIP's choice: of its four the one of least mean absolute error."""
    return min((line for line in part.lines if line.method in AIP), key=lambda line: line.pairs.of_slowdown)


def _routes(types: Sequence[str]) -> list[tuple[str, str]]:
    wanted = [("v100", "k80"), ("k80", "v100")]
    return [(source, target) for source, target in wanted if source in types and target in types]


def _read(path: Path) -> SpeedTable:
    return parse_speed_table(json.loads(path.read_text(encoding="utf-8")))


@click.command()
@click.option("--pairs", required=True, type=click.Path(exists=True, path_type=Path), help="Table in Gavel's format.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(pairs: Path, workers: int | None) -> None:
    """How well interference is predicted."""
    from benchmarks.reproduce.interference import lines  # noqa: PLC0415 - the same words as in the document

    report = measure(pairs, workers, lambda text: click.echo(text, err=True))
    click.echo("\n".join(lines(report)))


if __name__ == "__main__":
    main()
