"""The Gantt chart of a run in which jobs could share GPUs: as many lanes a GPU as it had jobs at once."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.charts.gantt import (
    MOST_LANES,
    GanttBar,
    GanttChart,
    group_neighbouring_lanes,
    is_drawable,
    make_gantt_without_sharing,
)
from slurm_soda.simulator.sharing.sharing_record import SharingRecord


def make_gantt(outcome: SimulationOutcome) -> GanttChart | None:
    """The Gantt chart of any run; None where it could not be read."""
    if not is_drawable(outcome):
        return None
    depth = 1 if outcome.sharing is None else int(outcome.sharing.stretches.jobs.max(initial=1))
    if outcome.sharing is None or depth == 1:
        return make_gantt_without_sharing(outcome)
    return _shared(outcome, outcome.sharing, depth) if outcome.cluster.total_gpus * depth <= MOST_LANES else None


def _shared(outcome: SimulationOutcome, record: SharingRecord, depth: int) -> GanttChart:
    """Give every job a lane of each GPU that it really held, the first that is free when it starts."""
    parts, cluster = outcome.segments, outcome.cluster
    zero_s = float(outcome.workload.submit_s.min())
    free_at_s = [-math.inf] * (cluster.total_gpus * depth)
    bars: list[GanttBar] = []
    # By start, and what took no time first: it leaves its lanes to the others.
    for at in np.lexsort((parts.job, parts.end_s > parts.start_s, parts.start_s)).tolist():
        job, start_s, end_s = int(parts.job[at]), float(parts.start_s[at]), float(parts.end_s[at])
        devices = record.device[int(record.segment_start[at]) : int(record.segment_start[at + 1])].tolist()
        chosen = [_first_free(free_at_s, device * depth, depth, start_s) for device in devices]
        for lane, width in group_neighbouring_lanes(sorted(chosen)):
            free_at_s[lane : lane + width] = [end_s] * width
            stopped = not end_s >= outcome.end_s[job]
            place = (outcome.workload.label[job], int(parts.gpus[at]), lane, width)
            bars.append(GanttBar(*place, start_s - zero_s, end_s - zero_s, stopped))
    span_s = float(parts.end_s.max()) - zero_s if len(parts.job) else 0.0
    sizes = cluster.gpus.tolist()
    names = [
        f"{name}:{gpu}"
        for name, size in zip(cluster.node_names, sizes, strict=True)
        for gpu in range(size)
        for _ in range(depth)
    ]
    firsts = tuple(depth * first for first in accumulate(sizes[:-1], initial=0))
    return GanttChart(tuple(names), firsts, tuple(bars), span_s, depth)


def _first_free(free_at_s: list[float], first: int, depth: int, start_s: float) -> int:
    """A GPU has no more jobs at once than lanes, so one is free; of those that were left this instant the earliest."""
    lanes = range(first, first + depth)
    free = [lane for lane in lanes if free_at_s[lane] <= start_s]
    return free[0] if free else min(lanes, key=lambda lane: free_at_s[lane])
