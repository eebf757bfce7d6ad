"""Paired differences find a known cost under a drift that is far larger."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

# The benchmarks are no part of the package, so they are found by their place.
SPEC = importlib.util.spec_from_file_location("benchmark_pairs", Path(__file__).parents[2] / "benchmarks" / "pairs.py")
assert SPEC is not None
assert SPEC.loader is not None
pairs = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = pairs
SPEC.loader.exec_module(pairs)
cost, measure = pairs.cost, pairs.measure


def test_the_median_of_differences() -> None:
    found = cost("x", 150.0, [1.0, 1.1, 1.2], [1.1, 1.3, 1.25])
    assert found.median_ms == pytest.approx(100)
    assert found.without_ms == pytest.approx(1100)
    assert found.low_ms <= found.median_ms <= found.high_ms
    assert found.met
    assert not cost("x", 99.0, [1.0], [1.1]).met


def test_a_drift_cancels() -> None:
    rng = np.random.default_rng(1)
    clock = iter(range(10_000))

    def block(part: bool) -> list[float]:
        # Everything gets 1 ms slower with each measurement; the part costs 20 ms.
        return [1 + 0.001 * next(clock) + 0.02 * part + rng.normal(0, 0.002) for _ in range(10)]

    found = measure("x", 25.0, block, rounds=20)
    assert found.pairs == 200
    # Neighbouring blocks are ten measurements apart, one way in even rounds and the other way in odd ones.
    assert found.median_ms == pytest.approx(20, abs=10)
    assert np.mean([found.low_ms, found.high_ms]) == pytest.approx(20, abs=10)


def test_blocks_come_in_mirrored_pairs() -> None:
    order: list[bool] = []

    def block(part: bool) -> list[float]:
        order.append(part)
        return [1.0]

    measure("x", 1.0, block, rounds=4)
    assert order == [False, True, True, False, False, True, True, False]
