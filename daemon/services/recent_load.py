"""The load that a decision counts with: the mean of a service's last minute, or what it has risen to, or is about to."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from slurm_soda.daemon.services.service_load import MINUTE_S

_DEVIATIONS = 5.0
"""What rose by more than so many standard deviations of what chance makes did not rise by chance; looked at anew every
second, that is wrong once in weeks.
"""
_RISES = ((0.0, 1.0), (5.0, 0.5), (15.0, 0.2))
"""A load that rose is seen before the minute is over: by the newest report alone, and by the mean of so many seconds, if it
is above the mean of all by more than this part of it, and by more than chance makes."""
_BEFORE_S = 15.0
"""How much chance makes is measured on the reports before the longest of these spans: a burst is not its own noise."""
_AHEAD_S = 30.0
"""A steady rise counts with what it will be by then: an instance that starts now is ready about then, and no earlier."""
_PIECES = 6
"""A rise is steady if the means of so many parts of the minute are near a straight line:"""
_STEADY_RATIO = 5.0
"""their variance around it is at most so many times that of chance, as it is in all but one of a thousand straight rises."""
_STEP_REPORTS = 2
"""So many differences of successive reports a single step makes, if it falls into the midst of a report."""

_Report = tuple[float, float]
"""When it came, by the steady clock, and its load."""


@dataclass(slots=True)
class RecentLoad:
    """Load of one service by the reports of the last minute, or of a cool-down that is shorter.

    Each report counts a second or two, whose noise would put off the end of a cool-down for ever. How large that is where
    queries come independently is known (Poisson); clients that send several at once make more, which is measured.
    """

    _reports: deque[_Report] = field(default_factory=deque)

    def add(self, load_qps: float, steady_s: float, over_s: float = MINUTE_S) -> float:
        """Take in a report; gives the load in queries per second: the mean over so many seconds, a minute at most, or a
        higher one since, or the one that a steady rise comes to.
        """
        self._reports.append((steady_s, load_qps))
        while len(self._reports) > 1 and self._reports[0][0] <= steady_s - MINUTE_S:
            self._reports.popleft()
        mean = self._mean(over_s)
        found, ratio = max(mean, _steady_rise(self._reports)), self._noise_ratio(steady_s)
        for span_s, part in _RISES:
            late, counted_s = self._mean(min(span_s, over_s)), max(span_s, self._newest_s())
            expected = max(mean * counted_s, ratio)  # queries; at least one, or as many as come at once
            if late - mean > part * mean and _deviations(late * counted_s, expected, ratio) > _DEVIATIONS:
                found = max(found, late)
        return found

    def _mean(self, span_s: float) -> float:
        since_s = self._reports[-1][0] - span_s
        loads = [load_qps for at_s, load_qps in self._reports if at_s > since_s or at_s == self._reports[-1][0]]
        return sum(loads) / len(loads)

    def _newest_s(self) -> float:
        """So many seconds the newest report counts as, one at most."""
        return min(self._reports[-1][0] - self._reports[-2][0], 1.0) if len(self._reports) > 1 else 1.0

    def _noise_ratio(self, now_s: float) -> float:
        """How many times the variance of independent queries that of earlier reports was; at least 1."""
        before = [one for one in self._reports if one[0] <= now_s - _BEFORE_S]
        if len(before) <= _STEP_REPORTS + 1:
            return 1.0
        mean = sum(load_qps for _, load_qps in before) / len(before)
        each_s = (before[-1][0] - before[0][0]) / (len(before) - 1)
        return max(_variance(before) * each_s / mean, 1.0) if mean else 1.0


def _deviations(found: float, expected: float, ratio: float) -> float:
    """By how many standard deviations of chance more queries came than were expected: the root of the deviance of a Poisson
    distribution, whose tail is longer than a normal one's where few queries come.
    """
    if found <= expected:
        return 0.0
    deviance = 2.0 * (found * math.log(found / expected) - found + expected)
    return math.sqrt(max(deviance, 0.0) / ratio)


def _variance(reports: Sequence[_Report]) -> float:
    """Of single reports, by the differences of successive ones (von Neumann): so no slope counts, and no single step."""
    squares = sorted((late[1] - early[1]) ** 2 for early, late in pairwise(reports))
    kept = squares[:-_STEP_REPORTS]
    return sum(kept) / (2.0 * len(kept)) if kept else 0.0


def _steady_rise(minute: deque[_Report]) -> float:
    """The load in :data:`_AHEAD_S` if it goes on as in the last minute (least squares); 0 if that was no steady rise."""
    count, now_s, first_s = len(minute), minute[-1][0], minute[0][0]
    span_s = now_s - first_s
    if span_s < MINUTE_S / 2 or count < 2 * _PIECES:
        return 0.0
    reports = list(minute)
    mean_s = sum(at_s - now_s for at_s, _ in reports) / count
    mean_qps = sum(load_qps for _, load_qps in reports) / count
    away = [(at_s - now_s - mean_s, load_qps - mean_qps) for at_s, load_qps in reports]
    squares = sum(at_s * at_s for at_s, _ in away)
    slope = sum(at_s * load_qps for at_s, load_qps in away) / squares
    chance = max(max(mean_qps, 1.0) * (count - 1) / span_s, _variance(reports))
    if slope <= _DEVIATIONS * math.sqrt(chance / squares):
        return 0.0
    pieces: list[list[float]] = [[] for _ in range(_PIECES)]
    for (at_s, _), (away_s, away_qps) in zip(reports, away, strict=True):
        pieces[min(max(int((at_s - first_s) / span_s * _PIECES), 0), _PIECES - 1)].append(away_qps - slope * away_s)
    if not all(pieces):  # through the ends of a step that nobody saw there is a line too
        return 0.0
    around = sum(sum(off) ** 2 / len(off) for off in pieces) / (_PIECES - 2)
    if around > _STEADY_RATIO * chance or slope <= _DEVIATIONS * math.sqrt(around / squares):
        return 0.0
    return mean_qps + slope * (_AHEAD_S - mean_s)
