"""The families: after public traces and papers, and two kinds of sites of which there is no public trace.

Where a figure has no source it is our choice, and said to be. Models are those of Gavel's table of measured pairs, or of
Pollux, for which stand-ins are known (:mod:`slurm_soda.simulator.sharing.stand_in_models`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.generators import philly, soda
from slurm_soda.simulator.generators.distributions import DAY_S, LogNormalMixture, draw_choices, weekly_rates
from slurm_soda.simulator.generators.families.family import JobClass, RunTimeLaw, WorkloadFamily

HOUR_S = 3_600.0
_BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256), "ResNet-50": (16, 32, 64, 128), "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80), "Recommendation": (512, 1024, 2048, 4096, 8192), "A3C": (0,), "CycleGAN": (0,),
}  # fmt: skip
GAVEL_KINDS = tuple((model, batch) for model, batches in _BATCHES.items() for batch in batches)
"""The 26 kinds of Gavel's table (stanford-futuredata/gavel, throughputs.json), each as likely, as in its generator."""


def _of(*models: str) -> tuple[tuple[str, int], ...]:
    return tuple(kind for kind in GAVEL_KINDS if kind[0] in models)


@dataclass(frozen=True, slots=True)
class LogUniformMixture:
    """A mixture of distributions uniform in the logarithm: (weight, least, most) of each."""

    parts: tuple[tuple[float, float, float], ...]

    def draw(self, rng: np.random.Generator, count: int, low: float, high: float) -> FloatColumn:
        """So many values, rounded; those beyond ``low`` or ``high`` are put there."""
        weights, least, most = (np.array(column) for column in zip(*self.parts, strict=True))
        part = draw_choices(rng, count, weights.tolist())
        values = least[part] * (most[part] / least[part]) ** rng.random(count)
        return np.asarray(np.clip(np.round(values), low, high))


def _sizes(shares: dict[int, float], run_s: RunTimeLaw) -> tuple[JobClass, ...]:
    return tuple(JobClass(share, gpus, run_s, GAVEL_KINDS) for gpus, share in shares.items())


PHILLY = WorkloadFamily(
    cluster="8x4:v100",
    users=40,
    classes=tuple(
        JobClass(share, gpus, law, GAVEL_KINDS)
        for gpus, share, law in zip(philly.GPU_SIZES, philly.SIZE_SHARES, philly.RUN_S, strict=True)
    ),
    rates=weekly_rates(philly.PEAK_HOUR, philly.AMPLITUDE, philly.DAY_FACTORS),
    longest_s=3 * DAY_S,
)
"""Sizes, run times, sessions and hours of ``philly-month``. Our choices: the cluster, users (the public trace as we have it
names virtual clusters only), and a longest time limit of three days, which 1.0 % of the trace's jobs exceeded: a workload of
a thousand jobs lasts a week, and one job of weeks would be its whole load."""

_POLLUX = (
    ("cifar10", 2048, ((6, 0.1006, 910), (8, 0.0881, 865))),
    ("cifar10", 4096, ((12, 0.0931, 624), (16, 0.0903, 482))),
    ("deepspeech2", 320, ((6, 0.0303, 4_142), (8, 0.0275, 3_530))),
    ("deepspeech2", 640, ((12, 0.0300, 2_477),)),
    ("bert", 384, ((6, 0.0206, 3_092), (8, 0.0150, 2_459), (12, 0.0169, 1_594), (16, 0.0213, 1_324))),
    ("ncf", 32_768, ((1, 0.4009, 47),)),
    ("yolov3", 64, ((4, 0.0488, 14_102),)),
    ("imagenet", 3_200, ((24, 0.0050, 31_805),)),
    ("imagenet", 6_400, ((32, 0.0069, 27_431), (48, 0.0047, 19_689))),
)
"""Model, batch over all GPUs, and for each number of GPUs the share of jobs and the run time alone: counted in the 3 200
jobs of Pollux' public workloads (petuum/adaptdl, osdi21-artifact), with run times by its measured step times."""
POLLUX_SPREAD = 0.25
"""Our choice: standard deviation of the logarithm of run times of one kind, which the artifact takes to be all alike."""
POLLUX = WorkloadFamily(
    cluster="16x4:v100",
    users=20,
    classes=tuple(
        JobClass(share, gpus, LogNormalMixture(((1.0, run_s, POLLUX_SPREAD),)), ((model, batch),))
        for model, batch, sizes in _POLLUX
        for gpus, share, run_s in sizes
    ),
    rates=np.array((0.95, 0.87, 0.54, 0.97, 1.16, 1.78, 0.92, 0.81)),
    longest_s=DAY_S,
    sweep_most=1,
)
"""The cluster is the artifact's, and so are the rates: those of its eight hours. Users and time limits are our choice."""

