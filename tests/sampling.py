"""Samples of long series of cases: which ones, and how many examples of a property."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")

WHOLE = 50
"""Examples of a property with ``--thorough``, where it does not say how many it needs."""
FEWEST = 5


def examples(whole: int) -> int:
    """How many examples of a property to draw that has ``whole`` of them with ``--thorough``."""
    most = settings.default.max_examples
    return max(FEWEST, whole * most // WHOLE)


def thorough() -> bool:
    """Whether nothing is left out (``--thorough``)."""
    return settings.default.max_examples >= WHOLE


def some(cases: Sequence[Case], of_them: int, *, seed: str = "") -> list[Case]:
    """``of_them`` cases, spread over all, or all of them with ``--thorough``."""
    if thorough():
        return list(cases)
    return [cases[at] for at in spread(len(cases), of_them, seed=seed)]


def spread(count: int, of_them: int, *, seed: str) -> list[int]:
    """One index from each of ``of_them`` equal parts of ``range(count)``, the same ones for the same seed."""
    if count <= of_them:
        return list(range(count))
    random = Random(seed)
    bounds = [count * part // of_them for part in range(of_them + 1)]
    return [random.randrange(first, end) for first, end in pairwise(bounds)]
