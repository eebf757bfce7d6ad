"""The demo's job mix: the testbed workload of Tiresias (Section 5.1 and Table 3), scaled down to 8 GPUs and minutes.

What is kept from the paper: half of the jobs ask for one GPU; the shares of the four bins (small or large, short or
long); trainings of 2 minutes to 2 hours, short ones under 800 s; Poisson arrivals, faster than the cluster can serve.
What is scaled: times by ``time_scale``, and the gangs by the cluster (15 nodes there, 2 here): large means 4 or 8 GPUs.

Thirty jobs are few, so the draw is stratified: every bin gets its exact share and its durations are spread evenly over
their range. Long jobs are spread over the first half of the arrivals: a finite mix ends in a drain, and a long job at
its very end would only lengthen the drain of every schedule alike.

Time limits follow three habits: alice asks for about twice what she needs, bob for about five times, and carol names no
limit and gets the site's default. None of them knows how long a training takes (Tiresias, Section 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHORTEST_S, LONG_FROM_S, LONGEST_S = 120.0, 800.0, 7200.0
"""Nominal training times: Tiresias, Section 5.1."""
TESTBED_THRESHOLD_GPU_S = 3200.0
"""Nominal border of Tiresias' two queues on its testbed (Section 5.2)."""
BIN_SHARES: Mapping[str, float] = {"SS": 0.635, "SL": 0.125, "LS": 0.165, "LL": 0.075}
"""Table 3: small or large by GPUs, then short or long by time."""
MEAN_GAP_S = 0.9
"""Real mean time between two submissions."""
LONG_ARRIVE_WITHIN = 0.5

USERS = ("alice", "bob", "carol")
_LIMIT_FACTOR = {"alice": 2.0, "bob": 5.0}
_LIMIT_SPREAD = 0.3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MixModel:
    """What a user knows about a model: its category, and batch size and CPU cores for each GPU."""

    category: str
    batch_size: int
    cores: int


MODELS: Mapping[str, MixModel] = {
    "resnet50": MixModel("cv", 64, 3),
    "vgg16": MixModel("cv", 64, 2),
    "alexnet": MixModel("cv", 256, 6),
    "inception3": MixModel("cv", 64, 3),
    "bert": MixModel("nlp", 16, 2),
    "transformer-xl": MixModel("nlp", 32, 2),
    "wavenet": MixModel("speech", 8, 5),
    "deepspeech": MixModel("speech", 32, 5),
}


@dataclass(frozen=True, slots=True)
class MixJob:
    """One job to be submitted."""

    name: str
    user: str
    arrival_s: float
    """Real seconds after the first submission."""
    gpus: int
    nodes: int
    duration_s: float
    """Nominal training time on dedicated GPUs, before ``time_scale`` divides it."""
    limit_min: int | None
    """Real time limit in Slurm's unit; ``None``: the site's default."""
    model: str

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each of its nodes."""
        return self.gpus // self.nodes

    @property
    def cpus_per_node(self) -> int:
        """CPU cores on each of its nodes: what the model needs to run at full speed."""
        return MODELS[self.model].cores * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class JobMix:
    """A reproducible list of jobs by arrival."""

    seed: int
    time_scale: float
    jobs: tuple[MixJob, ...]

    @property
    def work_gpu_s(self) -> float:
        """Real GPU seconds of training in all jobs."""
        return sum(job.gpus * job.duration_s for job in self.jobs) / self.time_scale

    @property
    def threshold_gpu_s(self) -> float:
        """The testbed's queue threshold in real GPU seconds."""
        return TESTBED_THRESHOLD_GPU_S / self.time_scale


