"""Figures as people read them, in texts that sodad and sodactl show."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def format_duration(seconds: float | None) -> str:
    """A time span for people: ``4 ms``, ``3.2 s``, ``5 min 03 s``, ``2 h 05 min``, ``3 d 04 h``; ``-`` if unknown."""
    if seconds is None or math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "unlimited"
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    return _short(seconds) if seconds < 59.95 else _long(round(seconds))


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _long(seconds: int) -> str:
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600:02d} h"


def format_instant(seconds: float | None) -> str:
    """A Unix time in this machine's zone; ``-`` if there is none, seconds if no calendar has it."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.15g} s since 1970"


def format_count(count: int, noun: str) -> str:
    """A number of things: ``1 GPU``, ``2 GPUs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_percent(ratio: float | None) -> str:
    """A ratio for people."""
    return "-" if ratio is None else f"{ratio * 100:.0f} %"


def format_memory(mib: float | None) -> str:
    """An amount of memory: ``512 MiB``, ``1.4 GiB``, ``80 GiB``; ``-`` if unknown."""
    if mib is None:
        return "-"
    gib = mib / 1024
    return f"{mib:.0f} MiB" if gib < 0.9995 else f"{gib:.1f} GiB" if gib < 9.95 else f"{gib:,.0f} GiB"
