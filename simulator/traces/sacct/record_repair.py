"""A record with too many cells: which of them belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby


def repair_record(
    cells: Sequence[str], free: Sequence[bool], forms: Sequence[re.Pattern[str] | None], delimiter: str
) -> list[str] | None:
    """The cells with those that are too much joined into free text; ``None`` if that is not clear.

    Between free columns lie groups of columns whose forms are known. Each group sits some places further right than it
    should, never less far than the group before it; it is clear where if only one chain of shifts leaves every cell in
    its column's form, or if all chains give the columns with a form the same words. O(extra cells x columns).

    Args:
        cells: more than there are columns.
        free: for each column whether it holds what a person wrote.
        forms: of each column; ``None`` where any text will do.
        delimiter: what stood between the cells.
    """
    extra = len(cells) - len(free)
    groups = [[at for at, _ in group] for _, group in groupby(enumerate(free), key=lambda pair: pair[1])]
    fixed = [group for group in groups if not free[group[0]]]
    if len(fixed) == len(groups):
        return None
    shifts = _chains([_possible(cells, forms, group, extra, len(free)) for group in fixed])
    if not all(_alike(cells, forms, group, found) for group, found in zip(fixed, shifts, strict=True)):
        return None
    # The first chain: every group as far left as it may be.
    chosen = {group[0]: found[0] for group, found in zip(fixed, shifts, strict=True)}
    whole: list[str] = []
    for at, group in enumerate(groups):
        left = chosen[groups[at - 1][0]] if at and free[group[0]] else 0
        right = chosen[groups[at + 1][0]] if at + 1 < len(groups) and free[group[0]] else extra
        if free[group[0]]:
            whole += _texts(cells[group[0] + left : group[-1] + 1 + right], len(group), delimiter)
        else:
            whole += [cells[column + chosen[group[0]]] for column in group]
    return whole


def _possible(
    cells: Sequence[str], forms: Sequence[re.Pattern[str] | None], group: Sequence[int], extra: int, columns: int
) -> list[int]:
    """Shifts at which every cell of a group of columns has its form; a group at an end of the record has but one."""
    lowest = extra if group[-1] == columns - 1 else 0
    highest = 0 if group[0] == 0 else extra
    known = [(at, form) for at in group if (form := forms[at]) is not None]
    return [
        shift
        for shift in range(lowest, highest + 1)
        if all(form.fullmatch(cells[at + shift]) is not None for at, form in known)
    ]


def _chains(possible: list[list[int]]) -> list[list[int]]:
    """Of each group the shifts that lie on some chain in which no group is shifted less than the one before it."""
    low = 0
    for at, found in enumerate(possible):
        possible[at] = [shift for shift in found if shift >= low]
        low = min(possible[at], default=low)
    high = possible[-1][-1] if possible and possible[-1] else 0
    for at in range(len(possible) - 1, -1, -1):
        possible[at] = [shift for shift in possible[at] if shift <= high]
        high = max(possible[at], default=high)
    return possible


def _alike(
    cells: Sequence[str], forms: Sequence[re.Pattern[str] | None], group: Sequence[int], shifts: Sequence[int]
) -> bool:
    """Whether there is a shift, and all of them give the columns with a form the same words."""
    known = [at for at in group if forms[at] is not None]
    return bool(shifts) and len({tuple(cells[at + shift] for at in known) for shift in shifts}) == 1


def _texts(cells: Sequence[str], columns: int, delimiter: str) -> list[str]:
    """Texts of neighbouring free columns; the first one takes what is too much."""
    spare = len(cells) - columns
    return [delimiter.join(cells[: spare + 1]), *cells[spare + 1 :]]
