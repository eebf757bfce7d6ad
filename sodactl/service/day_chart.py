"""A service's day in a terminal: latency, load and instances over time, in plain characters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from slurm_soda.sodactl.service.service_views import ServiceMinute

DAY_S = 86_400.0
HEIGHT = 6
LEAST_WIDTH, MOST_WIDTH = 24, 144
_LABEL = 9
"""Characters of the scale beside a chart."""
_TICK = 12
"""Columns from one time below the chart to the next."""


def draw_day(minutes: Sequence[ServiceMinute], target_ms: float, now_s: float, width: int) -> list[str]:
    """Lines of text, none wider than ``width``; ``now_s`` is their right edge, a day before it the left one.

    Each column is a stretch of time with its highest latency, load and number of instances; one without a report is empty.
    """
    count = min(max(width - _LABEL - 2, LEAST_WIDTH), MOST_WIDTH)
    columns = _columns(minutes, now_s, count)
    p99s = [_highest(column, lambda minute: minute.p99_ms) for column in columns]
    loads = [_highest(column, lambda minute: minute.load_qps) for column in columns]
    return [
        f"p99 in ms ({target_ms:g} is the target; ! is above it)",
        *_bars(p99s, lambda value: "!" if value > target_ms else "#"),
        "",
        "load in queries a second",
        *_bars(loads, lambda _: "#"),
        "",
        "instances: C on CPU cores, G on GPUs",
        *_instances(columns),
        *_axis(now_s, count),
    ]


def _columns(minutes: Sequence[ServiceMinute], now_s: float, count: int) -> list[list[ServiceMinute]]:
    columns: list[list[ServiceMinute]] = [[] for _ in range(count)]
    for minute in minutes:
        at = math.floor((minute.at_s - (now_s - DAY_S)) / DAY_S * count)
        if 0 <= at <= count:  # the present minute may end after now
            columns[min(at, count - 1)].append(minute)
    return columns


def _highest(column: Sequence[ServiceMinute], figure: Callable[[ServiceMinute], float]) -> float:
    """NaN where nothing is known."""
    return max((value for minute in column if math.isfinite(value := figure(minute))), default=math.nan)


def _bars(values: Sequence[float], mark: Callable[[float], str]) -> list[str]:
    """Bars from the bottom; whatever is above 0 has at least one character."""
    top = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
    lines = []
    for row in reversed(range(HEIGHT)):
        bar = "".join(mark(value) if value > top * row / HEIGHT else " " for value in values)
        lines.append(_line(top * (row + 1) / HEIGHT, bar))
    return lines


def _instances(columns: Sequence[Sequence[ServiceMinute]]) -> list[str]:
    """Of each column its minute with the most instances, those on CPU cores below those on GPUs."""
    fullest = [max(column, key=lambda minute: minute.cpu + minute.gpu, default=None) for column in columns]
    most = max((minute.cpu + minute.gpu for minute in fullest if minute), default=0)
    height = min(max(most, 1), HEIGHT)
    step = max(most, 1) / height
    lines = []
    for row in reversed(range(height)):
        bar = ""
        for minute in fullest:
            lowest = row * step
            if minute is None or minute.cpu + minute.gpu <= lowest:
                bar += " "
            else:
                bar += "C" if minute.cpu > lowest else "G"
        lines.append(_line((row + 1) * step, bar))
    return lines


def _line(scale: float, bar: str) -> str:
    label = f"{scale:,.0f}" if scale >= 100 or scale == int(scale) else f"{scale:.3g}"
    return f"{label:>{_LABEL}} |{bar}".rstrip()


def _axis(now_s: float, count: int) -> list[str]:
    times = "".join(
        f"{time.strftime('%H:%M', time.localtime(now_s - DAY_S + at / count * DAY_S)):<{_TICK}}"
        for at in range(0, count - 4, _TICK)
    )
    return [f"{'':>{_LABEL}} +{'-' * count}", f"{'':>{_LABEL}}  {times[:count]}".rstrip()]
