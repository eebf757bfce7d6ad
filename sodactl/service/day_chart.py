"""A service's day in a terminal: latency, load and instances over time, in plain characters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from slurm_soda.sodactl.service.service_views import MinuteView

DAY_S = 86_400.0
HEIGHT = 6
LEAST_WIDTH, MOST_WIDTH = 24, 144
_LABEL = 9
"""Characters of the scale beside a chart."""
_TICK = 12
"""Columns from one time below the chart to the next."""


def draw_day(minutes: Sequence[MinuteView], target_ms: float, now_s: float, width: int) -> list[str]:
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


def _columns(minutes: Sequence[MinuteView], now_s: float, count: int) -> list[list[MinuteView]]:
    columns: list[list[MinuteView]] = [[] for _ in range(count)]
    for minute in minutes:
        at = math.floor((minute.at_s - (now_s - DAY_S)) / DAY_S * count)
        if 0 <= at <= count:  # the present minute may end after now
            columns[min(at, count - 1)].append(minute)
    return columns


def _highest(column: Sequence[MinuteView], figure: Callable[[MinuteView], float]) -> float:
    """NaN where nothing is known."""
    return max((value for minute in column if math.isfinite(value := figure(minute))), default=math.nan)


def _bars(values: Sequence[float], mark: Callable[[float], str]) -> list[str]:
    """Bars from the bottom; whatever is above 0 has at least one character."""
    most = max((value for value in values if math.isfinite(value)), default=0.0)
    step = _round_step(most / HEIGHT)
    lines = []
    for row in reversed(range(max(1, math.ceil(most / step)))):
        bar = "".join(mark(value) if value > step * row else " " for value in values)
        lines.append(_line(step * (row + 1), bar))
    return lines


def _round_step(least: float) -> float:
    """The smallest round number that is not below ``least``."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= least)


def _instances(columns: Sequence[Sequence[MinuteView]]) -> list[str]:
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
    return f"{_shown(scale):>{_LABEL}} |{bar}".rstrip()


def _shown(scale: float) -> str:
    if scale < 100_000:
        return f"{scale:,.0f}" if scale >= 100 or scale == int(scale) else f"{scale:.3g}"
    return f"{scale / 1e3:,.0f} k" if scale < 1e8 else f"{scale / 1e6:.3g} M"


def _axis(now_s: float, count: int) -> list[str]:
    times = "".join(
        f"{time.strftime('%H:%M', time.localtime(now_s - DAY_S + at / count * DAY_S)):<{_TICK}}"
        for at in range(0, count - 4, _TICK)
    )
    return [f"{'':>{_LABEL}} +{'-' * count}", f"{'':>{_LABEL}}  {times[:count]}".rstrip()]
