"""Owners take turns, so that where only some are served none is left out for another's many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TypeVar

Item = TypeVar("Item")


def take_turns(items: Iterable[Item], owner_of: Callable[[Item], str]) -> list[Item]:
    """The first item of each owner, by their names, then the second of each, and so on."""
    by_owner: dict[str, list[Item]] = {}
    for item in items:
        by_owner.setdefault(owner_of(item), []).append(item)
    turns = zip_longest(*([(item,) for item in by_owner[owner]] for owner in sorted(by_owner)), fillvalue=())
    return [item for turn in turns for one in turn for item in one]