GAVEL = WorkloadFamily(
    cluster="8x4:v100",
    users=25,
    classes=_sizes({1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}, LogUniformMixture((
        (0.8, 60.0 * 10**1.5, 60.0 * 10**3), (0.2, 60.0 * 10**3, 60.0 * 10**4),
    ))),
    rates=np.ones(1),
    longest_s=7 * DAY_S,
    sweep_most=1,
)  # fmt: skip
"""Sizes and run times as Gavel's own generator draws them (scheduler/utils.py; its evaluation), Poisson arrivals. Users and
time limits are our choice, and so is one kind of GPU."""

_SODA_KINDS = (
    ("speech", 0.33, _of("LM")),
    ("nlp", 0.33, _of("Transformer")),
    ("cv", 0.34, _of("ResNet-18", "ResNet-50")),
)
_SODA_GPU_JOBS = (soda.TRAINING_JOBS, soda.INFERENCE_JOBS, soda.CPU_JOBS)
_TRAINING, _INFERENCE, _CPU = (count / sum(_SODA_GPU_JOBS) for count in _SODA_GPU_JOBS)
_CORES = ((2, soda.FEW), (6, soda.SOME), (14, soda.MANY))
SODA = WorkloadFamily(
    cluster="8x5:v100/28c",
    users=soda.USERS,
    classes=(
        *(
            JobClass(
                _TRAINING * shape_share * core_share * kind_share, nodes * per_node, soda.TRAINING_RUN_S, kinds,
                nodes=nodes, gpus_per_node=per_node, cpus=nodes * min(per_node * cores, soda.NODE_CPUS), category=category)
            for (nodes, per_node), shape_share in zip(soda.TRAINING_SHAPES, soda.SHAPE_SHARES, strict=True)
            for cores, core_share in _CORES
            for category, kind_share, kinds in _SODA_KINDS
        ),
        JobClass(_INFERENCE, 1, soda.INFERENCE_RUN_S, _of("Recommendation"), gpus_per_node=1, cpus=soda.INFERENCE_CPUS,
                 preemptible=False, category="inference"),
        *(
            JobClass(_CPU * share, 0, soda.CPU_RUN_S, cpus=cores)
            for cores, share in zip(soda.CPU_CORES, soda.CORE_SHARES, strict=True)
        ),
    ),
    rates=soda.TRAINING_RATES,
    longest_s=7 * DAY_S,
    sweep_most=1,
)  # fmt: skip
"""Jobs of ``soda-month`` in the same numbers to each other, with its run times, shapes and users, on a tenth of its nodes.
Our choices beside those of that workload: models that were measured in pairs stand for the paper's by category, cores of
each GPU are the middle of its three groups, all kinds follow the rates of training, and no service stays for ever."""

LAB = WorkloadFamily(
    cluster="4x4:v100",
    users=14,
    classes=_sizes({1: 0.70, 2: 0.15, 4: 0.13, 8: 0.02}, LogNormalMixture((
        (0.40, 240.0, 1.0), (0.45, 2.0 * HOUR_S, 0.9), (0.15, 20.0 * HOUR_S, 0.6),
    ))),
    rates=weekly_rates(16.0, 0.9, (1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.4)),
    longest_s=5 * DAY_S,
)  # fmt: skip
"""A small lab: trials of minutes, trainings of hours, some of days, mostly on one GPU, mostly in the afternoon. All of it is
our choice, but sessions, which are Philly's."""

DAY_AND_NIGHT = WorkloadFamily(
    cluster="8x4:v100",
    users=60,
    classes=_sizes({1: 0.60, 2: 0.15, 4: 0.15, 8: 0.07, 16: 0.03}, LogNormalMixture((
        (0.5, 600.0, 1.2), (0.5, 3.0 * HOUR_S, 1.0),
    ))),
    rates=weekly_rates(14.0, 1.0, (1.0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.25)),
    longest_s=3 * DAY_S,
)  # fmt: skip
"""A site of one time zone: twice the mean rate at two in the afternoon and nobody at two in the morning, a quarter at
weekends, so that a queue builds by day and is worked off by night. All of it is our choice, but sessions, which are
Philly's."""
