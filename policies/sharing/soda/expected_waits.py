"""How long jobs would wait for GPUs of their own, if they started in order as others end.

This counts GPUs alone, without nodes, CPUs and memory, in a millisecond at 5 000 waiting jobs: each decision compares a
start beside a host with a wait of about so long. :mod:`~slurm_soda.policies.expected_starts.forward_pass` places jobs on
nodes, since people are told its starts as such, and takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn

DRAWS = 4
"""Of the run times, from their values in turn."""
MOST_JOBS = 256
"""Waiting jobs that are followed one by one; those behind wait in proportion."""


def expect_waits_s(
    free_gpus: int, left_s: FloatColumn, gpus: Sequence[int], work_s: FloatColumn, wanted: Sequence[int]
) -> FloatColumn:
    """Seconds until each waiting job would have its GPUs, wherever they are: means over a few draws of all run times.

    The first of many jobs ends long before the mean of any of them, so means in their place would make waits too long.

    Args:
        free_gpus: now.
        left_s: equally likely values of the time until each running job ends; shape (running, values or 1).
        gpus: of each running job.
        work_s: the same of the run times of the first waiting jobs, in the order in which they start.
        wanted: GPUs of each waiting job.

    Complexity: O(draws x (running + waiting) log running).
    """
    draws = DRAWS if max(left_s.shape[1], work_s.shape[1]) > 1 else 1
    found = [
        _waits_s(
            free_gpus,
            list(zip(draw_values(left_s, draw, 0), gpus, strict=True)),
            draw_values(work_s, draw, len(gpus)),
            wanted,
        )
        for draw in range(draws)
    ]
    return np.asarray(np.mean(found, axis=0))


def draw_values(values: FloatColumn, draw: int, first: int) -> list[float]:
    """One value of each row, such that all are as likely and neighbours differ."""
    rows, count = values.shape
    at = (draw * count // DRAWS + (np.arange(rows) + first) * 7 + 1) % count
    drawn: list[float] = values[np.arange(rows), at].tolist()
    return drawn


def _waits_s(
    free_gpus: int, running: list[tuple[float, int]], work_s: Sequence[float], wanted: Sequence[int]
) -> list[float]:
    ends = running
    heapify(ends)
    now_s, free = 0.0, free_gpus
    waits: list[float] = []
    for run_s, gpus in zip(work_s, wanted, strict=False):
        while free < gpus and ends:
            end_s, released = heappop(ends)
            now_s, free = max(now_s, end_s), free + released
        waits.append(now_s)
        free -= gpus
        heappush(ends, (now_s + run_s, gpus))
    last_s = waits[-1] if waits else 0.0
    waits += [last_s * (at + 1) / MOST_JOBS for at in range(len(waits), len(wanted))]
    return waits
