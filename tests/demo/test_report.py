"""Figures against examples worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.demo.accounting import MixJobRecord, MixJobRun
from slurm_soda.demo.job_mix.mix_figures import StoredJobUsage, compare_figures, compute_figures, run_document


def job(job_id: int, gpus: int, submit_s: float, *runs: tuple[float, float]) -> MixJobRecord:
    pieces = tuple(MixJobRun(start, end, "COMPLETED", "n1") for start, end in runs)
    return MixJobRecord(job_id, "bob", f"job-{job_id}", "COMPLETED", gpus, submit_s, runs[-1][1], pieces)


# Two GPUs. JCTs 10, 20, 40; queue 0, 10, 20; GPU seconds 10, 2 * 10, 20 of 2 * 50.
JOBS = [job(1, 1, 0, (0, 10)), job(2, 2, 10, (20, 30)), job(3, 1, 10, (30, 40), (40, 50))]


def test_worked_example() -> None:
    found = compute_figures(JOBS, gpus=2)
    assert found.jobs == 3
    assert found.avg_jct_s == pytest.approx(70 / 3)
    assert found.p50_jct_s == 20
    assert found.p95_jct_s == pytest.approx(38)  # linear between 20 and 40, at 0.9
    assert found.avg_queue_s == pytest.approx(10)
    assert found.makespan_s == 50
    assert found.gpu_allocated_ratio == pytest.approx(0.5)
    assert found.preemptions == 1
    assert found.gpu_util_ratio is None
    assert found.store_jct_difference_s is None


def test_utilisation_is_weighted_by_gpu_time_and_fills_gaps_with_the_mean() -> None:
    measured = {1: StoredJobUsage(11.5, 0.4), 2: StoredJobUsage(20.0, 0.9), 3: StoredJobUsage(None, None)}
    found = compute_figures(JOBS, gpus=2, measured=measured)
    assert found.gpu_util_ratio == pytest.approx((0.4 * 10 + 0.9 * 20) / 30 * 0.5)
    assert found.store_jct_difference_s == pytest.approx(1.5)


def test_no_jobs_is_an_error() -> None:
    with pytest.raises(ValueError, match="no jobs"):
        compute_figures([], 8)


def test_the_document_has_the_promised_keys_and_every_job() -> None:
    document = run_document(list(reversed(JOBS)), 2, {2: StoredJobUsage(20.4, 0.5)})
    promised = {"avg_jct_s", "p95_jct_s", "avg_queue_s", "makespan_s", "gpu_util_ratio", "preemptions", "jobs"}
    assert promised <= set(document)
    assert [entry["job_id"] for entry in document["per_job"]] == [1, 2, 3]
    assert [entry["jct_s"] for entry in document["per_job"]] == [10, 20, 40]
    assert document["per_job"][1]["store_jct_s"] == 20.4
    assert [len(entry["runs"]) for entry in document["per_job"]] == [1, 1, 2]


def test_comparison_leaves_out_what_one_side_does_not_know() -> None:
    stock, soda = run_document(JOBS, 2, {}), run_document(JOBS[:1], 2, {1: StoredJobUsage(10, 0.5)})
    assert compare_figures(stock, soda) == {"avg_jct": 0.4286, "p50_jct": 0.5, "p95_jct": 0.2632, "makespan": 0.2}


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(0, 100), st.lists(st.integers(1, 50), min_size=1, max_size=4)),
        min_size=1,
        max_size=20,
    )
)
def test_figures_hang_together(rows: list[tuple[int, int, list[int]]]) -> None:
    jobs = []
    for number, (gpus, submit_s, lengths) in enumerate(rows):
        edges = [float(submit_s)]
        for length in lengths:
            edges += [edges[-1] + 1, edges[-1] + 1 + length]
        jobs.append(job(number + 1, gpus, submit_s, *zip(edges[1::2], edges[2::2], strict=True)))
    found = compute_figures(jobs, gpus=1000)
    assert found.avg_queue_s <= found.avg_jct_s <= found.makespan_s
    assert found.p50_jct_s <= found.p95_jct_s
    assert 0 <= found.gpu_allocated_ratio <= 1
    assert found.preemptions == sum(len(lengths) - 1 for _, _, lengths in rows)
