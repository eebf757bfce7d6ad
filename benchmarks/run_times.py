"""How far predicted run times are off, on a trace: ``python -m benchmarks.run_times --trace FILE --learn-days 60``.

Each job is predicted when it is submitted, from those that had ended by then had each started at once; the first days only
teach. Beside it stand what sites use otherwise: the owner's mean, the owner's last job, the geometric mean of all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.runs.predicted_run_times import traits_of_workload
from slurm_soda.simulator.traces.registry import detect_format, load_trace
from slurm_soda.simulator.workload import Workload

DAY_S = 86_400.0


class RunTimeHistory:
    """What simple estimates remember."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.sums: dict[str, list[float]] = {}
        self.logs: list[float] = [0.0, 0.0]

    def learn(self, owner: str, run_s: float) -> None:
        self.last[owner] = run_s
        count = self.sums.setdefault(owner, [0.0, 0.0])
        count[0] += 1
        count[1] += run_s
        self.logs[0] += 1
        self.logs[1] += math.log(run_s)

    def typical_s(self) -> float:
        return math.exp(self.logs[1] / self.logs[0]) if self.logs[0] else 3600.0

    def mean_s(self, owner: str) -> float:
        count, total = self.sums.get(owner, (0.0, 0.0))
        return total / count if count else self.typical_s()


ESTIMATES: dict[str, Callable[[RunTimeLearner, RunTimeHistory, SubmissionTraits], float]] = {
    "slurm-soda": lambda learner, _past, traits: learner.known(traits).curve.remaining(0.0).value,
    "owner's last job": lambda _learner, past, traits: past.last.get(traits.owner, past.typical_s()),
    "owner's mean": lambda _learner, past, traits: past.mean_s(traits.owner),
    "everybody's geometric mean": lambda _learner, past, _traits: past.typical_s(),
}


class Score(NamedTuple):
    """How far one kind of estimate is off."""

    name: str
    factor: float
    """Geometric mean of the larger of told and actual over the smaller."""
    median_factor: float
    error_s: float
    rank_correlation: float


def scores(workload: Workload, learn_days: float) -> tuple[int, list[Score]]:
    """Number of jobs that were predicted, and each estimate's score."""
    told: dict[str, list[float]] = {name: [] for name in ESTIMATES}
    actual: list[float] = []
    for learner, past, traits, run_s in _submissions(workload, learn_days * DAY_S):
        actual.append(run_s)
        for name, estimate in ESTIMATES.items():
            told[name].append(max(estimate(learner, past, traits), 1.0))
    ran = np.maximum(np.array(actual), 1.0)
    return len(ran), [_score(name, np.array(values), ran) for name, values in told.items()]


def _submissions(
    workload: Workload, from_s: float
) -> Iterator[tuple[RunTimeLearner, RunTimeHistory, SubmissionTraits, float]]:
    learner, past, ends = RunTimeLearner(), RunTimeHistory(), list[tuple[float, int]]()
    traits, runs_s = traits_of_workload(workload), workload.run_s.tolist()
    for row, submit_s in enumerate(workload.submit_s.tolist()):
        while ends and ends[0][0] <= submit_s:
            _, ended = heappop(ends)
            learner.learn(traits[ended], runs_s[ended])
            past.learn(traits[ended].owner, max(runs_s[ended], 1.0))
        if submit_s >= from_s:
            yield learner, past, traits[row], runs_s[row]
        heappush(ends, (submit_s + runs_s[row], row))


def _score(name: str, told: FloatColumn, ran: FloatColumn) -> Score:
    off = np.abs(np.log(told / ran))
    ranks = np.corrcoef(_ranks(told), _ranks(ran))[0, 1] if len(ran) > 1 else math.nan
    factors = float(np.exp(off.mean())), float(np.exp(np.median(off)))
    return Score(name, *factors, float(np.abs(told - ran).mean()), float(ranks))


def _ranks(values: FloatColumn) -> FloatColumn:
    """Ranks, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: FloatColumn = (ends - (counts - 1) / 2)[inverse]
    return ranks


@click.command()
@click.option("--trace", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--learn-days", default=60.0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(trace: Path, learn_days: float, as_json: bool) -> None:
    """How far predicted run times are off, on a trace."""
    workload = load_trace(trace, detect_format(trace).name, lenient=False, profiles=None).workload
    jobs, found = scores(workload, learn_days)
    if as_json:
        click.echo(json.dumps({"jobs": jobs, "scores": [score._asdict() for score in found]}, indent=2))
        return
    click.echo(f"{jobs:,} jobs submitted after {learn_days:g} days")
    for score in found:
        click.echo(
            f"{score.name:28} off by a factor of {score.factor:6.2f} (median {score.median_factor:.2f}), "
            f"{score.error_s:9,.0f} s on average, rank correlation {score.rank_correlation:.2f}"
        )


if __name__ == "__main__":
    main()
