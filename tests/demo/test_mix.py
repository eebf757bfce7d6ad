"""The job mix: reproducible, and the workload that it says it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.demo.job_mix.mix_jobs import (
    LONG_FROM_S,
    LONGEST_S,
    MEAN_GAP_S,
    MODELS,
    SHORTEST_S,
    USERS,
    JobMix,
    MixJob,
    draw_mix,
)
from tests.sampling import examples

SEEDS = range(40)
PROFILES = Path(__file__).parents[2] / "emulation" / "trainer" / "profiles.tsv"


def bins(mix: JobMix) -> Counter[str]:
    return Counter(("L" if job.gpus > 2 else "S") + ("L" if job.duration_s >= LONG_FROM_S else "S") for job in mix.jobs)


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others() -> None:
    assert draw_mix(3) == draw_mix(3)
    assert draw_mix(3) != draw_mix(4)
    assert draw_mix(3, time_scale=100).jobs[0].duration_s == draw_mix(3, time_scale=50).jobs[0].duration_s


@pytest.mark.parametrize("seed", SEEDS)
def test_thirty_jobs_have_the_shares_of_the_paper(seed: int) -> None:
    mix = draw_mix(seed)
    assert bins(mix) == {"SS": 19, "SL": 4, "LS": 5, "LL": 2}
    assert Counter(job.gpus for job in mix.jobs) == {1: 15, 2: 8, 4: 5, 8: 2}
    assert set(Counter(job.user for job in mix.jobs).values()) == {10}
    assert {job.model for job in mix.jobs} == set(MODELS)


@given(seed=st.integers(0, 2**32), jobs=st.integers(4, 200), scale=st.floats(1, 1000))
@settings(max_examples=examples(60), deadline=None)
def test_any_mix_is_sound(seed: int, jobs: int, scale: float) -> None:
    mix = draw_mix(seed, jobs, scale)
    assert len(mix.jobs) == jobs
    arrivals = [job.arrival_s for job in mix.jobs]
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(MEAN_GAP_S * (jobs - 1), abs=0.01)
    assert len({job.name for job in mix.jobs}) == jobs
    for job in mix.jobs:
        assert job.user in USERS
        assert SHORTEST_S <= job.duration_s <= LONGEST_S
        assert job.nodes * job.gpus_per_node == job.gpus
        assert job.gpus_per_node <= 4
        assert job.cpus_per_node <= 28
        assert (job.limit_min is None) == (job.user == "carol")


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_asks_for_less_time_than_the_job_needs(seed: int) -> None:
    mix = draw_mix(seed)
    ratios = [job.limit_min * 60 / (job.duration_s / mix.time_scale) for job in mix.jobs if job.limit_min is not None]
    # e^-0.3 times a factor of two is still more than the run; a real run also starts and saves.
    assert min(ratios) >= 2 * np.exp(-0.3)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_asks_for_about_the_same_work(seed: int) -> None:
    """Stratified: what differs is the order, not the load, so seeds can be compared."""
    works = [draw_mix(other).work_gpu_s for other in SEEDS]
    assert draw_mix(seed).work_gpu_s == pytest.approx(float(np.mean(works)), rel=0.4)


def test_gaps_are_exponential() -> None:
    gaps = np.concatenate([np.diff([job.arrival_s for job in draw_mix(seed, 200).jobs]) for seed in range(20)])
    # Kolmogorov-Smirnov distance to the exponential distribution; 1.63 / sqrt(n) is its 1 % bound.
    ordered = np.sort(gaps) / MEAN_GAP_S
    distance = np.max(np.abs(np.arange(1, len(ordered) + 1) / len(ordered) - (1 - np.exp(-ordered))))
    assert distance < 1.63 / np.sqrt(len(ordered))


@pytest.mark.parametrize(("jobs", "scale"), [(3, 100.0), (0, 100.0), (30, 0.0), (30, -1.0), (30, float("nan"))])
def test_impossible_mixes_are_refused(jobs: int, scale: float) -> None:
    with pytest.raises(ValueError, match="needs 4 jobs or more"):
        draw_mix(1, jobs, scale)


def test_models_agree_with_the_emulators_profiles() -> None:
    """A job asks for the cores and the batch size at which its emulated model runs at full speed."""
    rows = [line.split() for line in PROFILES.read_text().splitlines() if line and not line.startswith("#")]
    assert {row[0]: (row[1], int(row[2]), int(row[9])) for row in rows} == {
        name: (model.category, model.batch_size, model.cores) for name, model in MODELS.items()
    }


def test_an_eight_gpu_job_takes_two_whole_nodes() -> None:
    job = MixJob("x", "bob", 0.0, 8, 2, 600.0, 3, "alexnet")
    assert (job.gpus_per_node, job.cpus_per_node) == (4, 24)
