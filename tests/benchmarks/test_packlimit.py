"""The limit of skew that is learned from history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packlimit import PAPER_PACKLIMIT, SLOWED_WHEN_SPREAD, learn_packlimit
from slurm_soda.policies.tiresias.model_skews import MODELS


def test_the_limit_that_the_table_teaches() -> None:
    slowdown = np.array([1.6 if model.name in SLOWED_WHEN_SPREAD else 1.02 for model in MODELS])
    learnt = learn_packlimit(np.array([model.skew for model in MODELS]), slowdown)
    assert learnt == pytest.approx((3.9 / 26.7 + 144.0 / 235.9) / 2)
    assert round(learnt, 3) == PAPER_PACKLIMIT


# name, (skew, slowdown when spread) of past jobs, limit
HISTORIES: list[tuple[str, list[tuple[float, float]], float]] = [
    ("half way between the two kinds", [(0.2, 1.0), (0.6, 1.5), (0.1, 1.05), (0.9, 2.0)], 0.4),
    ("one odd job changes nothing", [(0.1, 1.0), (0.2, 1.0), (0.15, 3.0), (0.6, 1.5), (0.9, 2.0)], 0.4),
    ("as many errors either way: the wider gap", [(0.1, 1.0), (0.3, 2.0), (0.4, 1.0), (0.9, 2.0)], 0.65),
    ("one model, seen both ways: more often slow", [(0.5, 1.5), (0.5, 1.5), (0.5, 1.0)], 0.0),
    ("one model, seen both ways: more often not", [(0.5, 1.5), (0.5, 1.0), (0.5, 1.0)], 1.0),
    ("all suffer", [(0.1, 1.5), (0.2, 1.5)], 0.0),
    ("none does", [(0.1, 1.0), (0.2, 1.0)], 1.0),
    ("nothing is known", [], 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("past", "limit"), [case[1:] for case in HISTORIES], ids=[case[0] for case in HISTORIES])
def test_learnt_limits(past: list[tuple[float, float]], limit: float) -> None:
    columns = np.array(past).reshape(-1, 2)
    assert learn_packlimit(columns[:, 0], columns[:, 1]) == pytest.approx(limit)


def errors_at(limit: float, past: list[tuple[int, bool]]) -> int:
    return sum((skew / 10 > limit) != suffers for skew, suffers in past)


@given(past=st.lists(st.tuples(st.integers(1, 10), st.booleans()), min_size=1, max_size=12))
def test_no_other_limit_makes_fewer_errors(past: list[tuple[int, bool]]) -> None:
    columns = np.array(past, dtype=np.float64)
    limit = learn_packlimit(columns[:, 0] / 10, 1.0 + columns[:, 1])
    assert errors_at(limit, past) == min(errors_at(at / 20, past) for at in range(21))
