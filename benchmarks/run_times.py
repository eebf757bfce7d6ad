"""How far predicted run times are off, on a trace: ``python -m benchmarks.run_times --trace FILE --learn-days 60``.

Each job is predicted when it is submitted, from those that had ended by then had each started at once; the first days only
teach. Beside it stand what sites use otherwise: the owner's mean, the owner's last job, the geometric mean of all.

``--generated`` asks instead how likely the bin that each run time falls into was before it was seen, on generated workloads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.evaluate.cells import FAMILIES
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import BINS, RemainingTimeCurve, find_bins
from slurm_soda.policies.run_times.running_jobs import RunningJobs
from slurm_soda.policies.run_times.spreads import SPREAD_RATIO, SPREAD_RATIOS, Spreads
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.generators.registry import generate_workload
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
    learner, past, traits = RunTimeLearner(), RunTimeHistory(), traits_of_workload(workload)
    follow = _follow_running(learner, workload, traits)
    for row, ended in _submissions(workload):
        _teach(learner, traits, workload, ended)
        follow(row, ended)
        for each in ended:
            past.learn(traits[each].owner, max(float(workload.run_s[each]), 1.0))
        if workload.submit_s[row] >= learn_days * DAY_S:
            actual.append(float(workload.run_s[row]))
            for name, estimate in ESTIMATES.items():
                told[name].append(max(estimate(learner, past, traits[row]), 1.0))
    ran = np.maximum(np.array(actual), 1.0)
    return len(ran), [_score(name, np.array(values), ran) for name, values in told.items()]


class Foresight(NamedTuple):
    """What one way to learn knew of run times before they were seen."""

    name: str
    log_probability: float
    """Mean natural logarithm of the probability of the bin that the run time fell into."""
    median_factor: float
    """Half of the predictions were off by less."""


class Lessons(NamedTuple):
    """What is learned from jobs."""

    ratios: tuple[float, ...]
    """How a job that ended makes bins likely."""
    limits: bool = True
    """Whether time limits tell jobs apart."""
    running: bool = False
    """Whether jobs that have not ended teach, too."""


LEARNERS: dict[str, Lessons] = {
    "one bin a job": Lessons((1.0,), limits=False),
    "one bin a job, time limits": Lessons((1.0,)),
    "close bins too": Lessons((SPREAD_RATIO,), limits=False),
    "close bins too, time limits": Lessons((SPREAD_RATIO,)),
    "learned widths": Lessons(SPREAD_RATIOS, limits=False),
    "learned widths, time limits": Lessons(SPREAD_RATIOS),
    "and running jobs": Lessons(SPREAD_RATIOS, running=True),
}
"""The last one is the product's."""


def foresee(workloads: Sequence[Workload]) -> list[Foresight]:
    """Of all jobs of the workloads, each of which begins without any past."""
    actual = np.maximum(np.concatenate([workload.run_s for workload in workloads]), 1.0)
    uniform = np.full(BINS, 1.0 / BINS)
    found = [_foresight("uniform in the logarithm", [(uniform, RemainingTimeCurve.of(uniform))] * len(actual), actual)]
    for name, lessons in LEARNERS.items():
        expected = [each for workload in workloads for each in _expectations(workload, lessons)]
        found.append(_foresight(name, expected, actual))
    return found


def _expectations(workload: Workload, lessons: Lessons) -> Iterator[tuple[FloatColumn, RemainingTimeCurve]]:
    learner, traits = RunTimeLearner(Spreads(lessons.ratios)), traits_of_workload(workload)
    if not lessons.limits:
        traits = [replace(each, limit_s=math.inf) for each in traits]
    follow = _follow_running(learner, workload, traits) if lessons.running else None
    for row, ended in _submissions(workload):
        _teach(learner, traits, workload, ended)
        if follow is not None:
            follow(row, ended)
        known = learner.known(traits[row])
        yield known.probability, known.curve


def _follow_running(
    learner: RunTimeLearner, workload: Workload, traits: Sequence[SubmissionTraits]
) -> Callable[[int, Iterable[int]], None]:
    """What tells the learner of the jobs that run when one is submitted, given those that have ended by then."""
    running, present = RunningJobs(learner), dict[int, None]()

    def follow(row: int, ended: Iterable[int]) -> None:
        for each in ended:
            del present[each]
        rows = np.array(list(present), dtype=np.int64)
        running.observe(rows, workload.submit_s[row] - workload.submit_s[rows], lambda at: traits[rows[at]])
        present[row] = None

    return follow


def _foresight(name: str, expected: Sequence[tuple[FloatColumn, RemainingTimeCurve]], actual: FloatColumn) -> Foresight:
    logs = [math.log(probability[at]) for (probability, _), at in zip(expected, find_bins(actual), strict=True)]
    told = np.array([curve.remaining(0.0).value for _, curve in expected])
    return Foresight(name, float(np.mean(logs)), float(np.exp(np.median(np.abs(np.log(told / actual))))))


def _submissions(workload: Workload) -> Iterator[tuple[int, list[int]]]:
    """Each job when it is submitted, after those that have ended since the one before, had each started at once."""
    ends, runs_s = list[tuple[float, int]](), workload.run_s.tolist()
    for row, submit_s in enumerate(workload.submit_s.tolist()):
        ended = []
        while ends and ends[0][0] <= submit_s:
            ended.append(heappop(ends)[1])
        yield row, ended
        heappush(ends, (submit_s + runs_s[row], row))


def _teach(
    learner: RunTimeLearner, traits: Sequence[SubmissionTraits], workload: Workload, ended: Iterable[int]
) -> None:
    for row in ended:
        learner.learn(traits[row], float(workload.run_s[row]))


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
@click.option("--trace", type=click.Path(path_type=Path, exists=True))
@click.option("--learn-days", default=60.0, show_default=True)
@click.option("--generated", is_flag=True, help="Generated workloads of every family, in place of a trace.")
@click.option("--seeds", default=5, show_default=True, help="With --generated: from 1 to this one.")
@click.option("--json", "as_json", is_flag=True)
def main(trace: Path | None, learn_days: float, generated: bool, seeds: int, as_json: bool) -> None:
    """How far predicted run times are off, on a trace or on generated workloads."""
    if (trace is None) != generated:
        raise click.UsageError("give either --trace FILE or --generated")
    if trace is None:
        _print_foresight(seeds, as_json)
    else:
        _print_scores(trace, learn_days, as_json)


def _print_foresight(seeds: int, as_json: bool) -> None:
    families = {
        family: foresee([generate_workload(family, seed) for seed in range(1, seeds + 1)]) for family in FAMILIES
    }
    if as_json:
        found = {family: [each._asdict() for each in foresights] for family, foresights in families.items()}
        click.echo(json.dumps({"seeds": seeds, "families": found}, indent=2))
        return
    for family, foresights in families.items():
        for each in foresights:
            click.echo(
                f"{family:12} {each.name:28} log probability {each.log_probability:6.2f}, "
                f"half off by less than a factor of {each.median_factor:.2f}"
            )


def _print_scores(trace: Path, learn_days: float, as_json: bool) -> None:
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
