"""Times for people: a number with a unit, and the ticks of axes."""

from __future__ import annotations

import math

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0

UNITS: tuple[tuple[str, float], ...] = (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1.0))
"""Units of time, largest first, with their seconds."""

LOG_TICKS: tuple[tuple[float, str], ...] = (
    (1.0, "1 s"), (10.0, "10 s"), (MINUTE_S, "1 min"), (600.0, "10 min"), (HOUR_S, "1 h"), (36_000.0, "10 h"),
    (4 * DAY_S, "4 d"), (40 * DAY_S, "40 d"), (400 * DAY_S, "400 d"),
)  # fmt: skip
"""Round times, each six to ten times the one before."""


def span_text(seconds: float) -> str:
    """A time span in three digits: ``53.4 s``, ``4.12 h``, ``118 d``; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    for name, size_s in UNITS:
        # A unit begins where the number in the smaller one would be long: 120 s, 120 min, 48 h.
        if abs(seconds) >= size_s * 2 or name == "s":
            return f"{_three_digits(seconds / size_s)} {name}"
    raise AssertionError


def _three_digits(value: float) -> str:
    digits = next((places for places, limit in ((2, 9.995), (1, 99.95)) if abs(value) < limit), 0)
    return f"{value:,.{digits}f}"


def tick_step(span: float) -> float:
    """Distance of ticks on an axis from 0: 1, 2 or 5 times a power of ten, so that 4 to 10 of them fit."""
    power = 10.0 ** math.floor(math.log10(span))
    return next((power * part for part in (0.1, 0.2, 0.5) if span / (power * part) <= 10), power)


def axis_unit(span_s: float) -> tuple[str, float]:
    """The unit in which an axis of this length has numbers from about 3 to some hundreds: its name and its seconds."""
    return next((unit for unit in UNITS if span_s >= 3 * unit[1]), UNITS[-1])


def log_ticks(low_s: float, high_s: float) -> list[tuple[float, str]]:
    """The members of :data:`LOG_TICKS` within an interval."""
    return [tick for tick in LOG_TICKS if low_s <= tick[0] <= high_s]


def time_ticks(span_s: float) -> list[tuple[float, str]]:
    """Ticks of an axis of time from 0 to ``span_s``: places from 0 to 1, and numbers, of which the last has the unit."""
    unit, size_s = axis_unit(span_s)
    length = span_s / size_s
    step = tick_step(length)
    last = int(length / step + 1e-9)
    return [(step * at / length, f"{step * at:g}{f' {unit}' if at == last else ''}") for at in range(last + 1)]
