"""Families of workloads: their load, their users, and the time limits that those give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.generators.families import sites
from slurm_soda.simulator.generators.families.time_limits import ROUND_S, draw_time_limits
from slurm_soda.simulator.generators.registry import GENERATORS, WorkloadGenerator, generate_workload
from slurm_soda.simulator.sharing.sharing_rules import SharingRules

PAIRS = Path(__file__).parents[4] / "shared/data/gavel/throughputs.json"
FAMILIES = [entry for entry in GENERATORS if entry.parameters[0].default == 0.9]


def test_there_are_six() -> None:
    assert [entry.name for entry in FAMILIES] == [
        "like-philly", "like-pollux", "like-gavel", "like-soda", "lab", "day-night",
    ]  # fmt: skip


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
@pytest.mark.parametrize("load", [0.7, 0.9, 1.1])
def test_load_is_a_part_of_what_the_cluster_can_do(entry: WorkloadGenerator, load: float) -> None:
    jobs = generate_workload(entry.name, 3, 4_000, {"load_ratio": load})
    capacity = parse_cluster(entry.cluster).total_gpus * jobs.submit_s[-1]
    assert (jobs.gpus * jobs.run_s).sum() / capacity == pytest.approx(load, rel=0.05)


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
def test_a_few_users_have_most_jobs(entry: WorkloadGenerator) -> None:
    shares = [
        np.sort(np.bincount(generate_workload(entry.name, seed).user))[::-1] / entry.jobs for seed in range(1, 21)
    ]
    first, third = (float(np.mean([share[:few].sum() for share in shares])) for few in (1, 3))
    assert 0.15 < first < 0.4
    assert third < 0.65
    assert all(len(share) >= 10 for share in shares), "enough users to draw who consents"


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
def test_limits_are_few_round_values_and_tell_little(entry: WorkloadGenerator) -> None:
    drawn = [generate_workload(entry.name, seed) for seed in range(1, 11)]
    limit_s, run_s = (np.concatenate([getattr(jobs, key) for jobs in drawn]) for key in ("time_limit_s", "run_s"))
    assert (run_s <= limit_s).all()
    assert set(limit_s.tolist()) <= set(ROUND_S)
    factor = limit_s / run_s
    assert 3 < np.median(factor) < 40
    assert np.percentile(factor, 5) < 3, "some come close"
    assert 0.1 < (limit_s == limit_s.max()).mean() < 0.6


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
def test_runs_of_a_script_are_alike(entry: WorkloadGenerator) -> None:
    jobs = generate_workload(entry.name, 5, 4_000)
    keys = np.stack([jobs.user, jobs.gpus, jobs.cpus, jobs.model, jobs.batch_size], axis=1)
    script = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    logs = np.log(jobs.run_s)
    mean = np.bincount(script, logs) / np.bincount(script)
    within = ((logs - mean[script]) ** 2).mean() / logs.var()
    assert within < 0.65


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
def test_other_runs_are_of_the_same_scripts(entry: WorkloadGenerator) -> None:
    assert entry.family is not None
    jobs = generate_workload(entry.name, 5, 2_000)
    other_s = entry.family.draw_other_runs(np.random.default_rng(5), 2_000, 20)
    assert other_s.shape == (20, 2_000)
    in_order = np.argsort([int(label) for label in jobs.label])
    own = np.log(jobs.run_s[in_order])
    logs = np.log(other_s)
    assert not (logs == own).all(axis=1).any(), "none of them is the workload's own"
    assert logs.mean() == pytest.approx(own.mean(), abs=0.1), "their law is the workload's"
    assert logs.std() == pytest.approx(own.std(), rel=0.1)
    # Of what jobs differ in, their scripts and sizes tell most: seven tenths and more.
    assert ((own - logs.mean(axis=0)) ** 2).mean() < 0.5 * own.var()


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry.name)
def test_every_gpu_job_is_of_a_kind_that_was_measured(entry: WorkloadGenerator) -> None:
    if not PAIRS.exists():
        pytest.skip("Gavel's table is not here")
    assert SharingRules(pairs=PAIRS, gpu="v100").together(generate_workload(entry.name, 1)).kinds.unknown == ()


def test_pollux_kinds_run_as_long_as_they_were_measured() -> None:
    jobs = generate_workload("like-pollux", 1, 20_000)
    rows = (jobs.model == jobs.models.index("cifar10")) & (jobs.gpus == 16)
    assert np.median(jobs.run_s[rows]) == pytest.approx(482, rel=0.05)
    assert rows.mean() == pytest.approx(0.0903, abs=0.01)


def test_gavel_has_the_shares_of_its_generator() -> None:
    jobs = generate_workload("like-gavel", 1, 20_000)
    assert [(jobs.gpus == gpus).mean() for gpus in (1, 2, 4, 8)] == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.01)
    assert (jobs.run_s > 60_000).mean() == pytest.approx(0.2, abs=0.01)
    assert jobs.run_s.min() >= 60 * 10**1.5 - 1


def test_soda_has_its_kinds_in_proportion() -> None:
    jobs = generate_workload("like-soda", 1, 20_000)
    served = jobs.category == jobs.categories.index("inference")
    assert (jobs.gpus == 0).mean() == pytest.approx(75 / 105, abs=0.01)
    assert served.mean() == pytest.approx(5 / 105, abs=0.01)
    assert (jobs.preemptible == ~served).all()
    assert sum(one.share for one in sites.SODA.classes) == pytest.approx(1.0)


def test_a_limit_covers_every_run_of_its_script() -> None:
    rng = np.random.default_rng(1)
    user, script = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])
    limits = [draw_time_limits(rng, user, script, np.array([10.0, 900.0, 7.0, 86_400.0]), 86_400.0) for _ in range(50)]
    assert all(limit_s[0] == limit_s[1] >= 900 and limit_s[3] == 86_400 for limit_s in limits)
    assert {300.0, 86_400.0} <= {limit_s[2] for limit_s in limits}
