"""When a new job should start beside running ones: Theorem 1 of SJF-BSBF (Section V-A), and beyond pairs.

The model is the paper's: a job that shares is slowed by a constant factor xi, on however many of its GPUs (its workers
wait for each other), and at most two jobs are on a GPU, so partners of one new job do not meet each other there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot import FloatColumn


class OverlappedJob(NamedTuple):
    """A running job, and what it and the new job do to each other while both run. All times from now."""

    work_s: float
    """Time that the running job still needs alone: t_B x i_B."""
    xi: float
    """Slowdown of the running job; below 1 is measurement noise and counts as 1."""
    new_xi: float
    """Slowdown of the new job beside this one; beside several, the worst of theirs holds it back."""


@dataclass(frozen=True, slots=True)
class CompletionSchedule:
    """When the new job starts, and who ends when."""

    start_s: float
    new_end_s: float
    ends_s: tuple[float, ...]
    """Of the running jobs, in their order."""
    lost_s: float = 0.0
    """Work of the new job that is done twice, as its seat ends with its host."""

    @property
    def mean_s(self) -> float:
        """Mean completion time from now of all jobs concerned, which is to be least."""
        return (self.new_end_s + math.fsum(self.ends_s)) / (1 + len(self.ends_s))


def schedule_at(work_s: float, running: Sequence[OverlappedJob], start_s: float) -> CompletionSchedule:
    """What happens if a new job with ``work_s`` of work alone starts ``start_s`` from now.

    Equations 18, 19, 22 and 23 for one running job. Complexity: O(k log k) for k running jobs.

    Raises:
        PolicyError: work or start is negative or not finite, or a slowdown is not a finite number.
    """
    _check(work_s, running, start_s)
    # How long each would run beside the new job, were that to last; shortest first.
    beside = sorted(
        (max(one.xi, 1.0) * (one.work_s - start_s), max(one.new_xi, 1.0)) for one in running if one.work_s > start_s
    )
    slowest = 1.0
    paces = []  # the new job's slowdown up to each of these ends
    for _, new_xi in reversed(beside):
        slowest = max(slowest, new_xi)
        paces.append(slowest)
    left_s, passed_s = work_s, 0.0
    for (until_s, _), pace in zip(beside, reversed(paces), strict=True):
        if left_s <= (until_s - passed_s) / pace:
            passed_s += left_s * pace
            left_s = 0.0
            break
        left_s -= (until_s - passed_s) / pace
        passed_s = until_s
    lasted_s = passed_s + left_s
    return CompletionSchedule(start_s, start_s + lasted_s, tuple(_end(one, start_s, lasted_s) for one in running))


def _end(one: OverlappedJob, start_s: float, lasted_s: float) -> float:
    if one.work_s <= start_s:
        return one.work_s
    xi = max(one.xi, 1.0)
    alone_s = one.work_s - start_s
    if xi * alone_s <= lasted_s:
        return start_s + xi * alone_s
    return start_s + lasted_s + alone_s - lasted_s / xi


def schedule_together(work_s: float, running: Sequence[OverlappedJob]) -> CompletionSchedule:
    """The new job starts now."""
    return schedule_at(work_s, running, 0.0)


def schedule_sequentially(work_s: float, running: Sequence[OverlappedJob]) -> CompletionSchedule:
    """The new job starts when the last of the running ones has ended."""
    return schedule_at(work_s, running, max((one.work_s for one in running), default=0.0))


def find_best_schedule(work_s: float, running: Sequence[OverlappedJob]) -> CompletionSchedule:
    """The schedule of least mean completion time, over all times to start; of equals the latest.

    Beside one running job it is one of the two of Theorem 1. Beside several it may also be best to start when one of
    them has ended, or so that two of them end at once: between such times the mean is concave in the start (every end is
    a minimum of linear functions), so no other start can be better.

    Complexity: O(k^3 log k) for k running jobs, as there are k (k + 1) / 2 + 1 such times.
    """
    starts = {0.0} | {one.work_s for one in running}
    last_s = max(starts)
    paces = [(max(one.xi, 1.0), one.work_s) for one in running]
    for number, (xi, end_s) in enumerate(paces):
        for other_xi, other_s in paces[:number]:
            if xi != other_xi:
                meet_s = (xi * end_s - other_xi * other_s) / (xi - other_xi)
                if 0 < meet_s < last_s:
                    starts.add(meet_s)
    return min(
        (schedule_at(work_s, running, start) for start in sorted(starts, reverse=True)), key=lambda one: one.mean_s
    )


def mean_pair_completions_s(
    new_work_s: FloatColumn, running_work_s: FloatColumn, new_xi: FloatColumn, running_xi: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Mean completion times of pairs, (together, one after the other), for whole tables at once.

    The arguments broadcast against each other. A pair gains by sharing where the first is less than the second.

    Complexity: O(pairs); some 0.2 s for 5 000 new by 2 000 running jobs.
    """
    slowed_new, slowed_running = np.maximum(new_xi, 1.0), np.maximum(running_xi, 1.0)
    new_s, running_s = slowed_new * new_work_s, slowed_running * running_work_s
    shorter = np.minimum(new_s, running_s)
    rest = np.where(new_s >= running_s, new_work_s - shorter / slowed_new, running_work_s - shorter / slowed_running)
    return shorter + rest / 2, running_work_s + new_work_s / 2


def _check(work_s: float, running: Sequence[OverlappedJob], start_s: float) -> None:
    for time_s in (work_s, start_s, *(one.work_s for one in running)):
        if not 0 <= time_s < math.inf:
            raise PolicyError(f"work and start of jobs must be 0 s or more and finite, not {time_s!r}")
    for xi in (factor for one in running for factor in (one.xi, one.new_xi)):
        if not 0 < xi < math.inf:
            raise PolicyError(f"a slowdown must be a positive, finite factor, not {xi!r}: 1 is no slowdown")
