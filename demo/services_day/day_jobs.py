"""The training jobs of the day: more than eight GPUs can take at once, from the first minute on.

A fifth of them ask for all GPUs of a node: a service on one GPU of a node keeps these from that node. All can save their
state, and consent to being requeued, so that they can give way to the service.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.demo.job_mix.mix_jobs import MODELS, USERS
from slurm_soda.demo.job_mix.sbatch import training_script
from slurm_soda.demo.services_day.day_settings import CLUSTER_GPUS, GPUS_PER_NODE

GPU_SHARES = {1: 0.45, 2: 0.35, GPUS_PER_NODE: 0.2}
SHORTEST_PART, LONGEST_PART = 1 / 45, 1 / 9
"""Run times, as parts of the day: spread evenly in their logarithm. So there are some 60 jobs: with 40 that take longer,
what one GPU more is worth differs too much from seed to seed."""
OFFERED = 0.85
"""GPU time that the jobs of a day take, as a part of what there is; they come in its first :data:`ARRIVE_WITHIN`."""
ARRIVE_WITHIN = 0.8
TIME_SCALE = 20.0
"""Nominal seconds of the emulated trainings in one real second."""


@dataclass(frozen=True, slots=True)
class DayJob:
    """One training job."""

    name: str
    user: str
    arrival_s: float
    """Seconds after the day's start."""
    gpus: int
    model: str
    run_s: float
    """Real seconds that it takes alone."""

    @property
    def cores(self) -> int:
        """CPU cores: what the model needs to run at full speed."""
        return MODELS[self.model].cores * self.gpus


def draw_day_jobs(seed: int, day_s: float) -> tuple[DayJob, ...]:
    """The jobs of a day of so many seconds, by arrival; the same arguments give the same jobs."""
    rng = np.random.default_rng(seed)
    counts, wanted_gpu_s = [], OFFERED * CLUSTER_GPUS * day_s
    mean_part = (LONGEST_PART - SHORTEST_PART) / np.log(LONGEST_PART / SHORTEST_PART)
    mean_gpus = sum(gpus * share for gpus, share in GPU_SHARES.items())
    jobs = max(4, round(wanted_gpu_s / (mean_part * day_s * mean_gpus)))
    for gpus, share in GPU_SHARES.items():
        counts += [gpus] * round(jobs * share)
    gpus_of = rng.permutation(np.array(counts, dtype=np.int64))
    jobs = len(gpus_of)
    part = rng.permutation((np.arange(jobs) + rng.random(jobs)) / jobs)
    run_s = day_s * SHORTEST_PART * (LONGEST_PART / SHORTEST_PART) ** part
    # One in each equal part of the time: else most of the jobs of some seeds come while the service needs its GPU.
    arrival_s = (np.arange(jobs) + rng.random(jobs)) / jobs * ARRIVE_WITHIN * day_s
    users, models = rng.permutation(np.resize(USERS, jobs)), rng.permutation(np.resize(["resnet50", "bert"], jobs))
    return tuple(
        DayJob(
            name=f"{models[at]}-{at + 1:02d}",
            user=str(users[at]),
            arrival_s=round(float(arrival_s[at]), 2),
            gpus=int(gpus_of[at]),
            model=str(models[at]),
            run_s=round(float(run_s[at]), 2),
        )
        for at in range(jobs)
    )


def sbatch_argv(job: DayJob) -> list[str]:
    """Command line that submits a job whose script comes on standard input."""
    return [
        "sbatch",
        "--parsable",
        "--requeue",
        "--open-mode=append",
        f"--job-name={job.name}",
        f"--output={job.name}-%j.out",
        "--nodes=1",
        f"--cpus-per-task={job.cores}",
        f"--gres=gpu:{job.gpus}",
        "--time=60",
        f"--soda-model={job.model}",
        f"--soda-batch-size={MODELS[job.model].batch_size}",
        "--soda-checkpoint=TERM",
    ]


def build_orders(jobs: tuple[DayJob, ...]) -> list[dict[str, object]]:
    """What the driver needs to submit the jobs."""
    return [
        {
            "at_s": job.arrival_s,
            "user": job.user,
            "argv": sbatch_argv(job),
            "script": training_script(job.model, job.run_s * TIME_SCALE, TIME_SCALE),
        }
        for job in jobs
    ]
