"""Advice: each sentence has its figure, and is given only where it would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.daemon.job_reports.build import build_report
from slurm_soda.daemon.job_reports.model import TOPICS
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow
from slurm_soda.wire.gpu_use import IdleSpan
from tests.daemon.job_reports.rows import (
    BUSY,
    END_S,
    RUN_S,
    START_S,
    UNUSED,
    facts,
    gpu_uses,
    job,
    pace,
    progress,
    run,
    usage,
)

LOW = replace(BUSY, util_ratio=0.3)
LATE = replace(
    BUSY,
    util_ratio=0.75,
    busy_from_s=600.0,
    idle_s=600.0,
    idle_spans=1,
    idle_spans_s=600.0,
    spans=(IdleSpan(0.0, 600.0),),
)
EARLY = replace(
    BUSY, util_ratio=0.7, busy_until_s=RUN_S - 900, idle_s=900.0, idle_spans=1, idle_spans_s=900.0,
    spans=(IdleSpan(RUN_S - 900, 900.0),),
)  # fmt: skip
PAUSES = replace(
    BUSY, util_ratio=0.4, idle_s=1500.0, idle_spans=30, idle_spans_s=1400.0,
    spans=tuple(IdleSpan(300.0 * place, 40.0 + place) for place in range(1, 9)),
)  # fmt: skip

CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "all is well": ({}, {}),
    "one GPU unused": (
        {"gpu_uses": [gpu_uses(BUSY, UNUSED)]},
        {"unused-gpus": "GPU 1 of n1 was never used in 1 h 00 min: --gres=gpu:1 would do (1.0 GPU hours were held)."},
    ),
    "all GPUs unused": (
        {"gpu_uses": [gpu_uses(UNUSED, UNUSED)]},
        {
            "unused-gpus": "None of its 2 GPUs was ever used in 1 h 00 min (2.0 GPU hours): does the program find a "
            "GPU? If it "
            "needs none, leave out --gres=gpu."
        },
    ),
    "the only GPU unused": (
        {"job": job(gpus=1), "gpu_uses": [gpu_uses(UNUSED)], "usage": [usage(gpu_count=1)]},
        {
            "unused-gpus": "Its GPU was never used in 1 h 00 min (1.0 GPU hours): does the program find a GPU? If "
            "it needs none, "
            "leave out --gres=gpu."
        },
    ),
    "one unused on each node": (
        {
            "job": job(gpus=4, nodes=2, cpus=32, memory_mib=131_072),
            "runs": [run(node_names="n[1-2]", gpus=4)],
            "usage": [usage(), usage(node="n2")],
            "gpu_uses": [gpu_uses(BUSY, UNUSED), gpu_uses(UNUSED, BUSY, node="n2")],
            "cpus_on": {(0, "n1"): 16, (0, "n2"): 16},
        },
        {
            "unused-gpus": "GPU 1 of n1 and GPU 0 of n2 were never used in 1 h 00 min: --gres=gpu:1 would do (2.0 "
            "GPU hours were "
            "held)."
        },
    ),
    "a GPU that was not measured may have been used": (
        {"job": job(gpus=3), "gpu_uses": [gpu_uses(BUSY, UNUSED)], "usage": [usage(gpu_count=3)]},
        {},
    ),
    "a long start": (
        {"gpu_uses": [gpu_uses(LATE, LATE)]},
        {
            "start": "No GPU was used in the first 10 min 00 s (17 % of the run): get data ready in a job "
            "without GPUs before."
        },
    ),
    "one GPU starts at once": ({"gpu_uses": [gpu_uses(BUSY, LATE)]}, {}),
    "a long end": (
        {"gpu_uses": [gpu_uses(EARLY, EARLY)]},
        {
            "end": "No GPU was used in the last 15 min 00 s (25 % of the run): end the job with its "
            "training, or go on without "
            "GPUs."
        },
    ),
    "an end that nobody saw": (
        {"gpu_uses": [gpu_uses(EARLY, EARLY, last_s=END_S - 900)], "usage": [usage(last_s=END_S - 900)]},
        {},
    ),
    "pauses": (
        {"gpu_uses": [gpu_uses(PAUSES, BUSY)], "job": job(gpus=1)},
        {},
    ),
    "pauses on each GPU": (
        {"gpu_uses": [gpu_uses(PAUSES, PAUSES)]},
        {
            "idle": "GPU 0 was idle for 23 min 20 s (39 % of its use) in 30 pauses of more than 5 s, the "
            "longest 48.0 s: see what "
            "the program does then (loading, saving, validation)."
        },
    ),
    "low without pauses": (
        {"gpu_uses": [gpu_uses(LOW, LOW)]},
        {"idle": "GPUs were busy for 30 % of the time, without long pauses: larger batches may use them better."},
    ),
    "low, and cores are busy": (
        {"gpu_uses": [gpu_uses(LOW, LOW)], "usage": [usage(cpu_s=15.5 * RUN_S)]},
        {
            "cpu-bound": "GPUs were busy for 30 % of the time, and 15.5 of 16 cores of n1: ask for more cores "
            "(--cpus-per-task).",
        },
    ),
    "many cores spare": (
        {"usage": [usage(cpu_s=2.5 * RUN_S)]},
        {"cpus": "It used 2.5 of 16 cores on average: 4 would do (--cpus-per-task)."},
    ),
    "much memory spare": (
        {"usage": [usage(memory_peak_mib=5000.0)]},
        {"memory": "It used up to 4.9 GiB of 64 GiB of memory on a node: --mem=7G would do."},
    ),
    "memory all but gone": (
        {"usage": [usage(memory_peak_mib=65_000.0)]},
        {
            "memory": "It used up to 63 GiB of 64 GiB of memory on a node: with little more it would have been "
            "ended; ask for more "
            "(--mem)."
        },
    ),
    "out of memory": (
        {"job": job(state="OUT_OF_MEMORY")},
        {"memory": "It ran out of memory of 64 GiB on a node; at most 40 GiB were seen: ask for more (--mem)."},
    ),
    "memory that nobody asked for": ({"job": job(memory_mib=None), "usage": [usage(memory_peak_mib=5000.0)]}, {}),
    "a time limit of days": (
        {"job": job(time_limit_s=4 * 86_400.0)},
        {
            "time-limit": "It ran for 1 h 00 min of the 4 d 00 h that it asked for: with --time=1:30:00 backfill "
            "finds it a place "
            "more easily."
        },
    ),
    "a job that was cancelled may have needed its limit": (
        {"job": job(time_limit_s=4 * 86_400.0, state="CANCELLED")},
        {},
    ),
    "much work done again": (
        {
            "job": job(preemptions=1),
            "runs": [run(0, START_S, START_S + 1000), run(1, START_S + 1300, END_S)],
            "usage": [usage(restart=1, first_s=START_S + 1300, cpu_s=12 * 2300)],
            "gpu_uses": [gpu_uses(BUSY, BUSY, restart=1, first_s=START_S + 1300)],
            "cpus_on": {(1, "n1"): 16},
            "progress": [progress(0, 500.0, 0.0, START_S), progress(1, 2000.0, 100.0, START_S + 1300)],
            "paces": [pace(0, 400.0, 800.0)],
        },
        {"preemption": "It did 13 min 20 s of work again after 1 requeue: save on the signal of --soda-checkpoint."},
    ),
}


@pytest.mark.parametrize(("more", "said"), CASES.values(), ids=CASES)
def test_advice(more: dict[str, Any], said: Mapping[str, str]) -> None:
    advice = build_report(facts(**more), END_S + 1000).advice
    assert {one.topic: one.text for one in advice} == said
    assert [one.topic for one in advice] == sorted(said, key=TOPICS.index)


def test_the_number_of_cores_that_a_search_found_counts_more_than_the_mean() -> None:
    fit = CpuFitRow(cores=6)
    (one,) = build_report(facts(usage=[usage(cpu_s=2.5 * RUN_S)], fits=[fit]), END_S).advice
    assert one.text == "It used 2.5 of 16 cores on average: 6 would do (--cpus-per-task)."
    more = {"gpu_uses": [gpu_uses(LOW, LOW)], "usage": [usage(cpu_s=15.5 * RUN_S)], "fits": [CpuFitRow(cores=24)]}
    assert (
        build_report(facts(**more), END_S).advice[0].text.endswith("(--cpus-per-task): 24 were measured to be enough.")
    )


def test_a_short_run_is_not_judged() -> None:
    live = {"job": job(state="RUNNING", end_s=None), "runs": [run(end_s=None)], "gpu_uses": [gpu_uses(UNUSED, UNUSED)]}
    assert build_report(facts(**live), START_S + 59).advice == []
    assert [one.topic for one in build_report(facts(**live), START_S + 61).advice] == ["unused-gpus"]
