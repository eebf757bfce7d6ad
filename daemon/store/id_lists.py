"""Long lists of ids and names in statements: databases bound the number of a statement's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

MAX_PARAMETERS = 500
"""Of one list."""


def split_list(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts that are short enough for one statement, in order; none of an empty list."""
    return (items[at : at + MAX_PARAMETERS] for at in range(0, len(items), MAX_PARAMETERS))
