"""Times for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.simulator.report.time_text import log_ticks, span_text, tick_step, time_ticks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"), (9.994, "9.99 s"), (9.996, "10.0 s"), (53.42, "53.4 s"), (119.4, "119 s"), (120, "2.00 min"),
        (7199, "120 min"), (7200, "2.00 h"), (14824.7, "4.12 h"), (172_800, "2.00 d"), (86_400 * 1234, "1,234 d"),
        (math.nan, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_spans(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_and_round(span: float) -> None:
    step = tick_step(span)
    assert 2 <= span / step <= 10 + 1e-9
    digits = f"{step:.0e}"[0]
    assert digits in "125"


@given(st.floats(1e-3, 1e9))
def test_a_time_axis_starts_at_0_and_ends_within(span_s: float) -> None:
    places = [place for place, _ in time_ticks(span_s)]
    assert places[0] == 0
    assert places == sorted(places)
    assert places[-1] <= 1 + 1e-9
    assert time_ticks(span_s)[0][1] == "0"


def test_ticks_name_their_unit() -> None:
    assert time_ticks(20_000.0) == [(0.0, "0"), *((0.18 * at, str(at)) for at in range(1, 5)), (0.9, "5 h")]
    assert [text for _, text in log_ticks(5, 4000)] == ["10 s", "1 min", "10 min", "1 h"]
