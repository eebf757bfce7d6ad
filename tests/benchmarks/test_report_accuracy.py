"""Reports against what emulated GPUs did: a few jobs always, all sixty with --thorough; and what judges them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.report_accuracy.__main__ import is_right, measured, print_summary
from benchmarks.report_accuracy.judging import judge
from benchmarks.report_accuracy.patterns import MadeJob, Pattern, Phase, make_jobs
from slurm_soda.daemon.job_reports.build import build_report
from slurm_soda.wire.gpu_use import IdleSpan
from tests.agent.test_gpus import library
from tests.daemon.job_reports.rows import BUSY, END_S, RUN_S, START_S, facts, gpu_uses, job, usage

__all__ = ["library"]


@pytest.mark.parametrize(("jobs", "longest_s"), [(4, 200.0), pytest.param(60, 5400.0, marks=pytest.mark.thorough)])
def test_reports_are_right_to_2_points_and_5_s(
    library: Path, tmp_path: Path, jobs: int, longest_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(library, tmp_path, jobs, 1, longest_s)
    print_summary(found)
    assert is_right(found), capsys.readouterr().out
    assert len(found["jobs"]) == jobs
    assert found["json_bytes"] / found["gpus"] < 900


@given(st.integers(0, 1000))
def test_made_jobs_have_no_gaps_and_pauses_of_all_lengths(seed: int) -> None:
    jobs = make_jobs(8, seed)
    for made in jobs:
        for pattern in made.gpus:
            assert pattern.phases[0].from_s == 0.0
            assert pattern.phases[-1].until_s == made.run_s
            for before, after in zip(pattern.phases, pattern.phases[1:], strict=False):
                assert before.until_s == after.from_s
    assert not jobs[7].gpus[-1].is_used


def judged(told: float, *spans: IdleSpan, starts_s: float = 300.0, length_s: float = 40.0) -> list[object]:
    """A GPU that was idle for 40 s and told to be used so much with these spans."""
    pattern = Pattern(
        (Phase(0, starts_s, 80), Phase(starts_s, starts_s + length_s, 0), Phase(starts_s + length_s, RUN_S, 80))
    )
    use = replace(
        BUSY, util_ratio=told, spans=spans, idle_spans=len(spans), idle_spans_s=sum(span.length_s for span in spans)
    )
    found = build_report(facts(job=job(gpus=1), usage=[usage(gpu_count=1)], gpu_uses=[gpu_uses(use)]), END_S)
    (one,) = judge(MadeJob(7, 0.0, RUN_S, [pattern]), found, START_S)
    return [round(one.util_off, 1), one.span_start_off_s, one.span_length_off_s, one.invented, one.lost]


TRUE = 0.8 * (RUN_S - 40) / RUN_S


def test_what_is_told_right_and_wrong_is_told_apart() -> None:
    assert judged(TRUE, IdleSpan(298.0, 41.0)) == [0.0, 2.0, 1.0, 0, 0]
    assert judged(TRUE + 0.03) == [3.0, 0.0, 0.0, 0, 1]
    assert judged(TRUE, IdleSpan(298.0, 41.0), IdleSpan(900.0, 6.0)) == [0.0, 2.0, 1.0, 1, 0]
    assert judged(0.8 * (RUN_S - 4.5) / RUN_S, IdleSpan(299.0, 5.5), length_s=4.5) == [0.0, 1.0, 1.0, 0, 0]
