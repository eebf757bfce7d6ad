"""The memory bandwidth of this machine, where the kernel's resctrl is mounted and shows it to everybody."""

from __future__ import annotations

from pathlib import Path

RESCTRL = Path("/sys/fs/resctrl")


def transferred_bytes(mount: Path = RESCTRL) -> int | None:
    """Bytes between caches and memory since some start, of all processes; None where they cannot be read.

    A node whose jobs have monitoring groups counts those apart: the root's counter contains them.
    """
    try:
        counters = list(mount.glob("mon_data/mon_L3_*/mbm_total_bytes"))
        return sum(int(counter.read_text()) for counter in counters) if counters else None
    except (OSError, ValueError):  # "Unavailable", "Error", or no right to read
        return None


def bandwidth_gb_s(before: int | None, after: int | None, seconds: float, idle_gb_s: float = 0.0) -> float | None:
    """GB a second between two readings beyond what was there before; None where one is missing or counters began anew."""
    if before is None or after is None or after < before or seconds <= 0.0:
        return None
    return max(0.0, (after - before) / seconds / 1e9 - idle_gb_s)
