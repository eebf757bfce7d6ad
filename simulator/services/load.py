"""Queries in a second of services over time: drawn like a day, or read from a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.generators.soda import INFERENCE_RATES

STEP_S = 600.0
"""A drawn load changes so often; our choice."""
NOISE, NOISE_KEPT = 0.08, 0.9
"""Our choice: the standard deviation of a drawn load's logarithm around its day, and how much of a step's deviation is left
in the next one."""
_HOUR_S, _MINUTE_S = 3_600.0, 60.0
_COLUMNS = ("minute", "service", "qps")
_MOST_MINUTES = 366 * 24 * 60


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Load by service and step; after the last step it starts over."""

    qps: FloatColumn
    """Shape (services, steps), queries in a second during each step, none negative."""
    step_s: float = STEP_S

    def at(self, now_s: float) -> FloatColumn:
        """Load of each service at a time."""
        return np.asarray(self.qps[:, int(now_s // self.step_s) % self.qps.shape[1]])

    def next_change_s(self, now_s: float) -> float:
        """When the next step begins."""
        return (math.floor(now_s / self.step_s) + 1) * self.step_s

    def most_within(self, from_s: float, until_s: float) -> FloatColumn:
        """The largest load of each service between two times."""
        first, last = int(from_s // self.step_s), int(until_s // self.step_s)
        steps = np.arange(first, max(last, first) + 1) % self.qps.shape[1]
        return np.asarray(self.qps[:, steps].max(axis=1))

    @property
    def period_s(self) -> float:
        """After so long it starts over."""
        return float(self.qps.shape[1] * self.step_s)

    @property
    def peak_qps(self) -> FloatColumn:
        """The largest load of each service."""
        return np.asarray(self.qps.max(axis=1))


def draw_week(peaks_qps: Sequence[float], seed: int) -> LoadCurve:
    """A week of load whose days have the shape of SODA's inference jobs (:data:`.generators.soda.INFERENCE_RATES`).

    ``peaks_qps`` are the largest loads; the same seed gives the same load.
    """
    rng = np.random.default_rng([seed, 12])
    week_s = len(INFERENCE_RATES) * _HOUR_S
    middle_s = (np.arange(int(week_s / STEP_S)) + 0.5) * STEP_S
    hours_s = (np.arange(len(INFERENCE_RATES)) + 0.5) * _HOUR_S
    day = np.interp(middle_s, hours_s, INFERENCE_RATES, period=week_s)
    rows = []
    for peak in peaks_qps:
        drawn, noise, kept = rng.standard_normal(len(middle_s)), np.zeros(len(middle_s)), 0.0
        for at, value in enumerate(drawn.tolist()):
            kept = NOISE_KEPT * kept + math.sqrt(1.0 - NOISE_KEPT**2) * value
            noise[at] = kept
        load = day * np.exp(NOISE * noise)
        rows.append(peak * load / load.max())
    return LoadCurve(np.array(rows))


def services_of_csv(path: Path) -> tuple[str, ...]:
    """Names of the services in a CSV of load, in the order of their first lines.

    Raises:
        TraceError: the file cannot be used; it names the line.
    """
    names = dict.fromkeys(row.get("service") or "" for _, row in _read(path))
    if "" in names:
        raise TraceError(str(path), 0, "a line names no service; write minute,service,qps")
    return tuple(names)


def load_from_csv(path: Path, services: Sequence[str]) -> LoadCurve:
    """Load by minute from a CSV with the columns ``minute``, ``service`` and ``qps``.

    ``minute`` counts from the begin of the simulation, 0 first. A minute that is not listed has the load of the last one
    that is listed before it, 0 before the first.

    Raises:
        TraceError: the file cannot be used; it names the line.
    """
    known = {name: at for at, name in enumerate(services)}
    rows = [_row(path, line, row, known) for line, row in _read(path)]
    qps = np.full((len(services), max(minute for minute, _, _ in rows) + 1), np.nan)
    for minute, service, value in rows:
        qps[service, minute] = value
    return LoadCurve(_carried_on(qps), _MINUTE_S)


def _read(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Lines with their numbers, at least one."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != _COLUMNS:
                found = ",".join(reader.fieldnames or ())
                raise TraceError(str(path), 1, f"the header is {found!r}; write minute,service,qps")
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(str(path), 0, f"cannot be read ({error})") from error
    if not rows:
        raise TraceError(str(path), 2, "there is no line; write one for each minute and service")
    return rows


def _row(path: Path, line: int, row: dict[str, str], known: dict[str, int]) -> tuple[int, int, float]:
    name = row.get("service") or ""
    if name not in known:
        raise TraceError(str(path), line, f"there is no service {name!r}; known are {', '.join(known)}")
    minute = _number(path, line, "minute", row.get("minute") or "")
    if minute != int(minute) or minute >= _MOST_MINUTES:
        raise TraceError(str(path), line, f"minute {row['minute']!r}: write a whole number below {_MOST_MINUTES}")
    return int(minute), known[name], _number(path, line, "qps", row.get("qps") or "")


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise TraceError(str(path), line, f"{column} {text!r}: write a number from 0 on")
    return value


def _carried_on(qps: FloatColumn) -> FloatColumn:
    """Gaps are filled with what was before them."""
    at = np.where(np.isnan(qps), -1, np.arange(qps.shape[1])[None, :])
    last = np.maximum.accumulate(at, axis=1)
    filled = np.take_along_axis(qps, np.maximum(last, 0), axis=1)
    return np.where(last < 0, 0.0, filled)
