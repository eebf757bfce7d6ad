"""The findings as Markdown, JSON and one picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.evaluate.cells import JUDGED, Cell
from benchmarks.evaluate.findings import BEST, FAR, MORE_WAIT, USER_BOUND, WITHIN, Findings, PolicyInCell, PolicyOverall
from benchmarks.reproduce.document import bullet, number, paragraph, table
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.charts.palette import LIGHT, hue_index
from slurm_soda.simulator.report.charts.png_charts import plain_axes, png_bytes, title_axes
from slurm_soda.simulator.report.paired_statistics import AVG_JCT, P99_WAIT, WORST_JOB, WORST_USER, Ratio

WANTED = {1.0: 0.50, 0.3: 0.75}
WANTED_NEW_SITE, WANTED_REGRET = 0.90, 1.08
NINE_OF_TEN, ONE_OF_TEN = 0.9, 0.1
TITLES = {AVG_JCT: "average JCT", P99_WAIT: "p99 wait", WORST_USER: "worst user", WORST_JOB: "worst job"}


def write_report(found: Findings, about: Mapping[str, Any], folder: Path) -> list[Path]:
    """``evaluation.md``, ``evaluation.json`` and ``evaluation.png``; ``about``: what was run, for the reader.

    Raises:
        SimulatorError: a file cannot be written.
    """
    files = {
        "evaluation.md": "\n".join(markdown(found, about)).rstrip() + "\n",
        "evaluation.json": json.dumps(document(found, about), indent=1) + "\n",
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    write_atomically(folder / "evaluation.png", png_bytes(draw(found)))
    return [folder / name for name in (*files, "evaluation.png")]


def document(found: Findings, about: Mapping[str, Any]) -> dict[str, Any]:
    """As plain data; NaN is null."""
    cells = [
        {**asdict(cell), "name": cell.name, "policies": {name: one.document() for name, one in policies.items()}}
        for cell, policies in found.cells.items()
    ]
    whole = {
        "about": dict(about),
        "overall": {name: one.document() for name, one in found.overall.items()},
        "told": {
            name: {f"{level:g}": ratio.document() for level, ratio in each.items()} for name, each in found.told.items()
        },
        "cells": cells,
        "failed": [{"run": f"{spec.cell.name}/{spec.policy}-{spec.seed}", "reason": why} for spec, why in found.failed],
    }
    return dict(_without_nan(whole))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def markdown(found: Findings, about: Mapping[str, Any]) -> Iterator[str]:
    """Line by line."""
    yield from ["# Policies on the matrix of generated workloads", ""]
    yield from [f"- {key}: {value}" for key, value in about.items()]
    yield ""
    yield from paragraph(
        f"All ratios are against stock Slurm (`{STOCK}`) on the same jobs: geometric means over the seeds, in brackets 95 %",
        "intervals from resampled seeds and users; below 1 is better. *Worst user*: the largest mean JCT of a user. p99",
        "waits below a minute count as one.",
    )
    yield from _summary(found.overall)
    if found.told:
        yield from _told(found.told)
    yield from ["![Average JCT against stock Slurm](evaluation.png)", ""]
    yield from ["## Cells", ""]
    for cell, policies in found.cells.items():
        yield from _cell(cell, policies)
    if found.failed:
        yield from ["## Runs that failed", ""]
        yield from [f"- {spec.cell.name}, `{spec.policy}`, seed {spec.seed}: {why}" for spec, why in found.failed]


def _summary(overall: Mapping[str, PolicyOverall]) -> Iterator[str]:
    yield from ["## Over the cells with Slurm's mechanism and learned knowledge", ""]
    levels = sorted({level for one in overall.values() for level in one.by_checkpoint}, reverse=True)
    head = [
        "policy",
        *(f"{100 * level:g} % can checkpoint" for level in levels),
        "none can, half consent",
        f"within {100 * WITHIN - 100:.0f} % of the best",
        f"worse by {100 * FAR - 100:.0f} %",
        f"p99 wait over {MORE_WAIT:g}",
        f"worst user over {USER_BOUND:g}",
        "regret",
        "price of the mechanism",
    ]
    rows = [
        [
            f"`{name}`",
            *(_ratio(one.by_checkpoint.get(level)) for level in levels),
            _ratio(one.new_site),
            *(
                f"{count} of {one.cells}"
                for count in (one.near_best, len(one.far_from_best), len(one.longer_waits), len(one.slower_users))
            ),
            number(one.regret, 3),
            number(one.mechanism, 3),
        ]
        for name, one in overall.items()
    ]
    yield from [*table(head, rows), ""]
    if JUDGED in overall:
        yield from [f"What is wanted of `{JUDGED}`:", "", *_claims(overall[JUDGED]), ""]


def _told(told: Mapping[str, Mapping[float, Ratio]]) -> Iterator[str]:
    yield from ["## Where run times and slowdowns are known", ""]
    levels = sorted({level for each in told.values() for level in each}, reverse=True)
    head = ["policy", *(f"{100 * level:g} % can checkpoint" for level in levels)]
    rows = [
        [name if name == BEST else f"`{name}`", *(_ratio(each.get(level)) for level in levels)]
        for name, each in told.items()
    ]
    yield from [*table(head, rows), ""]


def _claims(one: PolicyOverall) -> Iterator[str]:
    for level, most in WANTED.items():
        yield from _claim(one.by_checkpoint.get(level), most, f"average JCT where {100 * level:g} % can checkpoint")
    yield from _claim(one.new_site, WANTED_NEW_SITE, "average JCT where none can and half consent")
    for holds, text in (
        (one.near_best >= NINE_OF_TEN * one.cells, f"within 3 % of the best in {one.near_best} of {one.cells} cells"),
        (not one.far_from_best, f"worse by more than 10 % in {_named(one.far_from_best)}"),
        (
            len(one.longer_waits) <= ONE_OF_TEN * one.cells,
            f"p99 wait more than 10 % longer in {_named(one.longer_waits)}",
        ),
        (len(one.slower_users) <= ONE_OF_TEN * one.cells, f"worst user beyond 1.5 in {_named(one.slower_users)}"),
    ):
        yield from bullet("✓" if holds else "✗", text)
    if not math.isnan(one.regret):
        holds = one.regret <= WANTED_REGRET
        yield from bullet("✓" if holds else "✗", f"regret {one.regret:.3f}, at most {WANTED_REGRET:g} wanted")


def _claim(ratio: Ratio | None, most: float, what: str) -> list[str]:
    if ratio is None:
        return []
    return bullet("✓" if ratio.value <= most else "✗", f"{what}: {_ratio(ratio)}, at most {most:g} wanted")


def _named(cells: Sequence[str]) -> str:
    return ", ".join(cells) if cells else "no cell"


def _cell(cell: Cell, policies: Mapping[str, PolicyInCell]) -> Iterator[str]:
    yield f"### {cell.family}, load {cell.load:g}"
    yield ""
    yield from paragraph(
        f"{100 * cell.can_checkpoint:g} % of the jobs can checkpoint, {100 * cell.consent:g} % consent; mechanism",
        f"`{cell.mechanism}`, knowledge: {cell.knowledge}.",
    )
    head = ["policy", "average JCT (s)", *(TITLES[key] for key in TITLES), "most hurt user", "preemptions a job",
            "requeued guests a job", "over the best other"]  # fmt: skip
    rows = []
    for name, one in policies.items():
        best = f"{number(one.against_best, 3)} (`{one.best_other}`)" if one.best_other else "–"
        rows.append([
            f"`{name}`", number(one.avg_jct_s, 0), *(_ratio(one.against_stock[key]) for key in TITLES),
            number(one.most_hurt_user, 2), number(one.preemptions_a_job, 2), number(one.revoked_a_job, 2), best,
        ])  # fmt: skip
    yield from [*table(head, rows), ""]


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio.value:.3f} ({ratio.low:.2f} to {ratio.high:.2f})"


def draw(found: Findings) -> Figure:
    """Average JCT against stock Slurm: a row a cell, a point a policy, with intervals."""
    names = list(found.overall)
    figure = Figure(figsize=(9, 1.6 + 0.28 * max(len(found.cells), 1)), layout="constrained")
    axes = figure.subplots()
    for number_of, name in enumerate(names):
        points = [(row, found.cells[cell][name]) for row, cell in enumerate(found.cells) if name in found.cells[cell]]
        ratios = [one.against_stock[AVG_JCT] for _, one in points]
        shift = 0.7 * ((number_of + 0.5) / len(names) - 0.5)
        axes.errorbar(
            [ratio.value for ratio in ratios],
            [row + shift for row, _ in points],
            xerr=[
                [max(ratio.value - ratio.low, 0.0) for ratio in ratios],
                [max(ratio.high - ratio.value, 0.0) for ratio in ratios],
            ],
            fmt="o", ms=3.5, lw=0.8, color=LIGHT[hue_index(number_of)], label=name,
        )  # fmt: skip
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_yticks(range(len(found.cells)), [_short(cell) for cell in found.cells], fontsize=7)
    axes.set_ylim(len(found.cells) - 0.5, -0.5)
    axes.set_xscale("log")
    ticks = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)
    low, high = axes.get_xlim()
    axes.set_xticks(
        [tick for tick in ticks if low <= tick <= high], [f"{tick:g}" for tick in ticks if low <= tick <= high]
    )
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"average JCT over that of stock Slurm ({STOCK}), logarithmic; 95 % intervals")
    plain_axes(axes)
    title_axes(axes, "Average JCT against stock Slurm", "can checkpoint / consent / load, mechanism, knowledge")
    figure.legend(loc="outside upper right", frameon=False, fontsize=8, ncols=max(len(names), 1))
    return figure


def _short(cell: Cell) -> str:
    parts = f"{100 * cell.can_checkpoint:g} % / {100 * cell.consent:g} % / {cell.load:g}"
    return f"{cell.family}  {parts}  {cell.mechanism}, {cell.knowledge}"
