"""Generated workloads: the figures of their sources, and the same bytes for the same seed."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators import philly, soda
from slurm_soda.simulator.generators.distributions import draw_arrivals, draw_bounded_pareto, split_by_shares
from slurm_soda.simulator.generators.registry import GENERATORS, find_generator, generate_workload, workload_names
from slurm_soda.simulator.traces.cluster_fit import select_jobs_that_fit
from slurm_soda.simulator.traces.registry import load_trace
from slurm_soda.simulator.traces.tiresias_export import write_tiresias_csv
from tests.sampling import examples

DATA = Path(__file__).parents[4] / "shared" / "data"
HOUR_S, DAY_S = 3600.0, 86400.0


def digest(jobs):
    found = hashlib.sha256()
    for name in jobs.__slots__:
        value = getattr(jobs, name)
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_every_process():
    ours = [digest(generate_workload(name, 7, 300)) for name in workload_names()]
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_generators import digest\n"
        "from slurm_soda.simulator.generators.registry import generate_workload, workload_names\n"
        "print(*[digest(generate_workload(name, 7, 300)) for name in workload_names()])"
    )
    for hash_seed in ("0", "4711"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split() == ours


def test_another_seed_gives_other_jobs():
    for name in workload_names():
        assert digest(generate_workload(name, 1, 50)) != digest(generate_workload(name, 2, 50))


@settings(max_examples=examples(30))
@given(st.sampled_from(workload_names()), st.integers(0, 2**63), st.integers(1, 400))
def test_every_workload_is_sound_and_fits_its_cluster(name, seed, count):
    jobs = generate_workload(name, seed, count)
    assert len(jobs) == len(set(jobs.label)) == count
    assert jobs.submit_s[0] >= 0
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert (jobs.run_s >= 1).all()
    for column in (jobs.submit_s, jobs.run_s):
        assert (column == np.round(column)).all()
    assert (jobs.gpus + jobs.cpus > 0).all()
    select_jobs_that_fit(jobs, parse_cluster(find_generator(name).cluster), lenient=False, path=name)


@pytest.mark.parametrize("name", workload_names())
def test_a_generated_workload_can_be_written_and_read_again(tmp_path, name):
    jobs = generate_workload(name, 3, 200)
    write_tiresias_csv(jobs, tmp_path / f"{name}.csv")
    read = load_trace(tmp_path / f"{name}.csv").workload
    assert digest(read.with_columns(origin_s=jobs.origin_s)) == digest(jobs)


@pytest.mark.parametrize("entry", GENERATORS, ids=lambda entry: entry.name)
def test_fewer_jobs_and_other_loads_change_the_time_and_not_the_mix(entry):
    whole, half = generate_workload(entry.name, 5, 20_000), generate_workload(entry.name, 5, 10_000)
    fast = generate_workload(entry.name, 5, 20_000, {"load_ratio": 4})
    span_s = [jobs.submit_s[-1] - jobs.submit_s[0] for jobs in (whole, half, fast)]
    assert span_s[1] / span_s[0] == pytest.approx(0.5, abs=0.1)
    assert span_s[2] / span_s[0] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda: generate_workload("big", 1),
            "there is no generated workload 'big'; choose one of: small, tiresias480",
        ),
        (lambda: generate_workload("small", -1), "seed = -1 is not allowed"),
        (lambda: generate_workload("small", 1, 0), "jobs = 0 is not allowed; use a whole number from 1"),
        (lambda: generate_workload("small", 1, 10**8), "is not allowed; use a whole number from 1 to 10000000"),
        (
            lambda: generate_workload("small", 1, parameters={"load": 2}),
            "no parameter 'load'; its parameters are: load_ratio",
        ),
        (
            lambda: generate_workload("small", 1, parameters={"load_ratio": 0}),
            "load_ratio = 0 is not allowed; use a number from",
        ),
        (lambda: generate_workload("small", 1, parameters={"load_ratio": "x"}), "load_ratio = 'x' is not allowed"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(call, problem):
    with pytest.raises(SimulatorError) as caught:
        call()
    assert problem in str(caught.value)


def test_tiresias_mix_has_the_papers_counts():
    jobs = generate_workload("tiresias480", 1)
    assert dict(zip(*np.unique(jobs.gpus, return_counts=True), strict=True)) == {
        1: 240,
        2: 40,
        4: 80,
        8: 90,
        16: 25,
        32: 5,
    }
    assert np.bincount(jobs.model).tolist() == [48] * 10
    assert jobs.run_s.min() >= 120
    assert jobs.run_s.max() < 7200
    bins = [np.mean((jobs.gpus > 4) == large) for large in (False, True)]
    shares = [np.mean(((jobs.gpus > 4) == large) & ((jobs.run_s >= 800) == long)) for large in (False, True)
              for long in (False, True)]  # fmt: skip
    assert bins == [0.75, 0.25]
    np.testing.assert_allclose(shares, [0.635, 0.125, 0.165, 0.075], atol=0.01)


def test_tiresias_mix_arrives_every_30_seconds_and_has_the_stated_means():
    jobs = generate_workload("tiresias480", 1, 20_000)
    gaps_s = np.diff(jobs.submit_s)
    assert jobs.submit_s[0] == 0
    assert gaps_s.mean() == pytest.approx(30, rel=0.03)
    assert gaps_s.std() == pytest.approx(30, rel=0.05)
    assert jobs.run_s[(jobs.gpus <= 4) & (jobs.run_s < 800)].mean() == pytest.approx(268, rel=0.02)
    assert (jobs.run_s * jobs.gpus).sum() / 20_000 * 480 / 60 == pytest.approx(23_000, rel=0.05)


def test_the_small_workload_is_the_same_mix_in_small():
    jobs = generate_workload("small", 1)
    assert (len(jobs), find_generator("small").cluster) == (400, "16x4")
    assert np.unique(jobs.gpus, return_counts=True)[1].tolist() == [200, 33, 67, 75, 21, 4]


def test_a_philly_month_has_the_traces_sizes_sweeps_and_weekends():
    jobs = generate_workload("philly-month", 1, 100_000)
    shares = np.unique(jobs.gpus, return_counts=True)[1] / 100_000
    np.testing.assert_allclose(shares, [0.946, 0.022, 0.0194, 0.0107, 0.0019], atol=0.002)
    gaps_s = np.diff(jobs.submit_s)
    assert np.median(gaps_s) < 15 < 100 < gaps_s.mean()
    day = ((jobs.submit_s + jobs.origin_s) // DAY_S + 3) % 7
    per_day = np.bincount(day.astype(int))
    assert per_day[5:].mean() < 0.8 * per_day[:5].mean()


@pytest.mark.skipif(not DATA.exists(), reason="the public trace is not beside the checkout")
@pytest.mark.sample(2)
@pytest.mark.parametrize(("gpus", "law"), list(zip(philly.GPU_SIZES, philly.RUN_S, strict=True)))
def test_a_philly_months_run_times_are_those_of_the_trace(gpus, law):
    real = load_trace(DATA / "philly" / "philly.csv").workload
    real_s = real.run_s[real.gpus == gpus]
    drawn_s = law.draw(np.random.default_rng(1), 100_000, 1.0, philly.LONGEST_S)
    assert drawn_s.mean() == pytest.approx(real_s.mean(), rel=0.15)
    logs = [np.log(np.quantile(times_s, np.linspace(0.02, 0.98, 49))) for times_s in (real_s, drawn_s)]
    assert np.abs(logs[0] - logs[1]).mean() < 0.4


def test_sodas_month_has_the_papers_counts_and_run_times():
    jobs = generate_workload("soda-month", 1)
    inference = jobs.category == jobs.categories.index("inference")
    training = (jobs.gpus > 0) & ~inference
    assert ((jobs.gpus == 0).sum(), training.sum(), inference.sum()) == (75_000, 25_000, 5_000)
    assert jobs.submit_s[-1] == pytest.approx(30 * DAY_S, rel=0.01)
    assert np.mean(jobs.run_s[training] > HOUR_S) == pytest.approx(0.685, abs=0.01)
    assert np.mean(jobs.run_s[training] > 2 * HOUR_S) == pytest.approx(0.396, abs=0.01)
    assert (jobs.preemptible == ~inference).all()
    assert len(jobs.users) == soda.USERS
    names = [jobs.categories[code] for code in jobs.category[training]]
    assert sum(name in ("nlp", "speech") for name in names) > 0.7 * len(names)
    assert (jobs.category[jobs.gpus == 0] == -1).all()


def test_sodas_month_asks_for_too_few_or_too_many_cores_as_the_paper_says():
    jobs = generate_workload("soda-month", 1)
    training = (jobs.gpus > 0) & (jobs.category != jobs.categories.index("inference"))
    cores = jobs.cpus[training] / jobs.gpus[training]
    assert np.mean(cores <= 2) == pytest.approx(0.761, abs=0.01)
    assert np.mean(cores > 10) == pytest.approx(0.153, abs=0.01)
    assert cores.max() <= 20
    assert (jobs.cpus / jobs.nodes).max() <= 28
    assert (jobs.gpus == jobs.nodes * jobs.gpus_per_node).all()


def test_sodas_month_loads_the_cluster_as_the_paper_says():
    jobs = generate_workload("soda-month", 1)
    month_s = 30 * DAY_S
    assert (jobs.run_s * jobs.gpus).sum() / month_s / 400 == pytest.approx(0.78, abs=0.02)
    assert (jobs.run_s * jobs.cpus).sum() / month_s / 2240 == pytest.approx(0.53, abs=0.03)
    hours = np.arange(0, 30 * 24) * HOUR_S
    cores = np.array([jobs.cpus[(jobs.submit_s <= at) & (jobs.submit_s + jobs.run_s > at)].sum() for at in hours])
    by_day = cores.reshape(30, 24)[2::7]  # Wednesdays
    assert by_day.max() > 2240
    assert cores.reshape(30, 24)[:, 3].mean() < 0.6 * cores.reshape(30, 24)[:, 15].mean()
    residents = (jobs.gpus == 1) & (jobs.submit_s == 0) & (jobs.run_s >= month_s)
    assert residents.sum() == soda.SERVICES


@given(st.integers(0, 1000), st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_quotas_are_whole_and_near_their_shares(total, shares):
    counts = split_by_shares(total, shares)
    assert sum(counts) == total
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - total * share / sum(shares)) < 1


def test_a_bounded_pareto_has_its_mean():
    values = draw_bounded_pareto(np.random.default_rng(1), 200_000, 120.0, 800.0)
    assert values.min() >= 120
    assert values.max() < 800
    assert values.mean() == pytest.approx(120 * np.log(800 / 120) / (1 - 120 / 800), rel=0.01)


def test_arrivals_follow_their_rates_and_end_with_the_horizon():
    times_s = draw_arrivals(np.random.default_rng(1), 40_000, np.array([1.0, 3.0]), 3.5 * HOUR_S)
    assert (np.diff(times_s) >= 0).all()
    assert times_s[-1] < 3.5 * HOUR_S
    per_hour = np.bincount((times_s // HOUR_S).astype(int)) / 40_000
    np.testing.assert_allclose(per_hour, np.array([1, 3, 1, 1.5]) / 6.5, atol=0.01)
