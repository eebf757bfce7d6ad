"""Slurm's compressed host lists: ``n[1-3,7],login`` names n1, n2, n3, n7 and login."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from slurm_soda.slurm_ext.errors import SlurmReplyError

MAX_HOSTS = 200_000
MAX_NAME = 255
"""Characters of a host name, as in the DNS."""
_SHOWN = 60
"""Characters of a list in an error."""
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


@lru_cache(maxsize=4096)
def expand_hosts(text: str) -> tuple[str, ...]:
    """All host names in order; several brackets in one name vary from the right.

    Raises:
        SlurmReplyError: ``text`` is no host list, or names more than :data:`MAX_HOSTS` hosts.
    """
    if text in ("", "(null)", "None assigned"):
        return ()
    names: list[str] = []
    for item in _split(text):
        parts = _PART.findall(item)
        if "".join(f"[{r}]" if r else plain for r, plain in parts) != item:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} cannot be read: brackets do not match")
        choices = [_choices(ranges, plain, text) for ranges, plain in parts]
        if sum(max(map(len, choice)) for choice in choices) > MAX_NAME:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} has a name of more than {MAX_NAME} characters")
        # Before anything is made of them: the product of a few short ranges is larger than any memory.
        if len(names) + math.prod(map(len, choices)) > MAX_HOSTS:
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} names more than {MAX_HOSTS} hosts")
        names.extend("".join(combination) for combination in product(*choices))
    return tuple(names)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]]


def _choices(ranges: str, plain: str, text: str) -> list[str]:
    if not ranges:
        return [plain]
    values: list[str] = []
    for piece in ranges.split(","):
        match = _RANGE.fullmatch(piece)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not 0 <= int(last) - int(first) < MAX_HOSTS - len(values):
            raise SlurmReplyError(f"host list {text[:_SHOWN]!r} cannot be read at [{ranges[:_SHOWN]}]")
        values.extend(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return values


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
