"""Advice after which the next job would fail, or that claims what nobody saw, is not given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.daemon.job_reports.build import build_report
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
    run,
    usage,
)

TWO_NODES: dict[str, Any] = {
    "job": job(gpus=4, nodes=2, cpus=32, memory_mib=131_072),
    "runs": [run(node_names="n[1-2]", gpus=4)],
    "cpus_on": {(0, "n1"): 16, (0, "n2"): 16},
}
LITTLE = {"cpu_s": 2.5 * RUN_S, "memory_peak_mib": 5000.0}
"""Of usage: few cores and little memory."""
SEEN_FOR_70_S = replace(
    UNUSED, readings=35, covered_s=70.0, idle_s=70.0, idle_spans_s=70.0, spans=(IdleSpan(0.0, 70.0),)
)
FOUND_LATE = replace(BUSY, readings=900, covered_s=1800.0, busy_from_s=1800.0, idle_s=0.0)
"""The agent was started, or brought to this version, half an hour after the job."""
LOST_EARLY = replace(BUSY, readings=900, covered_s=1800.0, busy_until_s=1800.0, idle_s=0.0)
"""The driver did not answer any more after half an hour."""


def topics(now_s: float = END_S + 1000, **more: Any) -> list[str]:
    return [one.topic for one in build_report(facts(**more), now_s).advice]


def test_the_memory_of_one_task_is_not_that_of_the_node() -> None:
    """Slurm's MaxRSS is the largest of the tasks: eight of them with 5 GiB each fill 40 GiB."""
    of_tasks = build_report(facts(job=job(memory_peak_mib=5000.0)), END_S)
    assert of_tasks.used.memory_peak_mib == 40_960
    assert not of_tasks.advice
    assert topics(job=job(memory_peak_mib=5000.0), usage=[], gpu_uses=[]) == []


def test_a_node_that_was_not_measured_may_have_needed_more() -> None:
    one_node: dict[str, Any] = {"usage": [usage(**LITTLE)], "gpu_uses": [gpu_uses(BUSY, BUSY)]}
    assert topics(**TWO_NODES, **one_node) == []
    both: dict[str, Any] = {"usage": [usage(**LITTLE), usage(node="n2", **LITTLE)]}
    both |= {"gpu_uses": [gpu_uses(BUSY, BUSY), gpu_uses(BUSY, BUSY, node="n2")]}
    assert topics(**TWO_NODES, **both) == ["memory", "cpus"]


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "NODE_FAIL", "PREEMPTED"])
def test_a_job_that_did_not_get_to_its_end_may_have_needed_more_later(state: str) -> None:
    assert topics(usage=[usage(**LITTLE)], job=job(state=state)) == []


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT"])
def test_a_job_that_ran_as_long_as_it_could_is_advised(state: str) -> None:
    assert topics(usage=[usage(**LITTLE)], job=job(state=state)) == ["memory", "cpus"]


def test_what_came_after_the_last_reading_is_not_known() -> None:
    assert topics(usage=[usage(**LITTLE, last_s=END_S - 900)], gpu_uses=[]) == []


def test_a_last_run_that_resumed_needs_less_time_than_the_whole_job() -> None:
    """A limit holds for each run, and the next job may not be preempted."""
    runs = [run(0, START_S, START_S + 3000), run(1, START_S + 3100, END_S)]
    more: dict[str, Any] = {"job": job(time_limit_s=3 * 3600.0), "runs": runs, "usage": [], "gpu_uses": []}
    assert topics(**more) == []
    (one,) = build_report(facts(**more | {"job": job(time_limit_s=4 * 86_400.0)}), END_S).advice
    assert one.text.startswith("It ran for 58 min 20 s of the 4 d 00 h that it asked for: with --time=1:28:00")


def test_a_minute_of_an_hour_does_not_tell_that_a_gpu_was_never_used() -> None:
    found = build_report(facts(gpu_uses=[gpu_uses(SEEN_FOR_70_S, SEEN_FOR_70_S, last_s=START_S + 70)]), END_S)
    assert "unused-gpus" not in [one.topic for one in found.advice]
    assert found.used.gpus_never_used == 0


def test_a_gpu_that_an_agent_lost_sight_of_is_not_said_to_be_unused() -> None:
    """The job still runs, and its agent has been away for an hour."""
    live = {
        "job": job(state="RUNNING", end_s=None),
        "runs": [run(end_s=None)],
        "usage": [usage(last_s=START_S + 70, cpu_s=800.0)],
    }
    seen = [gpu_uses(SEEN_FOR_70_S, SEEN_FOR_70_S, last_s=START_S + 70)]
    assert topics(START_S + 100, **live, gpu_uses=seen) == ["unused-gpus"]
    assert topics(START_S + 3600, **live, gpu_uses=seen) == []


@pytest.mark.parametrize("gpu", [FOUND_LATE, LOST_EARLY])
def test_what_nobody_saw_is_neither_an_idle_start_nor_an_idle_end(gpu: Any) -> None:
    assert topics(gpu_uses=[gpu_uses(gpu, gpu)]) == []


def test_a_node_whose_gpus_were_not_measured_may_have_begun_at_once() -> None:
    late = replace(
        BUSY, busy_from_s=600.0, idle_s=600.0, idle_spans=1, idle_spans_s=600.0, spans=(IdleSpan(0.0, 600.0),)
    )
    assert topics(**TWO_NODES, usage=[usage()], gpu_uses=[gpu_uses(late, late)]) == []


def test_who_holds_memory_of_a_gpu_has_found_it() -> None:
    """A notebook, or a model that waits for queries: short kernels fall between the readings."""
    holds = replace(UNUSED, memory_peak_mib=20_000.0)
    (one,) = build_report(facts(gpu_uses=[gpu_uses(holds, holds)]), END_S).advice
    assert one.text == (
        "None of its 2 GPUs was seen in use in 1 h 00 min (2.0 GPU hours), although up to 20 GiB of memory of one "
        "were held: what does the program compute on?"
    )
