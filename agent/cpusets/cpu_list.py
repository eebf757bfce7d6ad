"""Sets of CPUs as the kernel writes them: ``0-3,8``. See cpuset(7), "List format"."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CPU_NUMBER = 1 << 16
Cpus = frozenset[int]


def parse_cpu_list(text: str) -> Cpus:
    """The CPUs of a list; empty text is the empty set.

    Raises:
        ValueError: it is no list of CPUs.
    """
    found: set[int] = set()
    for item in filter(None, text.strip().split(",")):
        first, dash, last = item.strip().partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MAX_CPU_NUMBER:
            raise ValueError(f"{item!a} is no range of CPUs")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """A set as the kernel would write it."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
