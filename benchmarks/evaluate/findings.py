"""What the runs of the matrix say, cell by cell and over all cells, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.evaluate.cells import PREDICTED, TRUTH, Cell, partner
from benchmarks.evaluate.runs import FinishedRun, RunSpec
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.simulator.report.paired_statistics import (
    AVG_JCT,
    P99_WAIT,
    WORST_USER,
    Ratio,
    compare_runs,
    figures,
    geometric_mean,
    most_hurt_user,
)

Runs = Mapping[str, Mapping[int, FinishedRun]]
"""By policy and seed."""
BEST = "the best of each cell"
WITHIN, FAR, MORE_WAIT, USER_BOUND = 1.03, 1.10, 1.10, 1.5
"""As good as the best; worse than it; a longer 99th percentile of waits, a slower worst user, each against stock Slurm."""


@dataclass(frozen=True, slots=True)
class PolicyInCell:
    """One policy in one cell, over the seeds that it and stock Slurm ran."""

    avg_jct_s: float
    against_stock: Mapping[str, Ratio]
    """By :data:`~slurm_soda.simulator.report.paired_statistics.FIGURES`."""
    best_other: str
    """The policy of least average JCT among the others; empty: there is none."""
    against_best: float
    """This one's average JCT over that one's, as ratios to stock Slurm; NaN: there is none."""
    most_hurt_user: float
    preemptions_a_job: float
    revoked_a_job: float
    took_s: float

    def document(self) -> dict[str, Any]:
        """As plain data."""
        ratios = {key: ratio.document() for key, ratio in self.against_stock.items()}
        plain = (
            "avg_jct_s",
            "best_other",
            "against_best",
            "most_hurt_user",
            "preemptions_a_job",
            "revoked_a_job",
            "took_s",
        )
        return {**{key: getattr(self, key) for key in plain}, "against_stock": ratios}


@dataclass(frozen=True, slots=True)
class PolicyOverall:
    """One policy over the cells in which it is judged: Slurm's mechanism, and knowledge that is learned."""

    by_checkpoint: Mapping[float, Ratio | None]
    """Average JCT against stock Slurm, geometric mean, by the part of jobs that can checkpoint."""
    new_site: Ratio | None
    """The same where no job can checkpoint and half of the users consent."""
    cells: int
    near_best: int
    """Cells in which it is at most 3 % worse than every other policy."""
    far_from_best: tuple[str, ...]
    """Cells in which it is more than 10 % worse."""
    longer_waits: tuple[str, ...]
    slower_users: tuple[str, ...]
    regret: float
    """Average JCT with knowledge that is learned over that with the truth, geometric mean; NaN: no such cells."""
    mechanism: float
    """Average JCT by Slurm's mechanism over that by the ideal one, geometric mean; NaN: no such cells."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        means = {f"{level:g}": ratio and ratio.document() for level, ratio in self.by_checkpoint.items()}
        plain = ("cells", "near_best", "far_from_best", "longer_waits", "slower_users", "regret", "mechanism")
        new_site = self.new_site and self.new_site.document()
        return {"by_checkpoint": means, "new_site": new_site, **{key: getattr(self, key) for key in plain}}


@dataclass(frozen=True, slots=True)
class Findings:
    """Of all cells and policies that have runs."""

    cells: Mapping[Cell, Mapping[str, PolicyInCell]]
    overall: Mapping[str, PolicyOverall]
    told: Mapping[str, Mapping[float, Ratio]]
    """Average JCT against stock Slurm where the truth is known, geometric mean, by policy and part of jobs that can
    checkpoint; :data:`BEST` is the best policy of each cell."""
    failed: tuple[tuple[RunSpec, str], ...] = field(default=())


def find(runs: Mapping[RunSpec, FinishedRun]) -> Findings:
    """Everything that the report tells."""
    failed = tuple((spec, run.failed) for spec, run in runs.items() if run.failed)
    grouped: dict[Cell, dict[str, dict[int, FinishedRun]]] = {}
    for spec, run in runs.items():
        if not run.failed:
            grouped.setdefault(spec.cell, {}).setdefault(spec.policy, {})[spec.seed] = run
    cells = {cell: policies_in_cell(found) for cell, found in grouped.items() if STOCK in found}
    names = dict.fromkeys(name for found in cells.values() for name in found if name != STOCK)
    return Findings(cells, {name: judge(name, cells) for name in names}, _where_told(cells, tuple(names)), failed)


def policies_in_cell(runs: Runs) -> dict[str, PolicyInCell]:
    """Each policy of a cell against stock Slurm, which must be there, and against the best other one."""
    stock = runs[STOCK]
    compared = {name: compare_runs(found, stock) for name, found in runs.items() if set(found) & set(stock)}
    means = {name: ratios[AVG_JCT].value for name, ratios in compared.items()}
    found = {}
    for name, ratios in compared.items():
        others = {other: mean for other, mean in means.items() if other != name}
        best = min(others, key=others.__getitem__, default="")
        each = [run for seed, run in runs[name].items() if seed in stock]
        jobs = sum(len(run.jct_s) for run in each)
        found[name] = PolicyInCell(
            avg_jct_s=float(np.mean([figures(run)[AVG_JCT][0] for run in each])),
            against_stock=ratios,
            best_other=best,
            against_best=means[name] / others[best] if best else float("nan"),
            most_hurt_user=most_hurt_user(runs[name], stock),
            preemptions_a_job=sum(run.preemptions for run in each) / jobs,
            revoked_a_job=sum(run.revoked for run in each) / jobs,
            took_s=sum(run.took_s for run in each),
        )
    return found


def judge(name: str, cells: Mapping[Cell, Mapping[str, PolicyInCell]]) -> PolicyOverall:
    """A policy over all cells that it has."""
    has = {cell: found[name] for cell, found in cells.items() if name in found}
    real = {cell: one for cell, one in has.items() if cell.is_real}
    levels = sorted({cell.can_checkpoint for cell in real})

    def mean_where(chosen: Sequence[PolicyInCell]) -> Ratio | None:
        return geometric_mean([one.against_stock[AVG_JCT] for one in chosen])

    def names_where(figure: str, bound: float) -> tuple[str, ...]:
        return tuple(cell.name for cell, one in real.items() if one.against_stock[figure].value > bound)

    return PolicyOverall(
        by_checkpoint={
            level: mean_where([one for cell, one in real.items() if cell.can_checkpoint == level]) for level in levels
        },
        new_site=mean_where([one for cell, one in real.items() if (cell.can_checkpoint, cell.consent) == (0.0, 0.5)]),
        cells=len(real),
        near_best=sum(one.against_best <= WITHIN for one in real.values()),
        far_from_best=tuple(cell.name for cell, one in real.items() if one.against_best > FAR),
        longer_waits=names_where(P99_WAIT, MORE_WAIT),
        slower_users=names_where(WORST_USER, USER_BOUND),
        regret=_price(has, "knowledge", PREDICTED, TRUTH),
        mechanism=_price(has, "mechanism", "slurm", IDEAL.name),
    )


def _where_told(
    cells: Mapping[Cell, Mapping[str, PolicyInCell]], names: Sequence[str]
) -> dict[str, dict[float, Ratio]]:
    ratios: dict[str, dict[float, list[Ratio]]] = {}
    for cell, policies in cells.items():
        if cell.knowledge != TRUTH or not all(name in policies for name in names):
            continue
        found = {name: policies[name].against_stock[AVG_JCT] for name in names}
        found[BEST] = min(found.values(), key=lambda ratio: ratio.value)
        for name, ratio in found.items():
            ratios.setdefault(name, {}).setdefault(cell.can_checkpoint, []).append(ratio)
    means = {name: {level: geometric_mean(each) for level, each in levels.items()} for name, levels in ratios.items()}
    return {name: {level: mean for level, mean in levels.items() if mean} for name, levels in means.items()}


def _price(has: Mapping[Cell, PolicyInCell], what: str, real: str, ideal: str) -> float:
    """Geometric mean of the average JCT in cells over that in their partners."""
    logs = []
    for cell, one in has.items():
        other = partner(cell, tuple(has), **{what: ideal})
        if getattr(cell, what) == real and other is not None:
            logs.append(np.log(one.avg_jct_s / has[other].avg_jct_s))
    return float(np.exp(np.mean(logs))) if logs else float("nan")
