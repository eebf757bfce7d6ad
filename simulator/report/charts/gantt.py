"""Who held which GPU when: the Gantt chart of a small run, as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.outcome import AllocationSegments, SimulationOutcome

MOST_JOBS, MOST_LANES = 200, 160
"""What a person can still read."""

GPU_COUNT_CLASSES = (1, 2, 4, 8, 16)
"""Sizes of jobs that have a colour of their own."""
GPU_COUNT_LABELS = dict(zip(GPU_COUNT_CLASSES, ("1 GPU", "2 GPUs", "3 or 4", "5 to 8", "more"), strict=True))


@dataclass(frozen=True, slots=True)
class GanttBar:
    """One job on some neighbouring lanes."""

    label: str
    """The job's name in its trace."""
    gpus: int
    """Of the whole job."""
    lane: int
    """The first one."""
    lanes: int
    start_s: float
    end_s: float
    stopped: bool
    """The job left before it was done: preempted, or its node failed."""


@dataclass(frozen=True, slots=True)
class GanttChart:
    """A chart: one lane a GPU, or several where jobs shared. Times count from the first submission."""

    names: tuple[str, ...]
    """One a lane: ``n1``'s GPUs are ``n1:0``, ``n1:1``; where GPUs are only counted ``0``, ``1``."""
    first_of_node: tuple[int, ...]
    """Lanes at which a node begins; empty where GPUs are only counted."""
    bars: tuple[GanttBar, ...]
    span_s: float
    each: int = 1
    """Lanes of one GPU: the most jobs that any had at once."""


def gpu_count_class(gpus: int) -> int:
    """The smallest of :data:`GPU_COUNT_CLASSES` that holds so many GPUs; the largest one for still more."""
    return next((count for count in GPU_COUNT_CLASSES if gpus <= count), GPU_COUNT_CLASSES[-1])


def is_drawable(outcome: SimulationOutcome) -> bool:
    """Whether a chart of this run can be read."""
    return 0 < len(outcome.workload) <= MOST_JOBS and 0 < outcome.cluster.total_gpus <= MOST_LANES


def make_gantt_without_sharing(outcome: SimulationOutcome) -> GanttChart:
    """Give every stretch of time lanes: GPUs of the nodes it was on or, where nodes play no part, any GPUs.

    Which GPU of a node is not known: a job gets neighbouring free ones if there are any, the lowest first, else the
    lowest free ones. Jobs without GPUs have no lane.
    """
    parts = outcome.segments
    counted = len(parts.node) == 0
    sizes = [outcome.cluster.total_gpus] if counted else outcome.cluster.gpus.tolist()
    firsts = list(accumulate(sizes, initial=0))
    free_at_s = [-math.inf] * firsts[-1]
    zero_s = float(outcome.workload.submit_s.min())
    bars: list[GanttBar] = []
    # By start, and what took no time first: it leaves its lanes to the others.
    for at in np.lexsort((parts.job, parts.end_s > parts.start_s, parts.start_s)).tolist():
        job, start_s, end_s = int(parts.job[at]), float(parts.start_s[at]), float(parts.end_s[at])
        for node, count in _wanted(parts, at, counted=counted):
            chosen = _choose(free_at_s[firsts[node] : firsts[node + 1]], start_s, count)
            for lane, width in group_neighbouring_lanes([firsts[node] + lane for lane in chosen]):
                free_at_s[lane : lane + width] = [end_s] * width
                stopped = not end_s >= outcome.end_s[job]
                place = (outcome.workload.label[job], int(parts.gpus[at]), lane, width)
                bars.append(GanttBar(*place, start_s - zero_s, end_s - zero_s, stopped))
    span_s = float(parts.end_s.max()) - zero_s if len(parts.job) else 0.0
    return GanttChart(
        _names(outcome.cluster, counted=counted), () if counted else tuple(firsts[:-1]), tuple(bars), span_s
    )


def _wanted(parts: AllocationSegments, at: int, *, counted: bool) -> list[tuple[int, int]]:
    """Nodes of a stretch of time and the GPUs on each; where GPUs are only counted, all are on node 0."""
    if counted:
        wanted = [(0, int(parts.gpus[at]))]
    else:
        piece = slice(int(parts.node_start[at]), int(parts.node_start[at + 1]))
        wanted = list(zip(parts.node[piece].tolist(), parts.node_gpus[piece].tolist(), strict=True))
    return [(node, count) for node, count in wanted if count]


def _names(cluster: SimulatedCluster, *, counted: bool) -> tuple[str, ...]:
    if counted:
        return tuple(str(gpu) for gpu in range(cluster.total_gpus))
    sizes = zip(cluster.node_names, cluster.gpus.tolist(), strict=True)
    return tuple(f"{name}:{gpu}" for name, size in sizes for gpu in range(size))


def _choose(free_at_s: Sequence[float], start_s: float, count: int) -> list[int]:
    """Lanes for ``count`` GPUs: neighbours, else the lowest free ones, else those that become free first."""
    free = [lane for lane, until_s in enumerate(free_at_s) if until_s <= start_s]
    for at in range(len(free) - count + 1):
        if free[at + count - 1] - free[at] == count - 1:
            return free[at : at + count]
    if len(free) >= count:
        return free[:count]
    return sorted(sorted(range(len(free_at_s)), key=lambda lane: (free_at_s[lane], lane))[:count])


def group_neighbouring_lanes(chosen: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring lanes as ``(first, number)``."""
    found: list[tuple[int, int]] = []
    for lane in chosen:
        if found and sum(found[-1]) == lane:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((lane, 1))
    return found
