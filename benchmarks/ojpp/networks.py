"""Workloads like those of OJPP's evaluation (Section 5.2): 20 jobs of 1 to 10 workers, of six networks.

The paper publishes four figures of its networks; the rest of its Figure 3 is a picture. So these are drawn here, around all
that it does say:

* memory of ResNet is <0.3, 0.62, 0.2> (Section 3.2); no other network is as large;
* ResNet beside VGG-19 is slowed by 122 %, VGG-19 beside ResNet by 18.7 %, LeNet beside LSTM by 18 % (Sections 1 and 3.3);
* ResNet suffers from everybody, so that with the interference bound it ends up alone (Section 5.3.1);
* LeNet and LSTM are likely to collide (Section 5.3.1). Section 5.2 has it the other way round, with ResNet for collisions
  and LeNet for interference, which the 122 % speak against.

A slowdown is (how sensitive the one is) x (how much the other presses) x chance, which meets those three slowdowns on
average.
Shares of computing power are nowhere published. They are scaled so that plain best fit, which knows no bound, needs as few
devices for the mixed queue as in the paper (29.5 % of a dedicated cluster's, which follows from 46 % and "82.9 % extra
devices" in Section 5.3.1). Nothing was fitted to what OJPP itself reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.sharing.ojpp.packing import PackingJobs

JOBS = 20
MOST_WORKERS = 10
COMPUTE = 0.95
"""Scale of the shares of computing power."""
SPREAD = 0.25
"""Standard deviation of the logarithm of the chance in a slowdown."""


class UniformRange(NamedTuple):
    """Where a uniform draw lies."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Network:
    """What is drawn for jobs of one network, all of one device."""

    name: str
    compute: UniformRange
    base: UniformRange
    extra: UniformRange
    probability: UniformRange
    sensitive: float
    presses: float


NETWORKS = (
    Network(
        "LeNet",
        UniformRange(0.08, 0.20),
        UniformRange(0.05, 0.12),
        UniformRange(0.05, 0.25),
        UniformRange(0.20, 0.40),
        0.30,
        0.2,
    ),
    Network(
        "LSTM",
        UniformRange(0.15, 0.30),
        UniformRange(0.08, 0.20),
        UniformRange(0.15, 0.35),
        UniformRange(0.25, 0.45),
        0.20,
        0.6,
    ),
    Network(
        "CNN",
        UniformRange(0.10, 0.25),
        UniformRange(0.05, 0.15),
        UniformRange(0.10, 0.25),
        UniformRange(0.05, 0.20),
        0.15,
        0.3,
    ),
    Network(
        "AlexNet",
        UniformRange(0.20, 0.40),
        UniformRange(0.10, 0.25),
        UniformRange(0.15, 0.40),
        UniformRange(0.05, 0.20),
        0.20,
        0.6,
    ),
    Network(
        "VGG",
        UniformRange(0.30, 0.50),
        UniformRange(0.15, 0.30),
        UniformRange(0.20, 0.45),
        UniformRange(0.10, 0.25),
        0.187,
        1.0,
    ),
    Network(
        "ResNet",
        UniformRange(0.30, 0.50),
        UniformRange(0.25, 0.35),
        UniformRange(0.40, 0.62),
        UniformRange(0.15, 0.25),
        1.22,
        1.0,
    ),
)
COLLIDE, DISTURB, CALM = (0, 1), (5, 4), (2, 3)
"""Rows of networks that collide, that disturb or are disturbed, and that do neither."""

KINDS = ("mixed", "C-high", "I-high", "average")


@dataclass(frozen=True, slots=True)
class DrawnQueue:
    """Jobs and what they do to each other; models of jobs are rows of ``names``."""

    jobs: PackingJobs
    slowdown: NDArray[np.float64]
    names: tuple[str, ...]

    @property
    def workers(self) -> int:
        """As many devices a dedicated cluster needs."""
        return int(self.jobs.workers.sum())


def draw(kind: str, seed: int) -> DrawnQueue:
    """One queue of 20 jobs; the same seed draws the same slowdowns for every kind of workload."""
    rng = np.random.default_rng([seed, 0])
    base = np.outer([one.sensitive for one in NETWORKS], [one.presses for one in NETWORKS])
    slowdown = base * np.exp(rng.normal(-(SPREAD**2) / 2, SPREAD, base.shape))
    rng = np.random.default_rng([seed, 1 + KINDS.index(kind)])
    rows = _networks(kind, rng)
    compute, base, extra, probability = (
        np.array([rng.uniform(*getattr(NETWORKS[row], name)) for row in rows])
        for name in ("compute", "base", "extra", "probability")
    )
    workers = rng.integers(1, MOST_WORKERS, JOBS, endpoint=True)
    jobs = PackingJobs(workers, COMPUTE * compute, base, extra, probability, rows)
    return DrawnQueue(jobs, slowdown, tuple(one.name for one in NETWORKS))


def _networks(kind: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Half of a mixed queue is likely to collide or to disturb."""
    if kind == "mixed":
        loud = rng.choice((*COLLIDE, *DISTURB), JOBS // 2)
        return rng.permutation(np.concatenate((loud, rng.choice(CALM, JOBS - len(loud)))))
    among = {"C-high": COLLIDE, "I-high": DISTURB, "average": CALM}[kind]
    return rng.choice(among, JOBS).astype(np.int64)
