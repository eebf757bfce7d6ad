"""The load of the day: few queries at night, many at noon, sent at times that are drawn beforehand."""

from __future__ import annotations

import math

from slurm_soda.demo.services_day.day_settings import DayRates
from slurm_soda.services.load.arrivals import Rate, random_times

SHARPNESS = 2
"""How narrow the hill of the day is: the power of the raised cosine. 1 would be a plain one."""


def day_rate(rates: DayRates, day_s: float) -> Rate:
    """Queries per second at a second of the day; it begins at midnight."""

    def at(second: float) -> float:
        hill = (1.0 - math.cos(2.0 * math.pi * second / day_s)) / 2.0
        return rates.night_qps + (rates.peak_qps - rates.night_qps) * hill**SHARPNESS

    return at


def query_times(rates: DayRates, day_s: float, seed: int) -> list[float]:
    """When each query of the day is due, in seconds from its start; the first at 0. The same for the same arguments."""
    drawn = random_times(day_rate(rates, day_s), rates.peak_qps, day_s, seed)
    return [0.0, *(round(one, 4) for one in drawn)]


def needed_part(rates: DayRates, day_s: float, counted_qps: float) -> float:
    """The part of the day in which the load is above what an instance on cores is counted on for."""
    rate, steps = day_rate(rates, day_s), 1000
    return sum(rate((step + 0.5) * day_s / steps) > counted_qps for step in range(steps)) / steps
