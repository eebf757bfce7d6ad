"""The search for the largest batch and the fewest cores, on services whose times are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.profiling.batch_search import LatencyTarget, MeasuredBatch, fewest_cores, largest_batch

TARGET = LatencyTarget(target_ms=200.0, window_ms=50.0)


class KnownService:
    """Counts what is measured."""

    def __init__(self, batch_ms: Callable[[int, int], float], error_ratio: float = 0.0) -> None:
        self._batch_ms, self._error_ratio = batch_ms, error_ratio
        self.measured: list[tuple[int, int]] = []

    def measure(self, batch: int, cores: int) -> MeasuredBatch:
        self.measured.append((batch, cores))
        batch_ms = self._batch_ms(batch, cores)
        return MeasuredBatch(batch, cores, batch_ms, self._error_ratio, failed="" if math.isfinite(batch_ms) else "no")

    def largest(self, most: int) -> MeasuredBatch:
        return largest_batch(lambda batch: self.measure(batch, 4), TARGET, most)


@given(st.floats(0.0, 60.0), st.floats(0.05, 60.0), st.floats(0.0, 1.0), st.integers(1, 256))
def test_the_largest_batch_is_found_in_few_measurements(fixed: float, each: float, error: float, most: int) -> None:
    service = KnownService(lambda batch, _: fixed + each * batch, error)
    found = service.largest(most)
    within = [batch for batch in range(1, most + 1) if TARGET.is_met(service.measure(batch, 4))]
    tries = len(service.measured) - most
    if not within:
        assert (found.batch, tries) == (1, 1)
        assert not TARGET.is_met(found)
        return
    assert TARGET.is_met(found)
    assert max(within) / 1.06 - 1e-9 <= found.batch <= max(within)
    assert found.batch == max(within) or max(within) > 20
    assert tries <= 14


@pytest.mark.parametrize(
    "batch_ms",
    [
        lambda batch: 1.0 if batch < 37 else 100.0,
        lambda batch: 1.0 if batch < 37 else math.inf,  # memory is full
        lambda batch: 74.0 + 0.01 * batch if batch < 37 else 76.0,
        lambda batch: 10.0 * math.log(batch + 1) if batch < 37 else 500.0,
    ],
)
def test_times_need_not_lie_on_a_line(batch_ms: Callable[[int], float]) -> None:
    service = KnownService(lambda batch, _: batch_ms(batch))
    assert service.largest(256).batch in (35, 36)
    assert len(service.measured) <= 14


def test_the_window_and_two_batches_with_their_error_are_within_the_target() -> None:
    assert TARGET.is_met(MeasuredBatch(4, 1, 60.0, 0.25))
    assert not TARGET.is_met(MeasuredBatch(4, 1, 60.0, 0.26))
    assert MeasuredBatch(4, 1, 60.0, 0.25).slowest_ms(50.0) == 200.0


def test_when_time_is_up_the_largest_so_far_is_the_answer() -> None:
    service = KnownService(lambda batch, _: float(batch))
    answers = iter([False, False, True])
    found = largest_batch(lambda batch: service.measure(batch, 4), TARGET, 256, lambda: next(answers))
    assert found.batch == max(batch for batch, _ in service.measured if batch <= 75)
    assert len(service.measured) == 3


@given(st.integers(1, 64), st.floats(0.0, 1.0))
def test_the_fewest_cores_are_found_exactly(most_cores: int, serial: float) -> None:
    """Amdahl's law, scaled so that the most cores just do."""

    def batch_ms(_: int, cores: int) -> float:
        return 50.0 * (serial + (1.0 - serial) / cores) / (serial + (1.0 - serial) / most_cores)

    service = KnownService(batch_ms)
    found = fewest_cores(lambda cores: service.measure(8, cores), service.measure(8, most_cores), TARGET)
    assert found.cores == min(cores for cores in range(1, 65) if TARGET.is_met(service.measure(8, cores)))
    assert found.batch == 8


def test_when_time_is_up_the_fewest_cores_so_far_are_the_answer() -> None:
    service = KnownService(lambda _, __: 1.0)
    answers = iter([False, True])
    found = fewest_cores(lambda cores: service.measure(8, cores), service.measure(8, 16), TARGET, lambda: next(answers))
    assert found.cores == 8
