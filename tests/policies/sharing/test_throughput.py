"""The time model of SJF-BSBF, and what a fit recovers of it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.arithmetic.throughput_fit import MeasuredIteration, fit_throughput
from slurm_soda.policies.sharing.job_kinds import Source

SETTINGS = [(8, 8), (16, 16), (32, 32), (64, 64), (64, 32), (64, 16), (32, 8), (128, 128), (128, 16), (50, 16)]
models = st.builds(
    Throughput,
    st.floats(0.001, 1.0),
    st.floats(1e-5, 0.05),
    st.floats(0.0, 2.0),
    st.floats(1.0, 10.0),
)


def seen(
    model: Throughput, settings: list[tuple[int, int]], noise: float = 0.0, seed: int = 0
) -> list[MeasuredIteration]:
    rng = random.Random(seed)
    return [
        MeasuredIteration(b, sub, model.iteration_s(b, sub) * math.exp(rng.gauss(0.0, noise))) for b, sub in settings
    ]


def test_equation_7_by_hand() -> None:
    model = Throughput(0.1, 0.01, 0.3, 2.0)
    assert model.comp_s(40) == pytest.approx(0.5)
    # two passes of 20 samples take 0.3 s each; the second overlaps with an exchange of 0.3 s
    assert model.iteration_s(40, 20) == pytest.approx(0.3 + math.sqrt(0.18))
    assert model.iteration_s(40) == pytest.approx(math.hypot(0.5, 0.3))
    assert Throughput(0.1, 0.01, 0.3, 1.0).iteration_s(40) == pytest.approx(0.8)


def test_a_batch_that_does_not_divide_is_kept() -> None:
    # 10 = 4 + 4 + 2
    assert Throughput(1.0, 1.0).iteration_s(10, 4) == pytest.approx(5 + 5 + 3)


@given(models, st.integers(1, 512), st.data())
def test_smaller_passes_never_make_an_iteration_shorter(model: Throughput, batch: int, data: st.DataObject) -> None:
    divisors = [
        size for size in range(1, batch + 1) if batch % size == 0
    ]  # an odd last pass may hide an exchange better
    smaller, larger = sorted(data.draw(st.tuples(st.sampled_from(divisors), st.sampled_from(divisors))))
    assert model.iteration_s(batch, smaller) >= model.iteration_s(batch, larger) * (1 - 1e-12)


@given(models, st.integers(1, 512))
def test_an_iteration_lies_between_the_longer_part_and_the_sum(model: Throughput, batch: int) -> None:
    taken, comp = model.iteration_s(batch), model.comp_s(batch)
    assert max(comp, model.comm_s) * (1 - 1e-12) <= taken <= (comp + model.comm_s) * (1 + 1e-12)


@given(st.floats(0.001, 1.0), st.floats(1e-5, 0.05))
def test_one_gpu_is_recovered_exactly(fixed: float, per_sample: float) -> None:
    model = Throughput(fixed, per_sample)
    fit = fit_throughput(seen(model, [(8, 8), (64, 64), (64, 8)]), exchanges=False)
    assert fit.throughput.fixed_s == pytest.approx(fixed, rel=1e-4, abs=1e-6)
    assert fit.throughput.per_sample_s == pytest.approx(per_sample, rel=1e-4)
    assert fit.throughput.comm_s == 0.0
    assert fit.misfit_ratio < 1e-6
    assert 0 < fit.predict(32, 16).error < 0.1 * fit.predict(32, 16).value


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(40))
def test_several_gpus_are_predicted_where_nothing_was_measured(seed: int) -> None:
    rng = random.Random(seed)
    model = Throughput(rng.uniform(0.01, 0.2), rng.uniform(1e-4, 5e-3), rng.uniform(0.02, 0.6), rng.uniform(1, 6))
    fit = fit_throughput(seen(model, SETTINGS), exchanges=True)
    assert fit.misfit_ratio < 2e-3
    for setting in [(24, 24), (96, 32), (128, 64), (64, 8)]:
        assert fit.throughput.iteration_s(*setting) == pytest.approx(model.iteration_s(*setting), rel=0.01)


def test_noise_is_told_in_the_error() -> None:
    inside = total = 0
    for seed in range(20):
        rng = random.Random(1000 + seed)
        model = Throughput(rng.uniform(0.02, 0.2), rng.uniform(5e-4, 5e-3), rng.uniform(0.05, 0.5), rng.uniform(1, 4))
        fit = fit_throughput(seen(model, SETTINGS * 2, noise=0.03, seed=seed), exchanges=True)
        for setting in [(24, 24), (96, 32), (64, 8)]:
            told = fit.predict(*setting)
            assert told.source is Source.PREDICTED
            inside += abs(told.value - model.iteration_s(*setting)) <= 2 * told.error
            total += 1
    assert inside / total > 0.85


def test_what_no_observation_shows_is_not_predicted() -> None:
    model = Throughput(0.1, 0.001, 0.2, 1.0)
    fit = fit_throughput(seen(model, [(8, 8), (16, 16), (32, 32), (64, 64)]), exchanges=True)
    assert fit.predict(48).error < 0.05 * fit.predict(48).value
    assert fit.predict(48).value == pytest.approx(model.iteration_s(48), rel=1e-3)
    told = fit.predict(64, 8)  # fixed time and exchange were always seen together
    assert math.isinf(told.error)


@pytest.mark.parametrize(
    ("observations", "exchanges", "says"),
    [
        ([MeasuredIteration(8, 8, 1.0)], False, "2 unknowns"),
        ([MeasuredIteration(8, 8, 1.0), MeasuredIteration(8, 4, 1.2)], False, "2 different batches"),
        ([MeasuredIteration(8, 8, 1.0), MeasuredIteration(16, 16, 1.2)], True, "4 unknowns"),
        ([MeasuredIteration(8, 8, 0.0), MeasuredIteration(16, 16, 1.2)], False, "0.0 s"),
        ([MeasuredIteration(8, 8, math.nan), MeasuredIteration(16, 16, 1.2)], False, "nan s"),
        ([MeasuredIteration(8, 9, 1.0), MeasuredIteration(16, 16, 1.2)], False, "not 9"),
        (
            [MeasuredIteration(8, 8, 100.0), MeasuredIteration(16, 16, 0.01), MeasuredIteration(4, 4, 0.01)],
            False,
            "one job",
        ),
    ],
)
def test_senseless_input_is_refused(observations: list[MeasuredIteration], exchanges: bool, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        fit_throughput(observations, exchanges=exchanges)


def test_senseless_models_are_refused() -> None:
    for values in ((-1.0, 0.1), (0.1, math.inf), (0.1, 0.1, math.nan), (0.1, 0.1, 0.0, 0.5), (0.1, 0.1, 0.0, 11.0)):
        with pytest.raises(PolicyError):
            Throughput(*values)
    with pytest.raises(PolicyError):
        Throughput(0.1, 0.1).iteration_s(8, 0)
