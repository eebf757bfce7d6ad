"""The burst's mix, its reading of accounting and its arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_soda.demo.accounting import DemoError
from slurm_soda.demo.cpu_burst import sbatch
from slurm_soda.demo.cpu_burst.burst_accounting import BurstJobRecord, BurstRun, parse_sacct
from slurm_soda.demo.cpu_burst.burst_figures import (
    BurstNode,
    PoolLayout,
    check_promises,
    compute_figures,
    core_return_times,
    run_document,
)
from slurm_soda.demo.cpu_burst.burst_jobs import BURST_FOR_S, BURST_FROM_S, LIMIT_MIN, draw_burst
from slurm_soda.demo.cpu_burst.burst_runs import add_scheduler_parameters
from slurm_soda.demo.cpu_burst.report_page import headline_text, render_page
from slurm_soda.demo.cpu_burst.resource_usage import cores_in_use, gpus_in_use

NODE = BurstNode(cores=28, gpus=4)
LEND = PoolLayout(borrowing=frozenset({"gpu_cpu_lend"}), limits={"gpu_small": 18}, cpu_cores=2)


@pytest.mark.parametrize("seed", range(1, 8))
def test_every_seed_is_a_burst_of_the_paper_s_kind(seed: int) -> None:
    jobs = draw_burst(seed)
    assert jobs == draw_burst(seed) != draw_burst(seed + 100)
    training, cpu = [j for j in jobs if j.gpus], [j for j in jobs if not j.gpus]
    assert 0.65 <= len(cpu) / len(jobs) <= 0.75
    few = sum(job.cores <= 2 for job in training) / len(training)
    assert 0.6 <= few <= 0.8
    storm = [j for j in cpu if BURST_FROM_S <= j.arrival_s <= BURST_FROM_S + BURST_FOR_S]
    assert len(storm) >= 0.8 * len(cpu)
    assert sum(job.cores * job.run_s for job in cpu) > 2 * NODE.cores * 45, "they want every core for most of a minute"
    assert max(job.cores for job in jobs) <= NODE.cores
    assert max(job.run_s for job in jobs) < 60 * LIMIT_MIN


def test_a_part_of_the_jobs_for_tests() -> None:
    assert len(draw_burst(1, scale=0.2)) < len(draw_burst(1)) / 4
    with pytest.raises(ValueError, match="at most 1"):
        draw_burst(1, scale=2)


def test_a_job_is_submitted_as_a_user_would() -> None:
    jobs = draw_burst(1)
    gpu = next(job for job in jobs if job.gpus)
    assert f"--gres=gpu:{gpu.gpus}" in sbatch.sbatch_argv(gpu)
    cpu = next(job for job in jobs if not job.gpus)
    assert not [word for word in sbatch.sbatch_argv(cpu) if "gres" in word or "partition" in word]
    assert [order["at_s"] for order in sbatch.build_orders(jobs)] == sorted(job.arrival_s for job in jobs)


SACCT = """\
7|alice|burst-01|PREEMPTED|100|110|118|n1|gpu_cpu_lend|billing=4,cpu=4,mem=4G,node=1
7|alice|burst-01|COMPLETED|118|121|131|n2|gpu_cpu|billing=4,cpu=4,mem=4G,node=1
8|bob|train-01|COMPLETED|117|119|129|n1|gpu_small|billing=2,cpu=2,gres/gpu=1,mem=2G,node=1
"""


def test_an_aborted_run_counts_as_queueing() -> None:
    jobs = parse_sacct(SACCT)
    assert jobs is not None
    burst, train = jobs
    assert (burst.queue_s, burst.aborts, burst.cores, burst.gpus) == (21.0, 1, 4, 0)
    assert (train.queue_s, train.aborts, train.gpus) == (2.0, 0, 1)
    found = compute_figures(jobs, NODE, LEND)
    assert (found.aborts, found.most_aborts, found.lost_core_s, found.borrowed_core_s) == (1, 1, 32.0, 36.0)


def test_a_job_that_has_not_ended_keeps_the_reader_waiting() -> None:
    assert parse_sacct(SACCT + "9|bob|x|PENDING|100|Unknown|Unknown|None assigned|gpu_cpu,gpu_cpu_lend|\n") is None
    with pytest.raises(DemoError, match="no record"):
        parse_sacct("sacct: error")


def job(job_id: int, gpus: int, cores: int, submit_s: float, *runs: tuple[float, float, str, str]) -> BurstJobRecord:
    every = tuple(BurstRun(start_s, end_s, state, "n1", part) for start_s, end_s, state, part in runs)
    return BurstJobRecord(job_id, "alice", f"job-{job_id}", "COMPLETED", gpus, cores, submit_s, every)


def test_cores_return_from_the_moment_that_only_borrowers_were_in_the_way() -> None:
    lent = job(1, 0, 20, 0, (0, 30, "PREEMPTED", "gpu_cpu_lend"), (33, 40, "COMPLETED", "gpu_cpu"))
    holds_gpus = job(2, 4, 4, 0, (0, 25, "COMPLETED", "gpu_small"))
    waits = job(3, 1, 10, 10, (31, 40, "COMPLETED", "gpu_small"))
    assert core_return_times([lent, holds_gpus, waits], NODE, LEND) == {3: 6.0}
    assert core_return_times([lent, replace(waits, cores=8)], NODE, LEND) == {3: 21.0}
    unaborted = job(1, 0, 20, 0, (0, 30, "COMPLETED", "gpu_cpu_lend"))
    assert core_return_times([unaborted, waits], NODE, LEND) == {}
    beside = job(4, 1, 9, 0, (0, 29, "COMPLETED", "gpu_small"))
    assert core_return_times([lent, beside, waits], NODE, LEND) == {3: 2.0}, (
        "until then its partition had no cores left"
    )


def test_what_is_promised_is_judged() -> None:
    stock = {"gpu_queue_s": 30.0, "cpu_queue_s": 20.0}
    soda = {"gpu_queue_s": 3.0, "cpu_queue_s": 25.0, "longest_return_s": 2.0, "most_aborts": 3}
    assert [row["holds"] for row in check_promises(stock, soda, 3)] == [True, False, True, True]
    assert [row["value"] for row in check_promises(stock, soda, 2)] == [0.1, 1.25, 2.0, 3.0]


def test_what_is_in_use_adds_up() -> None:
    jobs = parse_sacct(SACCT)
    assert jobs is not None
    per_job = run_document(jobs, NODE, LEND)["per_job"]
    cores = cores_in_use(per_job, 1)
    assert [at_s for at_s, _ in cores["gpu"]] == [0.0, 10.0, 18.0, 19.0, 21.0, 29.0, 31.0]
    assert [amount for _, amount in cores["borrowed"]] == [0, 3, 0, 0, 3, 3, 0]
    assert [amount for _, amount in cores["cpu"]] == [0, 1, 0, 0, 1, 1, 0]
    assert max(amount for _, amount in gpus_in_use(per_job)) == 1


def test_the_page_says_what_holds() -> None:
    jobs = parse_sacct(SACCT)
    assert jobs is not None
    runs = {phase: run_document(jobs, NODE, LEND) for phase in ("stock", "soda")}
    report = {
        "headline": headline_text(runs), "runs": runs, "verdicts": check_promises(runs["stock"], runs["soda"], 0),
        "cluster": {"nodes": 2, "cores": 56, "gpus": 8}, "commands": ["sbatch <x>"], "versions": {"slurm": "24.11.5"},
    }  # fmt: skip
    text = render_page(report, b"png")
    assert "NO" in text
    assert "&lt;x&gt;" in text
    assert "GPU jobs queue 2.0 s instead of 2.0 s" in text


def test_parameters_for_pools_are_added_once() -> None:
    conf = "ClusterName=soda\nSchedulerParameters=bf_interval=1\n"
    once = add_scheduler_parameters(conf)
    assert once.splitlines()[1] == "SchedulerParameters=bf_interval=1,preempt_youngest_first"
    assert add_scheduler_parameters(once) == once
