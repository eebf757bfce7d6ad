"""What one run does with one GPU, added up reading by reading; kept in the spool, so that it survives the agent.

Between two readings each stands for half of the time: an edge is off by half an interval at most, as often too early as too
late. (The run's sums in :mod:`slurm_soda.agent.sampling.run_usage` count each reading for all of the time before it, which
comes to the same over a long run.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.agent.sampling.timeline import FIRST_STEP_S, Timeline
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.gpu_use import IDLE_RATIO, IDLE_SPAN_S, MAX_IDLE_SPANS, TIMELINE_POINTS, GpuUse, IdleSpan
from slurm_soda.wire.json_fields import JsonFields

_NUMBERS = (
    "read_s",
    "at_s",
    "util_ratio",
    "covered_s",
    "busy_s",
    "util_max_ratio",
    "memory_peak_mib",
    "memory_mib",
    "power_covered_s",
    "energy_j",
    "power_max_w",
    "idle_s",
    "idle_spans_s",
)
_OR_NOT_YET = ("power_w", "busy_from_s", "busy_until_s", "idle_from_s")
_COUNTS = ("readings", "idle_spans")
_MAX_COUNT = 1 << 40
_ROUNDING_S = 0.01


@dataclass(slots=True)
class GpuUseSums:
    """One GPU of one run. Times are seconds since the run's opening, but for :attr:`read_s`; negative: not yet."""

    read_s: float
    """Of the last reading, Unix seconds."""
    at_s: float = 0.0
    """The same since the opening; a clock that is set back costs one interval and no more."""
    util_ratio: float = 0.0
    """Last reading."""
    power_w: float = -1.0
    """Last reading; negative: not told."""
    readings: int = 0
    covered_s: float = 0.0
    busy_s: float = 0.0
    util_max_ratio: float = 0.0
    memory_peak_mib: float = 0.0
    memory_mib: float = 0.0
    power_covered_s: float = 0.0
    energy_j: float = 0.0
    """Over :attr:`power_covered_s`."""
    power_max_w: float = 0.0
    busy_from_s: float = -1.0
    busy_until_s: float = -1.0
    idle_s: float = 0.0
    idle_spans: int = 0
    idle_spans_s: float = 0.0
    idle_from_s: float = -1.0
    """When the present idle span began."""
    spans: list[IdleSpan] = field(default_factory=list)
    """The longest that are over."""
    timeline: Timeline = field(default_factory=Timeline)

    def take(self, reading: GpuReading, now_s: float, longest_gap_s: float) -> None:
        """Take one reading. Of the time since the one before, ``longest_gap_s`` at most, either of them stands for half."""
        gap_s = max(now_s - self.read_s, 0.0)
        step_s, until_s = min(gap_s, longest_gap_s), self.at_s + gap_s
        if self.readings:
            step_s /= 2
            self._add(self.at_s, self.at_s + step_s)
        self.read_s, self.util_ratio = now_s, reading.util_ratio
        self.power_w = -1.0 if reading.power_w is None else reading.power_w
        self.readings += 1
        self.util_max_ratio = max(self.util_max_ratio, reading.util_ratio)
        self.memory_peak_mib = max(self.memory_peak_mib, reading.memory_mib)
        self.memory_mib = reading.memory_total_mib or self.memory_mib
        self.power_max_w = max(self.power_max_w, self.power_w)
        self._add(until_s - step_s, until_s)

    def _add(self, from_s: float, until_s: float) -> None:
        """It was as in the last reading for this time."""
        if from_s > self.at_s + _ROUNDING_S:
            self._end_span(self.at_s)  # nobody knows what came between
        step_s, self.at_s = until_s - from_s, until_s
        self.covered_s += step_s
        self.busy_s += step_s * self.util_ratio
        if self.power_w >= 0:
            self.power_covered_s += step_s
            self.energy_j += step_s * self.power_w
        self.timeline.add(from_s, until_s, self.util_ratio)
        if self.util_ratio <= IDLE_RATIO:
            self.idle_s += step_s
            self.idle_from_s = from_s if self.idle_from_s < 0 else self.idle_from_s
        else:
            self._end_span(from_s)
            self.busy_from_s = from_s if self.busy_from_s < 0 else self.busy_from_s
            self.busy_until_s = until_s

    def _end_span(self, end_s: float) -> None:
        """The idle span is over, if there is one."""
        if self.idle_from_s >= 0:
            span = IdleSpan(self.idle_from_s, end_s - self.idle_from_s)
            if span.length_s > IDLE_SPAN_S:
                self.idle_spans, self.idle_spans_s = self.idle_spans + 1, self.idle_spans_s + span.length_s
                self.spans = _longest([*self.spans, span])
        self.idle_from_s = -1.0

    def record(self, index: int) -> GpuUse:
        """As the controller wants it; an idle span that goes on counts up to the last reading."""
        spans, count, sum_s = self.spans, self.idle_spans, self.idle_spans_s
        present_s = self.at_s - self.idle_from_s if self.idle_from_s >= 0 else 0.0
        if present_s > IDLE_SPAN_S:
            spans = _longest([*spans, IdleSpan(self.idle_from_s, present_s)])
            count, sum_s = count + 1, sum_s + present_s
        return GpuUse(
            index=index,
            readings=self.readings,
            covered_s=round(self.covered_s, 1),
            util_ratio=min(round(self.busy_s / self.covered_s, 4), 1.0) if self.covered_s > 0 else 0.0,
            util_max_ratio=self.util_max_ratio,
            memory_peak_mib=round(self.memory_peak_mib),
            memory_mib=round(self.memory_mib),
            power_w=round(self.energy_j / self.power_covered_s, 1) if self.power_covered_s > 0 else 0.0,
            power_max_w=round(self.power_max_w, 1),
            busy_from_s=round(self.busy_from_s, 1),
            busy_until_s=round(self.busy_until_s, 1),
            idle_s=round(self.idle_s, 1),
            idle_spans=count,
            idle_spans_s=round(sum_s, 1),
            spans=tuple(IdleSpan(round(one.from_s, 1), round(one.length_s, 1)) for one in _by_time(spans)),
            step_s=self.timeline.step_s,
            timeline=self.timeline.text(),
        )

    def to_spool(self, index: int) -> dict[str, Any]:
        """Plain data for the spool, some 700 bytes."""
        timeline = self.timeline
        numbers = {name: round(getattr(self, name), 3) for name in (*_NUMBERS, *_OR_NOT_YET)}
        return {
            "index": index,
            **numbers,
            **{name: getattr(self, name) for name in _COUNTS},
            "spans": [{"from_s": round(one.from_s, 3), "length_s": round(one.length_s, 3)} for one in self.spans],
            "step_s": timeline.step_s,
            "points": timeline.points.hex(),
            "point_covered_s": round(timeline.covered_s, 3),
            "point_busy_s": round(timeline.busy_s, 3),
        }

    @classmethod
    def from_spool(cls, data: object) -> tuple[int, GpuUseSums]:
        """Index and sums, as an earlier agent left them.

        Raises:
            RecordError: they are none.
        """
        read = JsonFields("spooled use of a GPU", data)
        try:
            points = bytearray.fromhex(read.text("points", 2 * TIMELINE_POINTS))
        except ValueError as error:
            raise RecordError("spooled use of a GPU: points are no hexadecimal digits") from error
        step_s = read.number("step_s", FIRST_STEP_S)
        timeline = Timeline(step_s, points, read.number("point_covered_s"), read.number("point_busy_s"))
        spans = [IdleSpan.from_dict(item) for item in read.objects("spans", MAX_IDLE_SPANS)]
        sums = cls(read_s=0.0, spans=spans, timeline=timeline)
        for name in _NUMBERS:
            setattr(sums, name, read.number(name))
        for name in _OR_NOT_YET:
            setattr(sums, name, read.number(name, -1.0))
        for name in _COUNTS:
            setattr(sums, name, read.whole(name, 0, _MAX_COUNT))
        return read.whole("index", 0, 65_535), sums


def _longest(spans: list[IdleSpan]) -> list[IdleSpan]:
    """Those that are kept; of equal ones the earlier."""
    return sorted(spans, key=lambda span: (-span.length_s, span.from_s))[:MAX_IDLE_SPANS]


def _by_time(spans: list[IdleSpan]) -> list[IdleSpan]:
    return sorted(spans, key=lambda span: span.from_s)
