"""What the GPUs of made-up jobs do: they load, train with pauses of all lengths, and now and then are not used at all."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

IDLE_PCT = 1
"""Up to this NVML's whole percents count as idle."""
SHORTEST_SPAN_S = 5.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A GPU's utilisation over some time of its job."""

    from_s: float
    until_s: float
    util_pct: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """One GPU of one job, phase after phase."""

    phases: Sequence[Phase]

    def util_pct(self, at_s: float) -> int:
        """At an instant."""
        return next((phase.util_pct for phase in self.phases if phase.from_s <= at_s < phase.until_s), 0)

    @property
    def mean_ratio(self) -> float:
        """Over the whole job."""
        busy = math.fsum((phase.until_s - phase.from_s) * phase.util_pct for phase in self.phases)
        return busy / 100 / (self.phases[-1].until_s - self.phases[0].from_s)

    @property
    def is_used(self) -> bool:
        """It is not idle all the time."""
        return any(phase.util_pct > IDLE_PCT for phase in self.phases)

    def idle_spans(self, longer_than_s: float = SHORTEST_SPAN_S) -> list[tuple[float, float]]:
        """Start and length of the idle times of more than 5 s, or another length."""
        spans: list[tuple[float, float]] = []
        for phase in self.phases:
            if phase.util_pct > IDLE_PCT:
                continue
            if spans and math.isclose(sum(spans[-1]), phase.from_s):
                spans[-1] = (spans[-1][0], phase.until_s - spans[-1][0])
            else:
                spans.append((phase.from_s, phase.until_s - phase.from_s))
        return [span for span in spans if span[1] > longer_than_s]


@dataclass(frozen=True, slots=True)
class MadeJob:
    """A job of some GPUs, with the start of its run on the node's clock."""

    job_id: int
    starts_s: float
    run_s: float
    gpus: Sequence[Pattern]

    @property
    def ends_s(self) -> float:
        """On the same clock."""
        return self.starts_s + self.run_s


def make_jobs(count: int, seed: int, *, shortest_s: float = 120.0, longest_s: float = 5400.0) -> list[MadeJob]:
    """Jobs of 1 to 8 GPUs that run from two minutes to an hour and a half; every eighth leaves GPUs unused."""
    source, jobs = random.Random(seed), []
    for number in range(count):
        run_s = math.exp(source.uniform(math.log(shortest_s), math.log(longest_s)))
        gpus = [Pattern(tuple(_phases(source, run_s))) for _ in range(source.choice((1, 1, 2, 4, 8)))]
        if number % 8 == 7:
            gpus[len(gpus) // 2 :] = [Pattern((Phase(0.0, run_s, 0),))] * (len(gpus) - len(gpus) // 2)
        jobs.append(MadeJob(number + 1, source.uniform(0.0, 2.0), run_s, gpus))
    return jobs


def _phases(source: random.Random, run_s: float) -> Iterator[Phase]:
    """Loading; then trainings of some minutes, each at about its own utilisation, with pauses of 0.5 to 90 s between."""
    at_s, idle = 0.0, True
    while at_s < run_s:
        if idle:
            length_s = math.exp(source.uniform(math.log(0.5), math.log(90.0)))
            end_s = min(at_s + length_s, run_s)
            yield Phase(at_s, end_s, source.choice((0, 0, 0, IDLE_PCT)))
        else:
            end_s = min(at_s + source.uniform(10.0, 300.0), run_s)
            yield from _training(source, at_s, end_s)
        at_s, idle = end_s, not idle


def _training(source: random.Random, from_s: float, until_s: float) -> Iterator[Phase]:
    """Utilisation that changes every second or so, as readings of a real one do."""
    level, at_s = source.uniform(15.0, 98.0), from_s
    while at_s < until_s:
        end_s = min(at_s + source.uniform(0.5, 3.0), until_s)
        yield Phase(at_s, end_s, min(max(round(source.gauss(level, 8.0)), IDLE_PCT + 1), 100))
        at_s = end_s