def draw_mix(seed: int = 1, jobs: int = 30, time_scale: float = 150.0, gpus_per_node: int = 4) -> JobMix:
    """Draw a mix; the same arguments give the same jobs.

    ``gpus_per_node`` is that of the cluster: a gang of more GPUs takes that many on each of two nodes.

    Raises:
        ValueError: fewer than 4 jobs (one a bin), or a ``time_scale`` that is not positive.
    """
    if jobs < 4 or not time_scale > 0:
        raise ValueError(f"a mix needs 4 jobs or more and a positive time scale; got {jobs} and {time_scale}")
    rng = np.random.default_rng(seed)
    duration_s, gpus, is_long = _draw_sizes(rng, _bin_counts(jobs), 2 * gpus_per_node)
    order = _arrival_order(rng, is_long)
    arrival_s = _arrivals(rng, jobs)
    users = rng.permutation(np.resize(np.array(USERS), jobs))
    models = rng.permutation(np.resize(np.array(list(MODELS)), jobs))
    spread = np.exp(rng.uniform(-_LIMIT_SPREAD, _LIMIT_SPREAD, jobs))
    return JobMix(
        seed=seed,
        time_scale=time_scale,
        jobs=tuple(
            MixJob(
                name=f"{models[at]}-{at + 1:02d}",
                user=str(users[at]),
                arrival_s=round(float(arrival_s[at]), 3),
                gpus=int(gpus[row]),
                nodes=2 if gpus[row] > gpus_per_node else 1,
                duration_s=round(float(duration_s[row]), 1),
                limit_min=_limit_min(str(users[at]), float(duration_s[row]) / time_scale * float(spread[at])),
                model=str(models[at]),
            )
            for at, row in enumerate(order.tolist())
        ),
    )


def _bin_counts(jobs: int) -> dict[str, int]:
    """Jobs in each bin; the small short ones take up the rounding."""
    counts = {name: max(1, round(jobs * share)) for name, share in BIN_SHARES.items() if name != "SS"}
    return {"SS": jobs - sum(counts.values()), **counts}


def _draw_sizes(
    rng: np.random.Generator, counts: Mapping[str, int], whole: int
) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Durations (nominal s), GPUs and whether long, bin after bin; ``whole`` is all GPUs of two nodes."""
    total = sum(counts.values())
    small = counts["SS"] + counts["SL"]
    two = max(0, small - round(total / 2))  # half of all jobs have one GPU
    two_short = round(two * counts["SS"] / small)
    gpus = [
        _shuffled(rng, 2, two_short, 1, counts["SS"]),
        _shuffled(rng, 2, two - two_short, 1, counts["SL"]),
        _shuffled(rng, whole, round(counts["LS"] / 4), whole // 2, counts["LS"]),
        _shuffled(rng, whole, round(counts["LL"] / 2), whole // 2, counts["LL"]),
    ]
    durations = [
        _long_durations(rng, n) if name.endswith("L") else _short_durations(rng, n) for name, n in counts.items()
    ]
    is_long = np.repeat([name.endswith("L") for name in counts], list(counts.values()))
    return np.concatenate(durations), np.concatenate(gpus), is_long


def _shuffled(rng: np.random.Generator, value: int, count: int, other: int, total: int) -> Ints:
    return rng.permutation(np.array([value] * count + [other] * (total - count), dtype=np.int64))


def _stratified(rng: np.random.Generator, n: int) -> Floats:
    """``n`` numbers in [0, 1), one in each ``1 / n``, in random order."""
    return rng.permutation((np.arange(n) + rng.random(n)) / max(n, 1))


def _short_durations(rng: np.random.Generator, n: int) -> Floats:
    """Log-uniform: most short jobs are very short."""
    return np.asarray(SHORTEST_S * (LONG_FROM_S / SHORTEST_S) ** _stratified(rng, n), dtype=np.float64)


def _long_durations(rng: np.random.Generator, n: int) -> Floats:
    return np.asarray(LONG_FROM_S + (LONGEST_S - LONG_FROM_S) * _stratified(rng, n), dtype=np.float64)


def _arrival_order(rng: np.random.Generator, is_long: NDArray[np.bool_]) -> Ints:
    """Rows by arrival: each kind spread evenly, the long ones over the first part."""
    place = np.empty(len(is_long))
    place[is_long] = LONG_ARRIVE_WITHIN * _stratified(rng, int(is_long.sum()))
    place[~is_long] = _stratified(rng, int((~is_long).sum()))
    return np.argsort(place, kind="stable")


def _arrivals(rng: np.random.Generator, jobs: int) -> Floats:
    """Poisson arrivals, given that ``jobs`` of them span ``jobs - 1`` mean gaps; the first is at 0."""
    gaps_s = rng.exponential(1.0, jobs - 1)
    return np.concatenate(([0.0], np.cumsum(gaps_s * (MEAN_GAP_S * (jobs - 1) / gaps_s.sum()))))


def _limit_min(user: str, run_s: float) -> int | None:
    factor = _LIMIT_FACTOR.get(user)
    return None if factor is None else int(np.ceil(factor * run_s / 60))
