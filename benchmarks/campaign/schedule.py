"""What happens in a round, and when: a pure function of seed and round number."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.campaign.hostile import ATTEMPTS

NODES = ("n1", "n2")
USERS = ("alice", "bob")
"""Who submits; carol is the hostile one."""
ROUGH_EVERY = 2
"""In every second round Slurm's own daemons are killed too. In the others every job must end well."""
POOLS_EVERY = 4
SIGNALS = ("TERM", "TERM", "USR1@2", "")
"""How trainings save their state; empty: they cannot be preempted."""
STEP_CPUS = ("2", '"$SLURM_CPUS_PER_TASK"')
"""What srun asks for in jobs on several nodes; the first one hangs if the job has fewer CPUs than its owner asked for."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that the campaign does."""

    at_s: float
    """After the beginning of the round."""
    kind: str
    """A key of :data:`LOAD` or :data:`FAULTS`."""
    values: Mapping[str, Any]
    """What was drawn for it, as JSON has it."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Event:
        return cls(float(found["at_s"]), str(found["kind"]), dict(found["values"]))


Draw = Callable[[random.Random], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Events of one kind, at random moments."""

    per_min: float
    draw: Draw
    rough: bool = False
    """In rough rounds only."""


def _job(draw: random.Random, longest_s: float, **values: Any) -> dict[str, Any]:
    return {"user": draw.choice(USERS), "run_s": round(draw.uniform(2.0, longest_s), 1), **values}


def _node(draw: random.Random, shortest_s: float, longest_s: float, **values: Any) -> dict[str, Any]:
    return {"node": draw.choice(NODES), **_for(draw, shortest_s, longest_s), **values}


def _for(draw: random.Random, shortest_s: float, longest_s: float) -> dict[str, Any]:
    return {"for_s": round(draw.uniform(shortest_s, longest_s), 2)}


LOAD: dict[str, Stream] = {
    "train": Stream(5.0, lambda d: _job(d, 16, gpus=d.choice((1, 1, 2, 4)), signal=d.choice(SIGNALS))),
    "long": Stream(1.2, lambda d: _job(d, 30, gpus=d.choice((2, 4)), signal=d.choice(SIGNALS))),
    "gang": Stream(
        0.6,
        lambda d: _job(d, 14, gpus=d.choice((1, 2, 4)), signal=d.choice(("TERM", "")), step_cpus=d.choice(STEP_CPUS)),
    ),
    "cpu": Stream(2.0, lambda d: _job(d, 10, cpus=d.choice((1, 2, 8)))),
    "array": Stream(0.8, lambda d: _job(d, 8, tasks=d.randint(2, 5), gpus=d.choice((0, 1)))),
    "het": Stream(0.4, lambda d: _job(d, 8)),
    "srun": Stream(0.8, lambda d: _job(d, 8, gpus=d.choice((0, 1)))),
    "salloc": Stream(0.5, lambda d: _job(d, 12, gpus=d.choice((1, 2)), signal="TERM")),
    "held": Stream(0.5, lambda d: _job(d, 6, for_s=round(d.uniform(5, 40), 1))),
    "begin": Stream(0.4, lambda d: _job(d, 6, for_s=float(d.randint(8, 30)))),
    "cancel": Stream(0.6, lambda d: {"pick": round(d.random(), 4)}),
    "requeue": Stream(0.4, lambda d: {"pick": round(d.random(), 4)}),
}

_HOOK_SIGNALS = ("KILL", "KILL", "KILL", "STOP")

FAULTS: dict[str, Stream] = {
    "kill-sodad": Stream(7.0, lambda d: {"again_s": d.choice((0.0, 0.0, 0.0, round(d.uniform(0.05, 3.0), 2)))}),
    "pause-sodad": Stream(0.7, lambda d: _for(d, 0.2, d.choice((3, 6, 25)))),
    "bury-sodad": Stream(0.15, lambda d: _for(d, 48, 55)),
    "kill-agent": Stream(2.4, lambda d: _node(d, 0, 0)),
    "pause-agent": Stream(0.7, lambda d: _node(d, 0.2, 6)),
    "hook": Stream(
        4.0,
        lambda d: _node(d, 0.2, 2, hook=d.choice(("prolog", "epilog")), signal=d.choice(_HOOK_SIGNALS),
                        after_ms=round(d.choice((d.expovariate(1 / 1.5), d.uniform(0, 30))), 2)),
    ),
    "kill-slurmctld": Stream(1.6, lambda d: {}, rough=True),
    "pause-slurmctld": Stream(0.2, lambda d: _for(d, 1, 10), rough=True),
    "kill-slurmd": Stream(0.5, lambda d: _node(d, 0, 0), rough=True),
    "kill-slurmdbd": Stream(0.4, lambda d: {}),
    "network": Stream(0.9, lambda d: _node(d, 3, 15, how=d.choice(("cut", "garbage", "slow")))),
    "store-full": Stream(0.25, lambda d: _for(d, 3, 12)),
    "store-readonly": Stream(0.2, lambda d: _for(d, 3, 10)),
    "store-corrupt": Stream(0.15, lambda d: _for(d, 3, 8)),
    "spool": Stream(0.5, lambda d: _node(d, 3, 10, how=d.choice(("full", "readonly")))),
    "second-sodad": Stream(0.4, lambda d: {"for_s": 20.0, "how": d.choice(("same", "other-lock"))}),
    "clock": Stream(0.4, lambda d: {**_for(d, 4, 15), "hours": d.choice((-5, -1, 1, 5))}),
    "hostile": Stream(2.0, lambda d: {"attempt": d.choice(sorted(ATTEMPTS)), "node": d.choice(NODES)}),
}  # fmt: skip


def is_rough(number: int) -> bool:
    """Slurm's own daemons are killed in this round as well, so that Slurm itself may lose a start or hold a job."""
    return number % ROUGH_EVERY == 1


def has_pools(number: int) -> bool:
    """Pools are applied in this round; Slurm then requeues jobs that borrow."""
    return number % POOLS_EVERY == 2


def round_events(seed: int, number: int, seconds: float, pace: float = 1.0) -> tuple[Event, ...]:
    """All events of a round, in their order; the same ones for the same arguments, on any machine.

    Args:
        seed: of the campaign.
        number: of the round, from 0.
        seconds: in which they fall.
        pace: factor on the number of faults.
    """
    found: list[Event] = []
    for streams, factor in ((LOAD, 1.0), (FAULTS, pace)):
        for kind, stream in streams.items():
            if stream.rough and not is_rough(number):
                continue
            draw = random.Random(f"{seed}/{number}/{kind}")
            found += [Event(at_s, kind, stream.draw(draw)) for at_s in _moments(draw, stream.per_min * factor, seconds)]
    return tuple(sorted(found, key=lambda event: (event.at_s, event.kind)))


def _moments(draw: random.Random, per_min: float, seconds: float) -> Iterator[float]:
    """Of a Poisson process."""
    at_s = draw.expovariate(per_min / 60)
    while at_s < seconds:
        yield round(at_s, 2)
        at_s += draw.expovariate(per_min / 60)


def kinds(events: Sequence[Event]) -> dict[str, int]:
    """How many events there are of each kind."""
    counts: dict[str, int] = {}
    for event in events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
    return dict(sorted(counts.items()))
