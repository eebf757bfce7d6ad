"""What one preemption cost, by the progress that the job told before and after it."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_S = 30 * 86_400.0
"""A preemption that cost more says something else: a clock that was set, or a job that was held for weeks."""


class StoppedRun(NamedTuple):
    """A run that was preempted, as far as it told its progress; Unix seconds."""

    start_s: float
    end_s: float
    last_s: float
    """When it last told of progress."""
    iterations: float
    """Done by then, over all runs."""


class NextRun(NamedTuple):
    """The run that went on from there."""

    start_s: float
    began_s: float
    """When it first told of progress."""
    iterations: float
    """Done by then, over all runs."""


class PreemptionCost(NamedTuple):
    """What a preemption cost the job, in seconds on each of its GPUs."""

    overhead_s: float
    """Without progress: from the last progress to the end of the run, and from the next start to the first progress."""
    lost_s: float
    """Work that was done again; at most what the stopped run can have done since its start."""


def measure_preemption(stopped: StoppedRun, after: NextRun, iteration_s: float) -> PreemptionCost | None:
    """What a preemption cost; ``None`` where the times contradict each other.

    What the stopped run did after it last told of it, and saved, is work that the next run has beyond what was told: it
    counts against the time that seemed to be without progress.

    Args:
        stopped: the preempted run.
        after: the next one.
        iteration_s: time of an iteration of the job alone.
    """
    stop_s, load_s = stopped.end_s - stopped.last_s, after.began_s - after.start_s
    behind_s = (stopped.iterations - after.iterations) * iteration_s
    overhead_s = max(stop_s, 0.0) + load_s + min(behind_s, 0.0)
    lost_s = min(max(behind_s, 0.0), stopped.end_s - stopped.start_s)
    good = iteration_s > 0 and load_s >= 0 and lost_s >= 0 and stopped.end_s <= after.start_s
    if not (good and math.isfinite(overhead_s + lost_s) and overhead_s + lost_s <= MOST_S):
        return None
    return PreemptionCost(max(overhead_s, 0.0), lost_s)
