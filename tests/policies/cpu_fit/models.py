"""Jobs with known curves: the eight models of SODA's Table I, random concave curves, and a search run on them.

The paper prints neither curves nor best fits (Fig. 6 is a picture), so knees and shapes are our choice: by category around
its starting values (CV 3, NLP 5, SPEECH 5 cores per GPU), more for models that eat input fast, fewer for heavy ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_soda.policies.cpu_fit.core_search import CoreSearch, SearchRules, SettleCores
from slurm_soda.policies.cpu_fit.measurement import Measurement

LIMIT = 28
"""Cores of a node of the paper's cluster (Section III-A)."""
SAMPLES = 60
FAMILIES = ("pipelined", "amdahl", "pieces", "rounded")


@dataclass(frozen=True)
class Job:
    """Utilisation by cores from 1."""

    ratios: tuple[float, ...]

    @property
    def best_fit(self) -> int:
        """Fewest cores within 2 % of the best possible."""
        return next(cores for cores, ratio in enumerate(self.ratios, 1) if ratio >= 0.98 * max(self.ratios))

    def at(self, cores: int) -> float:
        return self.ratios[cores - 1]


@dataclass(frozen=True)
class Model:
    """Per GPU: utilisation at best, cores at the knee, serial share, bend, and what is lost by the node's last core."""

    name: str
    category: str
    best: float
    knee: float
    serial: float = 0.0
    bend: float = 1.0
    drop: float = 0.0

    def job(self, gpus: int = 1, limit: int = LIMIT) -> Job:
        shape = bent(self.knee * gpus, self.serial / gpus, self.bend)
        return Job(curve(self.best, self.knee * gpus, self.drop, shape, limit))


MODELS = (
    Model("alexnet", "cv", 0.85, 7.6),
    Model("vgg16", "cv", 0.98, 2.5, drop=0.005),
    Model("inception3", "cv", 0.95, 3.2, serial=0.03),
    Model("resnet50", "cv", 0.93, 4.6, serial=0.05, drop=0.005),
    Model("bat", "nlp", 0.55, 5.5, serial=0.1),
    Model("transformer", "nlp", 0.80, 3.0, serial=0.08),
    Model("wavenet", "speech", 0.78, 9.5, drop=0.01),
    Model("deepspeech", "speech", 0.70, 6.3, bend=1.3),
)


def bent(knee: float, serial: float, bend: float) -> Callable[[int], float]:
    def sped_up(cores: float) -> float:
        return cores / (1 + serial * (cores - 1))

    return lambda cores: 1 - max(0.0, 1 - sped_up(cores) / sped_up(knee)) ** bend


def curve(best: float, knee: float, drop: float, shape: Callable[[int], float], limit: int) -> tuple[float, ...]:
    """Scaled to ``best``; beyond the knee so much of it is lost, evenly, up to the limit."""
    lost = [drop * max(0.0, cores - knee) / max(limit - knee, 1.0) for cores in range(1, limit + 1)]
    return tuple(best * min(1.0, shape(cores)) * (1 - lost[cores - 1]) for cores in range(1, limit + 1))


def random_job(
    rng: random.Random, family: str, limit: int = LIMIT, *, knee_most: float = 12.0, serial_most: float = 0.1
) -> Job:
    """Best 30 to 100 %; knee from 1 to ``knee_most``; half of them lose up to 1 % beyond the knee.

    pipelined: proportional up to the knee. amdahl: serial share up to ``serial_most``. pieces: every core up to the knee
    adds a random amount, largest first, the largest at most five times the smallest. rounded: 1 - (1 - cores / knee) ^ p,
    p from 1 to 1.5.
    """
    best, knee = rng.uniform(0.3, 1.0), rng.uniform(1.0, knee_most)
    drop = rng.choice((0.0, rng.uniform(0.0, 0.01)))
    if family == "pieces":
        gains = sorted((rng.uniform(0.2, 1.0) for _ in range(int(knee))), reverse=True)
        return Job(curve(best, knee, drop, lambda cores: sum(gains[:cores]) / sum(gains), limit))
    serial = rng.uniform(0.0, serial_most) if family == "amdahl" else 0.0
    bend = rng.uniform(1.0, 1.5) if family == "rounded" else 1.0
    return Job(curve(best, knee, drop, bent(knee, serial, bend), limit))


def measure(job: Job, cores: int, noise: float, rng: random.Random) -> Measurement:
    """A step's mean is off by ``noise`` of itself (one standard deviation); its samples are spread accordingly."""
    true = job.at(cores)
    seen = true * (1 + noise * rng.gauss(0.0, 1.0))
    return Measurement(cores, min(max(seen, 0.0), 1.0), noise * true * SAMPLES**0.5, SAMPLES)


@dataclass(frozen=True)
class Run:
    search: CoreSearch
    end: SettleCores

    @property
    def tried(self) -> Sequence[int]:
        return [one.cores for one in self.search.measured]


def searched(
    job: Job, start: int, *, noise: float = 0.0, seed: int = 0, rules: SearchRules | None = None, limit: int = LIMIT
) -> Run:
    """The search as an agent would run it."""
    rng = random.Random(seed)
    search = CoreSearch(start, limit, rules or SearchRules())
    while not isinstance(advice := search.advice(), SettleCores):
        assert 1 <= advice.cores <= limit
        search = search.after(measure(job, advice.cores, noise, rng))
        assert len(search.measured) <= 20, "the search does not end"
    return Run(search, advice)
