"""The mix of the sharing demo: light models, long queues, and many jobs that cannot save their state.

Sharing pays where GPUs are wanted by more jobs than fit, and where no job may be stopped for another. So most jobs do not
consent to preemption, they come faster than the GPUs can serve them, and their models are those that leave a part of a
GPU idle. Run times are spread evenly in their logarithm, one in each part of the range, so that few jobs make a whole mix.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slurm_soda.demo.job_mix.mix_jobs import MODELS, USERS
from slurm_soda.demo.sharing_mix.speed_table import ModelSpeed

SHORTEST_S, LONGEST_S = 20.0, 120.0
"""Real seconds alone: a guest needs two or three to start, which a job of 50 s can bear."""
MEAN_GAP_S = 4.0
TWO_GPUS = 0.3
"""Share of the jobs that ask for two GPUs; the others ask for one."""
CHECKPOINTS = 0.3
"""Share of the jobs that can save their state."""
LIGHT_MODELS = ("alexnet", "deepspeech", "resnet50", "wavenet")
TIME_SCALE = 20.0
"""Nominal seconds of the emulated trainings in one real second."""
MIN_JOBS = 4


@dataclass(frozen=True, slots=True)
class SharingJob:
    """One job to be submitted. All consent to sharing."""

    name: str
    user: str
    arrival_s: float
    """Real seconds after the first submission."""
    gpus: int
    model: str
    iterations: int
    run_s: float
    """Real seconds that these take alone."""
    checkpoints: bool

    @property
    def cores(self) -> int:
        """CPU cores: what the model needs to run at full speed."""
        return MODELS[self.model].cores * self.gpus


def draw_sharing_mix(seed: int, jobs: int, speeds: Mapping[str, ModelSpeed]) -> tuple[SharingJob, ...]:
    """Draw a mix, by arrival; the same arguments give the same jobs.

    Args:
        seed: of the draw.
        jobs: how many.
        speeds: of the models, as ``speed_table`` reads them.

    Raises:
        ValueError: fewer than 4 jobs.
    """
    if jobs < MIN_JOBS:
        raise ValueError(f"a mix needs {MIN_JOBS} jobs or more, got {jobs}")
    rng = np.random.default_rng(seed)
    arrival_s = np.concatenate(([0.0], np.cumsum(rng.exponential(MEAN_GAP_S, jobs - 1))))
    part = rng.permutation((np.arange(jobs) + rng.random(jobs)) / jobs)
    wanted_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** part
    gpus = 1 + rng.permutation(np.arange(jobs) < round(jobs * TWO_GPUS)).astype(np.int64)
    checkpoints = rng.permutation(np.arange(jobs) < round(jobs * CHECKPOINTS))
    users, models = rng.permutation(np.resize(USERS, jobs)), rng.permutation(np.resize(LIGHT_MODELS, jobs))
    drawn = []
    for at in range(jobs):
        model = str(models[at])
        each_s = speeds[model].iteration_s(int(gpus[at])) / TIME_SCALE
        iterations = max(1, round(float(wanted_s[at]) / each_s))
        drawn.append(
            SharingJob(
                name=f"{model}-{at + 1:02d}",
                user=str(users[at]),
                arrival_s=round(float(arrival_s[at]), 3),
                gpus=int(gpus[at]),
                model=model,
                iterations=iterations,
                run_s=round(iterations * each_s, 3),
                checkpoints=bool(checkpoints[at]),
            )
        )
    return tuple(drawn)


def sbatch_argv(job: SharingJob, speeds: Mapping[str, ModelSpeed]) -> list[str]:
    """Command line that submits a job whose script comes on standard input."""
    argv = [
        "sbatch",
        "--parsable",
        "--requeue",
        "--open-mode=append",
        f"--job-name={job.name}",
        f"--output={job.name}-%j.out",
        "--nodes=1",
        f"--cpus-per-task={job.cores}",
        f"--gres=gpu:{job.gpus}",
        "--time=30",
        f"--soda-model={job.model}",
        f"--soda-batch-size={speeds[job.model].batch}",
        f"--soda-iterations={job.iterations}",
        "--soda-share=yes",
    ]
    return [*argv, "--soda-checkpoint=TERM"] if job.checkpoints else argv


def batch_script(job: SharingJob, speeds: Mapping[str, ModelSpeed]) -> str:
    """The job's script; only a job that says so saves its state."""
    train = [
        "soda-train",
        f"--model={job.model}",
        f"--batch-size={speeds[job.model].batch}",
        f"--iterations={job.iterations}",
        f"--time-scale={TIME_SCALE:g}",
        *(["--checkpoint-dir=checkpoints"] if job.checkpoints else []),
    ]
    return f"#!/bin/sh\nmkdir -p checkpoints\nexec {shlex.join(train)}\n"


def build_orders(mix: tuple[SharingJob, ...], speeds: Mapping[str, ModelSpeed]) -> list[dict[str, object]]:
    """What the driver needs to submit a mix."""
    return [
        {
            "at_s": job.arrival_s,
            "user": job.user,
            "argv": sbatch_argv(job, speeds),
            "script": batch_script(job, speeds),
        }
        for job in mix
    ]
