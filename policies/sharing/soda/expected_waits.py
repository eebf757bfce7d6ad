"""How long jobs would wait for GPUs of their own, if they started in order as others end.

This counts GPUs alone, without nodes, CPUs and memory, in a millisecond at 5 000 waiting jobs: each decision compares a
start beside a host with a wait of about so long. :mod:`~slurm_soda.policies.expected_starts.forward_pass` places jobs on
nodes, since people are told its starts as such, and takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

MOST_JOBS = 256
"""Waiting jobs that are followed one by one; those behind wait in proportion."""


def expect_waits_s(
    free_gpus: int, running: Sequence[tuple[float, int]], waiting: Sequence[tuple[float, int]]
) -> list[float]:
    """Seconds until each waiting job would have its GPUs, wherever they are.

    Args:
        free_gpus: now.
        running: seconds until each ends, and its GPUs.
        waiting: run time and GPUs of each, in the order in which they start.

    Complexity: O((running + waiting) log running).
    """
    ends = list(running)
    heapify(ends)
    now_s, free = 0.0, free_gpus
    waits: list[float] = []
    for run_s, gpus in waiting[:MOST_JOBS]:
        while free < gpus and ends:
            end_s, released = heappop(ends)
            now_s, free = max(now_s, end_s), free + released
        waits.append(now_s)
        free -= gpus
        heappush(ends, (now_s + run_s, gpus))
    last_s = waits[-1] if waits else 0.0
    waits += [last_s * (at + 1) / MOST_JOBS for at in range(len(waits), len(waiting))]
    return waits
