"""Hosts that users ask for by name, as ranges: ten thousand nodes in a row cost no more to look up than two."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import NamePart, Numbers, count_names, expand_parts, parse_hosts

MAX_RANGES = 100
"""Of one list that a user wrote: each host that is left out splits a range in two."""
_SHOWN = 60
"""Characters of a list in an error."""
_DIGITS = re.compile(r"[0-9]+")


class HostRange(NamedTuple):
    """Hosts whose names differ in their last number alone, which has as many digits in each."""

    series: tuple[str, int, str]
    """What is before the number, how many digits it has, and what is after it."""
    first: int
    last: int


def check_ranges(text: str) -> None:
    """Refuse a list that :func:`find_ranges` cannot read, without making its ranges.

    Raises:
        SlurmReplyError: ``text`` is no host list, or has more than :data:`MAX_RANGES` ranges.
    """
    pieces_listed, count = text.count(",") + 1, 0
    for parts in parse_hosts(text) if pieces_listed <= MAX_RANGES else ():
        before, pieces, _ = _split_at_range(parts)
        count += count_names(before) * max(len(pieces), 1)
        if count > MAX_RANGES:
            break
    if max(pieces_listed, count) > MAX_RANGES:
        raise SlurmReplyError(f"host list {text[:_SHOWN]!r} has more than {MAX_RANGES} ranges; name fewer hosts")


def find_ranges(text: str) -> list[HostRange]:
    """The hosts of a list; work and memory are bounded by :data:`MAX_RANGES`, however many hosts there are.

    Raises:
        SlurmReplyError: as :func:`check_ranges`.
    """
    check_ranges(text)
    return [found for parts in parse_hosts(text) for found in _ranges(*_split_at_range(parts))]


def _split_at_range(parts: Sequence[NamePart]) -> tuple[Sequence[NamePart], Sequence[Numbers], str]:
    """What is before the numbers that are a name's last ones, these, and what is after them; all, and none of these where
    a bracket does not list them.
    """
    for at in reversed(range(len(parts))):
        part = parts[at]
        if not isinstance(part, str):
            return parts[:at], part, "".join(str(plain) for plain in parts[at + 1 :])
        if _DIGITS.search(part):
            break
    return parts, (), ""


def _ranges(before: Sequence[NamePart], pieces: Sequence[Numbers], tail: str) -> Iterator[HostRange]:
    for head in expand_parts(before):
        if not pieces:
            yield _only(head)
            continue
        stem = head.rstrip("0123456789")
        digits_before, above = len(head) - len(stem), int(head[len(stem) :] or 0)
        for first, last, width in pieces:
            for digits in range(width, max(width, len(str(last))) + 1):
                unit = 10**digits
                low = first if digits == width else unit // 10
                series = (stem, digits_before + digits, tail)
                yield HostRange(series, above * unit + low, above * unit + min(last, unit - 1))


def _only(name: str) -> HostRange:
    """A range of one host."""
    for number in reversed(list(_DIGITS.finditer(name))):
        at = int(number[0])
        return HostRange((name[: number.start()], len(number[0]), name[number.end() :]), at, at)
    return HostRange((name, 0, ""), 0, 0)


class HostSet:
    """Hosts by name, sorted: a range of them is looked up by its ends."""

    def __init__(self, names: Iterable[str]) -> None:
        self._numbers: dict[tuple[str, int, str], list[int]] = {}
        for name in sorted(set(names)):  # by number within a series, whose numbers all have as many digits
            host = _only(name)
            self._numbers.setdefault(host.series, []).append(host.first)

    def has_all(self, ranges: Iterable[HostRange]) -> bool:
        """Whether every host of these ranges is here."""
        return all(self._count(hosts) > hosts.last - hosts.first for hosts in ranges)

    def has_any(self, ranges: Iterable[HostRange]) -> bool:
        """Whether a host of these ranges is here."""
        return any(self._count(hosts) for hosts in ranges)

    def _count(self, hosts: HostRange) -> int:
        numbers = self._numbers.get(hosts.series, ())
        return bisect_right(numbers, hosts.last) - bisect_left(numbers, hosts.first)
