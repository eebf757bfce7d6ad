"""Colours that people with any colour vision can tell apart, on white and on black.

Hues of policies are those of Okabe and Ito, "Color Universal Design" (2008), without yellow and black, which one of the two
grounds would hide; a grey stands in. After seven policies the hues come again with another stroke.
"""

from __future__ import annotations

from slurm_soda.simulator.report.charts.gantt import GPU_COUNT_CLASSES

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6877")
DARK = ("#4aa8e0", "#f0803c", "#2fc49a", "#e39cc4", "#f2b632", "#8fd0f7", "#a9b5c2")
STROKES = ((), (6.0, 3.0), (1.5, 2.5))
"""On and off lengths of a line; none: solid."""

GPU_LIGHT = dict(zip(GPU_COUNT_CLASSES, ("#b5dcf0", "#74b3e0", "#3f86c6", "#215a9c", "#12305f"), strict=True))
GPU_DARK = dict(zip(GPU_COUNT_CLASSES, ("#2a4f70", "#3a76a8", "#5a9fd6", "#8fc6f2", "#d3ebfd"), strict=True))
"""Sizes of jobs: one hue, the larger the further from the ground."""
INK_FROM_GPUS = 4
"""Words on a bar of so many GPUs or more have the ground's colour, on a smaller one the ink's."""

MARK_LIGHT, MARK_DARK = "#d4351c", "#ff6b57"
"""Preemptions."""


def line_width(number: int, lines: int) -> float:
    """Width of a policy's line: later ones are thinner, so that a line that lies under another one is seen."""
    widest = min(2.2 + 0.2 * lines, 4.0)
    return widest - (widest - 1.8) * number / max(lines - 1, 1)


def hue_index(number: int) -> int:
    """Index of a policy's hue."""
    return number % len(LIGHT)


def stroke_index(number: int) -> int:
    """Index of a policy's stroke."""
    return number // len(LIGHT) % len(STROKES)
