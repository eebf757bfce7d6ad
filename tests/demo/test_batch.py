"""What is submitted: command lines and scripts, to the letter."""

from __future__ import annotations

from slurm_soda.demo.job_mix.mix_jobs import MixJob, draw_mix
from slurm_soda.demo.job_mix.sbatch import batch_script, build_orders, sbatch_argv

ONE = MixJob("bert-07", "alice", 1.5, 1, 1, 1234.5, 3, "bert")
GANG = MixJob("vgg16-08", "carol", 2.5, 8, 2, 600.0, None, "vgg16")


def test_a_small_job() -> None:
    assert sbatch_argv(ONE) == [
        "sbatch", "--parsable", "--requeue", "--open-mode=append", "--job-name=bert-07", "--output=bert-07-%j.out",
        "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=2", "--gres=gpu:1", "--soda-category=nlp",
        "--soda-model=bert", "--soda-batch-size=16", "--soda-checkpoint=TERM", "--time=3",
    ]  # fmt: skip
    assert batch_script(ONE, 150.0) == (
        "#!/bin/sh\nmkdir -p checkpoints\n"
        "exec soda-train --model=bert --batch-size=16 --duration-s=1234.5 --time-scale=150 --checkpoint-dir=checkpoints\n"
    )


def test_a_gang_over_two_nodes_runs_under_srun_and_names_no_limit() -> None:
    argv = sbatch_argv(GANG)
    assert {"--nodes=2", "--gres=gpu:4", "--cpus-per-task=8"} <= set(argv)
    assert not any(word.startswith("--time") for word in argv)
    assert "\nexec srun --cpus-per-task=8 soda-train " in batch_script(GANG, 150.0)


def test_orders_keep_the_order_of_arrival() -> None:
    mix = draw_mix(2)
    assert [order["at_s"] for order in build_orders(mix)] == [job.arrival_s for job in mix.jobs]
    assert [order["user"] for order in build_orders(mix)] == [job.user for job in mix.jobs]
