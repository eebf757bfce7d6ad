"""Parts of a Markdown document: tables, numbers, sections."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.reproduce.simulation import Results

_SEED = re.compile(r"--seed (\d+)")

Value = float | str | None
"""A figure; or words in its place; or nothing."""


@dataclass(frozen=True, slots=True)
class SummaryClaim:
    """One line of the summary."""

    holds: bool | None
    """None: it is no yes or no."""
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """A section as it stands in the document, and what it contributes to the summary."""

    lines: list[str]
    claims: list[SummaryClaim] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Section:
    """A section before anything has run."""

    title: str
    commands: tuple[str, ...]
    write: Callable[[Results], Written]


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One comparison."""

    names: tuple[str, ...]
    """Cells that say what is compared."""
    paper: Value
    peer: Value
    ours: Value
    why: str
    commands: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Ours against the peer's simulator, or else the paper, as a part of it; NaN if there is neither."""
        known = self.peer if isinstance(self.peer, int | float) else self.paper
        if not isinstance(known, int | float) or not isinstance(self.ours, int | float) or not known:
            return math.nan
        return self.ours / known - 1


def comparison(titles: Sequence[str], rows: Sequence[ComparisonRow], digits: int = 1, unit: str = "") -> list[str]:
    """A table of rows, and below it the commands by the rows' numbers; ``digits`` after the point, then ``unit``."""

    def cell(value: Value) -> str:
        return number(value, digits, unit)

    head = ["", *titles, "paper", "peer's simulator", "ours", "difference", "why"]
    body = [
        [str(at), *row.names, cell(row.paper), cell(row.peer), cell(row.ours), percent(row.change), row.why]
        for at, row in enumerate(rows, 1)
    ]
    return [*table(head, body, text=(*range(1, 1 + len(titles)), len(head) - 1)), "", *commands_of(rows)]


def commands_of(rows: Sequence[ComparisonRow]) -> list[str]:
    """The commands of numbered rows, folded."""
    return commands([(line, str(at)) for at, row in enumerate(rows, 1) for line in row.commands])


def commands(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Commands, each with what it is for, folded; seeds of a command stand behind it, and all of what it serves."""
    uses: dict[str, list[str]] = {}
    seeds: dict[str, list[str]] = {}
    for line, use in lines:
        shape = _SEED.sub("--seed $SEED", line)
        for known, word in ((uses, use), (seeds, "".join(_SEED.findall(line)))):
            if word not in known.setdefault(shape, []):
                known[shape].append(word)
    listed = [_listed(shape, seeds[shape], use) for shape, use in uses.items()]
    return ["<details><summary>The commands</summary>", "", "```sh", *listed, "```", "", "</details>", ""]


def _listed(shape: str, seeds: Sequence[str], uses: Sequence[str]) -> str:
    if len(seeds) == 1:
        return f"{shape.replace('$SEED', seeds[0])}  # {', '.join(uses)}"
    return f"{shape}  # {', '.join(uses)}; seeds {', '.join(seeds)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = (0,)) -> list[str]:
    """A Markdown table; columns with the numbers ``text`` are words, the others stand right."""
    marks = ["---" if at in text else "--:" for at in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)]


def number(value: Value, digits: int = 1, unit: str = "") -> str:
    """A figure with commas between thousands; a dash for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return value if isinstance(value, str) else f"{value:,.{digits}f}{unit}"


def percent(part: float) -> str:
    """A signed part of the whole; differences that would be written as 0 are 0."""
    if math.isnan(part):
        return "–"
    text = f"{100 * part:+.1f} %"
    return "0 %" if text in ("+0.0 %", "-0.0 %") else text.replace("-", "−")


def anchor(title: str) -> str:
    """A heading's name in links, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def bullet(*sentences: str) -> list[str]:
    """Sentences as one entry of a list."""
    return [f"- {' '.join(sentences)}"]


def paragraph(*sentences: str) -> list[str]:
    """Sentences as one paragraph on one line, and an empty line."""
    return [" ".join(sentences), ""]
