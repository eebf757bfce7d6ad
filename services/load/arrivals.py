"""When queries are sent: patterns over time, as seconds from the start."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from slurm_soda.wire.errors import SodaError

Rate = Callable[[float], float]
"""Queries per second at a second of the plan."""


class PatternError(SodaError):
    """A load that cannot be planned; names the value and what is allowed."""


def constant_rate(qps: float) -> Rate:
    """Always the same."""
    return lambda _: qps


def diurnal_rate(low_qps: float, high_qps: float, day_s: float) -> Rate:
    """A day in ``day_s`` seconds: it begins in the night with ``low_qps``, and reaches ``high_qps`` half a day later."""
    return lambda at_s: low_qps + (high_qps - low_qps) * (1.0 - math.cos(2.0 * math.pi * at_s / day_s)) / 2.0


def burst_rate(qps: float, burst_qps: float, every_s: float, burst_s: float) -> Rate:
    """``qps``, and for the last ``burst_s`` of each ``every_s`` seconds ``burst_qps``."""
    return lambda at_s: burst_qps if at_s % every_s >= every_s - burst_s else qps


def even_times(qps: float, duration_s: float) -> Iterator[float]:
    """Equal distances, from the first instant on."""
    count = math.ceil(qps * duration_s)
    return (number / qps for number in range(count))


def random_times(rate: Rate, highest_qps: float, duration_s: float, seed: int) -> Iterator[float]:
    """A Poisson process whose rate changes over time, by thinning one of the highest rate (Lewis and Shedler, 1979).

    Args:
        rate: nowhere above ``highest_qps``.
        highest_qps: queries per second; above 0.
        duration_s: seconds; all times are below.
        seed: the same times for the same seed.
    """
    draws = random.Random(seed)  # noqa: S311 - no secret
    at_s = 0.0
    while True:
        at_s += draws.expovariate(highest_qps)
        if at_s >= duration_s:
            return
        if draws.random() * highest_qps < rate(at_s):
            yield at_s


def read_times(path: Path, speed: float = 1.0) -> list[float]:
    """The times of a file with one number a line, in seconds from any start; # begins a comment.

    Args:
        path: the file.
        speed: how many seconds of the file pass in one second.

    Raises:
        PatternError: it cannot be read, has no times, or a line is no number.
    """
    times: list[float] = []
    try:
        with path.open() as file:
            for number, line in enumerate(file, 1):
                word = line.partition("#")[0].strip()
                if word:
                    times.append(_time(word, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise PatternError(f"{path} cannot be read: {error}") from error
    if not times:
        raise PatternError(f"{path} has no times; it needs one number of seconds a line")
    times.sort()
    return [(at_s - times[0]) / speed for at_s in times]


def _time(word: str, where: str) -> float:
    try:
        at_s = float(word)
    except ValueError:
        at_s = math.nan
    if not math.isfinite(at_s):
        raise PatternError(f"{where}: {word[:40]!r}; a time is a number of seconds")
    return at_s
