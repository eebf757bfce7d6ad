"""Batch scripts and sbatch command lines of the mix: what a user of the cluster would type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from slurm_soda.demo.job_mix.mix_jobs import MODELS, JobMix, MixJob

TRAINER = "soda-train"
CHECKPOINT_DIR = "checkpoints"
"""In the user's home, which all nodes share: a requeued job may start on another node."""


def sbatch_argv(job: MixJob) -> list[str]:
    """Command line that submits a job whose script comes on standard input."""
    model = MODELS[job.model]
    argv = [
        "sbatch",
        "--parsable",
        "--requeue",
        "--open-mode=append",
        f"--job-name={job.name}",
        f"--output={job.name}-%j.out",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={job.cpus_per_node}",
        f"--gres=gpu:{job.gpus_per_node}",
        f"--soda-category={model.category}",
        f"--soda-model={job.model}",
        f"--soda-batch-size={model.batch_size}",
        "--soda-checkpoint=TERM",
    ]
    return argv if job.limit_min is None else [*argv, f"--time={job.limit_min}"]


def batch_script(job: MixJob, time_scale: float) -> str:
    """The job's script. It becomes the training itself: Slurm ends a job when its first process ends, save or no save."""
    # srun does not pass --cpus-per-task on by itself.
    launch = [] if job.nodes == 1 else ["srun", f"--cpus-per-task={job.cpus_per_node}"]
    return training_script(job.model, job.duration_s, time_scale, launch)


def training_script(model: str, duration_s: float, time_scale: float, launch: Sequence[str] = ()) -> str:
    """A script that trains a model for so long and saves its state; ``launch`` is put before the command."""
    train = [
        TRAINER,
        f"--model={model}",
        f"--batch-size={MODELS[model].batch_size}",
        f"--duration-s={duration_s:g}",
        f"--time-scale={time_scale:g}",
        f"--checkpoint-dir={CHECKPOINT_DIR}",
    ]
    return f"#!/bin/sh\nmkdir -p {CHECKPOINT_DIR}\nexec {shlex.join([*launch, *train])}\n"


def build_orders(mix: JobMix) -> list[dict[str, object]]:
    """What the driver needs to submit a mix, in the order of arrival."""
    return [
        {
            "at_s": job.arrival_s,
            "user": job.user,
            "argv": sbatch_argv(job),
            "script": batch_script(job, mix.time_scale),
        }
        for job in mix.jobs
    ]
