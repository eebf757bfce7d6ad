"""Slurm's compressed host lists: ``n[1-3,7],login`` names n1, n2, n3, n7 and login."""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import product
from sys import getsizeof
from typing import NamedTuple

from slurm_soda.slurm_ext.errors import SlurmReplyError

MAX_HOSTS = 200_000
MAX_NAME = 255
"""Characters of a host name, as in the DNS."""
MOST_KEPT_BYTES = 16 << 20
"""Of expanded lists, some 200 000 names: an agent has 256 MiB for everything."""
_ENTRY_BYTES = 300
"""What keeping a list takes besides its text and its names."""
_SHOWN = 60
"""Characters of a list in an error."""
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


class _ExpandedLists:
    """Lists that were expanded lately, as many as fit into a number of bytes: few long ones, or many short ones."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._lists: OrderedDict[str, tuple[tuple[str, ...], int]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, text: str) -> tuple[str, ...] | None:
        """What was kept; it is the last one used now."""
        with self._changing:
            if text not in self._lists:
                return None
            self._lists.move_to_end(text)
            return self._lists[text][0]

    def keep(self, text: str, names: tuple[str, ...]) -> None:
        """Keep a list in the place of those that were not used for longest; but none that is larger than the bound."""
        size = getsizeof(text) + getsizeof(names) + sum(map(getsizeof, names)) + _ENTRY_BYTES
        with self._changing:
            if size > self._most_bytes or text in self._lists:
                return
            self._lists[text] = names, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                _, (_, freed) = self._lists.popitem(last=False)
                self._bytes -= freed


_expanded = _ExpandedLists(MOST_KEPT_BYTES)


def expand_hosts(text: str) -> tuple[str, ...]:
    """All host names in order; several brackets in one name vary from the right.

    Raises:
        SlurmReplyError: ``text`` is no host list, or names more than :data:`MAX_HOSTS` hosts.
    """
    if (kept := _expanded.get(text)) is not None:
        return kept
    names = tuple(name for parts in parse_hosts(text) for name in expand_parts(parts))
    _expanded.keep(text, names)
    return names


def count_hosts(text: str) -> int:
    """How many names :func:`expand_hosts` gives, in the time that it takes to read the list.

    Raises:
        SlurmReplyError: as there.
    """
    return sum(map(count_names, parse_hosts(text)))


class Numbers(NamedTuple):
    """Numbers in a row, as a bracket lists them."""

    first: int
    last: int
    width: int
    """With zeros before them up to so many digits."""


NamePart = str | Sequence[Numbers]
"""Of a host name: text, or what varies there."""


def parse_hosts(text: str) -> Iterator[list[NamePart]]:
    """What stands between the commas of a host list, by parts. None of them gives too many or too long names.

    Raises:
        SlurmReplyError: as :func:`expand_hosts`.
    """
    hosts = 0
    for item in () if text in ("", "(null)", "None assigned") else _split(text):
        found = _PART.findall(item)
        if "".join(f"[{r}]" if r else plain for r, plain in found) != item:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} cannot be read: brackets do not match")
        parts = [_numbers(ranges, text) if ranges else plain for ranges, plain in found]
        if sum(map(_most_characters, parts)) > MAX_NAME:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} has a name of more than {MAX_NAME} characters")
        # Before anything is made of them: the product of a few short ranges is larger than any memory.
        hosts += count_names(parts)
        if hosts > MAX_HOSTS:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} names more than {MAX_HOSTS} hosts")
        yield parts


def expand_parts(parts: Sequence[NamePart]) -> Iterator[str]:
    """All names that these parts give."""
    choices = [
        [part]
        if isinstance(part, str)
        else [str(n).zfill(w) for first, last, w in part for n in range(first, last + 1)]
        for part in parts
    ]
    return map("".join, product(*choices))


def count_names(parts: Sequence[NamePart]) -> int:
    """How many names they give."""
    return math.prod(sum(last - first + 1 for first, last, _ in part) for part in parts if not isinstance(part, str))


def _most_characters(part: NamePart) -> int:
    return len(part) if isinstance(part, str) else max(max(width, len(str(last))) for _, last, width in part)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]]


def _numbers(ranges: str, text: str) -> list[Numbers]:
    found: list[Numbers] = []
    count = 0
    for piece in ranges.split(","):
        match = _RANGE.fullmatch(piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not match or not first <= last < first + MAX_HOSTS - count:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} cannot be read at [{ranges[:_SHOWN]}]")
        count += last - first + 1
        found.append(Numbers(first, last, len(match[1])))
    return found


def compress_hosts(names: Sequence[str]) -> str:
    """A host list of these names in their order; :func:`expand_hosts` gives them back. Runs of numbers become ranges."""
    pieces: list[tuple[str, str, str]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        stem, number = (match[1], match[2]) if match else (name, "")
        if pieces and number and pieces[-1][0] == stem and _follows(pieces[-1][2], number):
            pieces[-1] = (stem, pieces[-1][1], number)
        else:
            pieces.append((stem, number, number))
    return ",".join(stem + (first if first == last else f"[{first}-{last}]") for stem, first, last in pieces)


def _follows(last: str, number: str) -> bool:
    return bool(last) and number == str(int(last) + 1).zfill(len(last))
