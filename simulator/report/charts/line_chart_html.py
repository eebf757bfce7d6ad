"""A line chart as HTML: lines are SVG and stretch with the page, words are not stretched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Tick = tuple[float, str]
"""Place from 0 (left, bottom) to 1, and what stands there."""

PERCENT_TICKS: tuple[Tick, ...] = tuple((part / 4, f"{25 * part} %") for part in range(5))
"""Ticks of an axis from nothing to everything."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart."""

    name: str
    style: str
    """CSS classes that give it a colour and a stroke."""
    points: Sequence[tuple[float, float]]
    """Places from (0, 0), left and bottom, to (1, 1)."""
    width: float = 2.5


def render_line_chart(lines: Sequence[ChartLine], x_ticks: Sequence[Tick], y_ticks: Sequence[Tick], label: str) -> str:
    """The chart; ``label`` is what a screen reader says of it."""
    grid = "".join(f'<line x1="0" x2="100" y1="{_up(y)}" y2="{_up(y)}"/>' for y, _ in y_ticks)
    grid += "".join(f'<line x1="{_across(x)}" x2="{_across(x)}" y1="0" y2="100"/>' for x, _ in x_ticks)
    marks = "".join(f'<span class="y" style="top:{_up(y)}%">{escape(text)}</span>' for y, text in y_ticks)
    paths = "".join(
        f'<path class="{line.style}" stroke-width="{line.width:.1f}" d="{svg_path(line.points)}">'
        f"<title>{escape(line.name)}</title></path>"
        for line in lines
    )
    return (
        f'<div class="plot"><div style="position:relative">{marks}<svg viewBox="0 0 100 100" preserveAspectRatio="none"'
        f' role="img" aria-label="{escape(label, quote=True)}">{grid}{paths}</svg></div>{render_axis(x_ticks)}</div>'
    )


def render_axis(ticks: Sequence[Tick]) -> str:
    """Words under a chart or a track."""
    marks = (f'<em{_edge(place)} style="left:{100 * place:.2f}%">{escape(text)}</em>' for place, text in ticks)
    return f'<div class="axis">{"".join(marks)}</div>'


def _edge(place: float) -> str:
    """Words at an end of the axis stay within it."""
    return ' class="first"' if place < 0.02 else ' class="last"' if place > 0.98 else ""


def svg_path(points: Sequence[tuple[float, float]]) -> str:
    """Points as an SVG path in a box of 100 by 100."""
    return "M" + " L".join(f"{_across(x)},{_up(y)}" for x, y in points)


def _across(place: float) -> str:
    return f"{100 * place:.2f}"


def _up(place: float) -> str:
    return f"{100 * (1 - place):.2f}"
