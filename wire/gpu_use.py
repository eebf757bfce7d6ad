"""What one run did with each of its GPUs on one node, in few bytes, however long it ran: for ``sodactl report``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.run_fields import RunFields

MAX_GPU_USES = 32
"""GPUs of one run on one node of which this is told; the others count in the run's sums only."""
IDLE_RATIO = 0.01
"""A GPU is idle in a reading of at most this utilisation: NVML tells whole percents, and a monitor of the driver's own may
cause one of them."""
IDLE_SPAN_S = 5.0
"""Shorter spans are not told one by one: they are the gaps between batches, and a reading comes every two seconds."""
MAX_IDLE_SPANS = 8
"""Idle spans of one GPU that are told: the longest."""
TIMELINE_POINTS = 120
NOT_MEASURED = 0xFF
"""A point of the timeline in which nothing was read; others are utilisation in half percents, 0 to 200."""
HALF_PERCENTS = 200

_TIMELINE = re.compile(f"(?:[0-9a-f]{{2}}){{0,{TIMELINE_POINTS}}}")


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """A time of more than :data:`IDLE_SPAN_S` in which a GPU was idle in every reading."""

    from_s: float
    """Since the run was opened on the node."""
    length_s: float

    @classmethod
    def from_dict(cls, data: object) -> IdleSpan:
        """Check and take one span that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("idle span", data)
        return cls(read.unix_s("from_s"), read.unix_s("length_s"))


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU of a run. Times are seconds since the run was opened on the node.

    Utilisation is the device's, by NVML: jobs that share it are in it.
    """

    index: int
    """As Slurm counts the node's GPUs."""
    readings: int
    covered_s: float
    """Time that readings stand for; the rest of the run was not measured."""
    util_ratio: float
    """Mean over :attr:`covered_s`."""
    util_max_ratio: float
    """Largest reading."""
    memory_peak_mib: float
    memory_mib: float = 0.0
    """Of the whole GPU; 0: not told."""
    power_w: float = 0.0
    """Mean; 0: the driver does not tell."""
    power_max_w: float = 0.0
    busy_from_s: float = -1.0
    """When it was first not idle; negative: never."""
    busy_until_s: float = -1.0
    idle_s: float = 0.0
    """All time in which it was idle, short spans included."""
    idle_spans: int = 0
    """How many were longer than :data:`IDLE_SPAN_S`."""
    idle_spans_s: float = 0.0
    """Their sum."""
    spans: tuple[IdleSpan, ...] = ()
    """The longest of them, by time."""
    step_s: float = 0.0
    """Time of one point of :attr:`timeline`."""
    timeline: str = ""
    """Mean utilisation by :attr:`step_s`, two hexadecimal digits a point; see :func:`timeline_ratios`."""

    @classmethod
    def from_dict(cls, data: object) -> GpuUse:
        """Check and take what came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("use of a GPU", data)
        timeline = read.text("timeline", 2 * TIMELINE_POINTS, "")
        if not _TIMELINE.fullmatch(timeline):
            raise RecordError(f"use of a GPU: timeline is {timeline[:40]!a}; allowed are pairs of hexadecimal digits")
        return cls(
            index=read.whole("index", 0, 65_535),
            readings=read.whole("readings", 0, 1 << 40),
            covered_s=read.unix_s("covered_s"),
            util_ratio=read.ratio("util_ratio"),
            util_max_ratio=read.ratio("util_max_ratio"),
            memory_peak_mib=read.number("memory_peak_mib"),
            memory_mib=read.number("memory_mib", default=0.0),
            power_w=read.number("power_w", default=0.0),
            power_max_w=read.number("power_max_w", default=0.0),
            busy_from_s=read.number("busy_from_s", -1.0, default=-1.0),
            busy_until_s=read.number("busy_until_s", -1.0, default=-1.0),
            idle_s=read.number("idle_s", default=0.0),
            idle_spans=read.whole("idle_spans", 0, 1 << 40, 0),
            idle_spans_s=read.number("idle_spans_s", default=0.0),
            spans=tuple(IdleSpan.from_dict(item) for item in read.objects("spans", MAX_IDLE_SPANS)),
            step_s=read.number("step_s", default=0.0),
            timeline=timeline,
        )


@dataclass(frozen=True, slots=True)
class RunGpuUse:
    """All GPUs of one run on one node so far; cumulative, so that a lost or doubled report does no harm."""

    job_id: int
    restart: int
    node: str
    first_s: float
    """When the run was opened, Unix seconds; with the three above it names a run on a node."""
    last_s: float
    """Of the newest reading, Unix seconds."""
    gpus: tuple[GpuUse, ...]

    @classmethod
    def from_dict(cls, data: object) -> RunGpuUse:
        """Check and take what came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("use of GPUs by a run", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            first_s=read.unix_s("first_s"),
            last_s=read.unix_s("last_s"),
            gpus=tuple(GpuUse.from_dict(item) for item in read.objects("gpus", MAX_GPU_USES)),
        )


def timeline_ratios(timeline: str) -> list[float | None]:
    """Utilisation by point, 0 to 1; ``None`` where nothing was read."""
    points = bytes.fromhex(timeline)
    return [None if point == NOT_MEASURED else min(point / HALF_PERCENTS, 1.0) for point in points]
