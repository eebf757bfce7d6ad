"""The search for the best fit, on the eight models, on random curves and on jobs that do not behave."""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.cpu_fit.core_search import CoreSearch, SearchRules, SettleCores, SettleReason, TryCores
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.errors import PolicyError
from tests.policies.cpu_fit.models import FAMILIES, LIMIT, MODELS, Job, Model, measure, random_job, searched
from tests.sampling import WHOLE, examples, some

STARTS = (1, 2, 20)
A_THIRD = settings(max_examples=examples(WHOLE // 3))
"""Of the profile's examples: a search costs a hundredth of a second."""


def agrees(job: Job, cores: int) -> None:
    assert abs(cores - job.best_fit) <= 1
    assert job.at(cores) >= 0.98 * max(job.ratios)


@pytest.mark.sample(4)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_best_fit_of_the_papers_models(model: Model, start: int) -> None:
    run = searched(model.job(), start)
    agrees(model.job(), run.end.cores)
    assert run.search.steps <= 4


@pytest.mark.sample(4)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_best_fit_of_the_papers_models_with_noise(model: Model, start: int) -> None:
    for seed in range(3):
        run = searched(model.job(), start, noise=0.01, seed=seed)
        assert abs(run.end.cores - model.job().best_fit) <= 1
        assert run.search.steps <= 4


@pytest.mark.parametrize(("at", "gpus"), [(1, 4), (2, 4), (3, 4), (5, 4), (0, 2), (4, 2), (7, 2)])
def test_a_job_on_several_gpus_is_searched_as_one(at: int, gpus: int) -> None:
    job = MODELS[at].job(gpus)
    run = searched(job, 4)
    agrees(job, run.end.cores)
    assert run.search.steps <= 4


def test_random_concave_curves_with_noise() -> None:
    """Many curves, four families, starts 1, 2 and 20 in turn, noise of 1 %: 95 % within one core."""
    rng = random.Random(4)
    rules = SearchRules(free_unneeded=True)
    near, curves = 0, examples(200)
    for at in range(curves):
        job = random_job(rng, FAMILIES[at % len(FAMILIES)])
        run = searched(job, STARTS[at // 4 % 3], noise=0.01, seed=at, rules=rules)
        near += abs(run.end.cores - job.best_fit) <= 1
        assert run.search.steps <= 4
    assert near >= 0.95 * curves


@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 10_000),
    limit=st.integers(1, 64),
    start_share=st.floats(0, 1),
    noise=st.sampled_from((0.0, 0.01, 0.03)),
    free=st.booleans(),
)
@A_THIRD
def test_it_ends_in_bounds_and_no_worse(
    family: str, seed: int, limit: int, start_share: float, noise: float, free: bool
) -> None:
    job = random_job(random.Random(seed), family, limit, knee_most=20.0, serial_most=0.4)
    start = 1 + round(start_share * (limit - 1))
    run = searched(job, start, noise=noise, seed=seed, limit=limit, rules=SearchRules(free_unneeded=free))
    assert run.search.steps <= 4
    assert run.tried[0] == start
    assert all(1 <= cores <= limit for cores in (*run.tried, run.end.cores))
    allowed = 0.02 + 2.9 * max(noise, 0.01) + 5 * noise  # tolerance, what does not count as a difference, luck
    assert job.at(run.end.cores) >= job.at(start) * (1 - allowed)


@given(ratios=st.lists(st.floats(0, 1), min_size=1, max_size=40), start_share=st.floats(0, 1))
@A_THIRD
def test_whatever_a_job_does_it_ends_in_bounds(ratios: list[float], start_share: float) -> None:
    start = 1 + round(start_share * (len(ratios) - 1))
    run = searched(Job(tuple(ratios)), start, limit=len(ratios))
    assert run.search.steps <= 4
    assert 1 <= run.end.cores <= len(ratios)


@pytest.mark.parametrize(("start", "free", "end"), [(20, False, 20), (20, True, 1), (2, False, 2), (1, False, 1)])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_job_that_needs_no_cores_keeps_what_it_has(start: int, free: bool, end: int, noise: float) -> None:
    job = Job((0.7,) * LIMIT)
    for seed in some(range(5), 2, seed=f"{start}{free}"):
        run = searched(job, start, noise=noise, seed=seed, rules=SearchRules(free_unneeded=free))
        assert abs(run.end.cores - end) <= free
        assert start <= 2 or free or run.end.reason == SettleReason.INDEPENDENT


def test_a_job_that_more_cores_slow_down_is_given_the_fewer_that_did_best() -> None:
    job = Job(tuple(0.9 - 0.02 * cores for cores in range(LIMIT)))
    run = searched(job, 20)
    assert job.at(run.end.cores) >= job.at(20)
    assert searched(job, 2).end.cores <= 2


def test_a_cliff_below_the_start_is_not_fallen_off() -> None:
    """No curve of ours: all is lost with one core fewer."""
    job = Job(tuple(0.9 if cores >= 17 else 0.1 for cores in range(1, LIMIT + 1)))
    for start in range(17, LIMIT + 1):
        assert job.at(searched(job, start).end.cores) == 0.9


def test_an_idle_job_is_left_alone() -> None:
    search = CoreSearch(6, LIMIT).after(Measurement(6, 0.002))
    assert search.advice() == SettleCores(6, SettleReason.IDLE)


def test_the_first_measurement_is_with_the_jobs_own_cores_and_is_no_step() -> None:
    search = CoreSearch(6, LIMIT)
    assert search.advice() == TryCores(6)
    assert search.after(Measurement(6, 0.5)).steps == 0


def test_a_job_that_ignores_its_cores_keeps_them() -> None:
    """The agent sets cores, and reports those set; utilisation never moves."""
    search = CoreSearch(20, LIMIT)
    while isinstance(advice := search.advice(), TryCores):
        search = search.after(Measurement(advice.cores, 0.61, 0.05))
    assert advice == SettleCores(20, SettleReason.INDEPENDENT)


def test_a_measurement_with_other_cores_than_asked_for_counts_as_a_step() -> None:
    """Cores could not be set: the job stays at 20, and the search ends."""
    search = CoreSearch(20, LIMIT)
    for _ in range(5):
        assert isinstance(search.advice(), TryCores)
        search = search.after(Measurement(20, 0.8))
    assert isinstance(search.advice(), SettleCores)


def test_the_same_measurements_give_the_same_advice() -> None:
    job = MODELS[0].job()
    for start in STARTS:
        first, second = (searched(job, start, noise=0.01, seed=9) for _ in range(2))
        assert first == second


def test_no_step_allowed_measures_once_and_keeps_at_least_what_it_found() -> None:
    run = searched(MODELS[0].job(), 20, rules=SearchRules(most_steps=0))
    assert run.tried == [20]
    assert run.end.cores == 20


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CoreSearch(0, 4), "1 to 4 cores cannot use 0"),
        (lambda: CoreSearch(5, 4), "cannot use 5: raise its limit"),
        (lambda: CoreSearch(2, 4).after(Measurement(6, 0.5)), "cannot use 6"),
        (lambda: SearchRules(tolerance_ratio=0.0), "a tolerance above 0"),
        (lambda: SearchRules(sure_ratio=1.0), "to below 1"),
        (lambda: SearchRules(most_steps=-1), "at least 0 steps"),
    ],
)
def test_what_a_search_refuses(make: object, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        make()  # type: ignore[operator]


def test_noise_is_reproduced() -> None:
    """The noise that the fuzzed set states is the noise that it has."""
    job, rng = Job((0.5,) * LIMIT), random.Random(1)
    seen = [measure(job, 3, 0.01, rng) for _ in range(2000)]
    mean = sum(one.utilisation_ratio for one in seen) / len(seen)
    deviation = (sum((one.utilisation_ratio - mean) ** 2 for one in seen) / len(seen)) ** 0.5
    assert deviation == pytest.approx(0.005, rel=0.1)
    assert seen[0].noise_ratio == pytest.approx(0.005, rel=0.05)


def test_every_random_curve_is_concave_up_to_its_best() -> None:
    for seed, family in product(range(50), FAMILIES):
        ratios = (0.0, *random_job(random.Random(seed), family).ratios)
        gains = [high - low for low, high in pairwise(ratios)]
        assert all(later <= earlier + 1e-3 for earlier, later in pairwise(gains))
