"""A site as its accounting shows it: its jobs, its cluster, what it observed, and how fast it hands nodes over."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.sacct.dump import SacctRun
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.workload import Workload

_REQUEUED = ("REQUEUED", "PREEMPTED")
_LONGEST_LAG_S = 60.0
"""Slurm looks for something to start at least so often (its default sched_interval): a longer wait has another reason."""


@dataclass(frozen=True, slots=True)
class ObservedSite:
    """What is known of a site. Columns are in the workload's row order."""

    workload: Workload
    cluster: SimulatedCluster
    start_s: FloatColumn
    """Observed first start of each job."""
    end_s: FloatColumn
    """Observed last end."""
    start_delay_s: float
    """How long it takes from free nodes to the start of a job."""
    requeues: int = 0
    """Runs that ended in a requeue or a preemption."""


@dataclass(frozen=True, slots=True)
class ObservedFigures:
    """The site's own figures; of the same meaning as in :class:`~slurm_soda.simulator.report.summary.RunSummary`."""

    jobs: int
    avg_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    avg_queue_s: float
    makespan_s: float
    gpu_util_ratio: float


def make_observed_site(trace: JobTrace, runs: Sequence[SacctRun], cluster: SimulatedCluster) -> ObservedSite:
    """A site.

    Raises:
        SimulatorError: the trace does not say when its jobs started and ended.
    """
    if trace.observed_start_s is None or trace.observed_end_s is None:
        raise SimulatorError(f"{trace.workload.name} does not say when its jobs started and ended")
    requeues = sum(run.state in _REQUEUED for run in runs)
    return ObservedSite(
        trace.workload, cluster, trace.observed_start_s, trace.observed_end_s, measure_start_delay_s(runs), requeues
    )


def latest_jobs(site: ObservedSite, jobs: int) -> ObservedSite:
    """The site from the submission of its ``jobs`` last jobs on, with the jobs that waited or ran at that time."""
    if jobs >= len(site.workload):
        return site
    kept = np.flatnonzero(site.end_s > site.workload.submit_s[-jobs])
    return replace(site, workload=site.workload.select(kept), start_s=site.start_s[kept], end_s=site.end_s[kept])


def summarise_observed(site: ObservedSite) -> ObservedFigures:
    """What became of the jobs at the site itself.

    Raises:
        SimulatorError: all ended in the second in which they were submitted.
    """
    workload = site.workload
    jct_s = site.end_s - workload.submit_s
    if not jct_s.any():
        raise SimulatorError(
            f"every job of {workload.name} ended in the second in which it was submitted, so there is nothing to compare"
            " with; ask sacct for a longer time with --starttime"
        )
    makespan_s = float(site.end_s.max() - workload.submit_s.min())
    capacity = site.cluster.total_gpus * makespan_s
    return ObservedFigures(
        jobs=len(workload),
        avg_jct_s=float(jct_s.mean()),
        p50_jct_s=float(np.percentile(jct_s, 50)),
        p95_jct_s=float(np.percentile(jct_s, 95)),
        avg_queue_s=float(np.maximum(jct_s - workload.run_s, 0.0).mean()),
        makespan_s=makespan_s,
        gpu_util_ratio=float((workload.gpus * workload.run_s).sum()) / capacity if capacity else float("nan"),
    )


def measure_start_delay_s(runs: Sequence[SacctRun]) -> float:
    """Mean time from the last thing that a start waited for, which can be seen, to the start itself.

    That is the latest of the run's own eligibility and the ends of earlier runs on its nodes. Starts that waited for
    something else (a limit, a reservation, other users' turns) are not counted: those later than twice the median and a
    second, or than a minute. O(n log n) in runs, times nodes a run.
    """
    ends = _ends_by_node(runs)
    lags = []
    for run in runs:
        if run.nodes:
            due_s = max((_latest(ends[name], run.start_s) for name in run.nodes), default=run.ready_s)
            lags.append(max(run.start_s - max(due_s, run.ready_s), 0.0))
    if not lags:
        return 0.0
    column = np.array(lags)
    counted = column[column <= min(2.0 * float(np.median(column)) + 1.0, _LONGEST_LAG_S)]
    return float(counted.mean()) if len(counted) else 0.0


def _ends_by_node(runs: Sequence[SacctRun]) -> Mapping[str, list[float]]:
    ends: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.end_s > run.start_s:
            for name in run.nodes:
                ends[name].append(run.end_s)
    for times in ends.values():
        times.sort()
    return ends


def _latest(times: Sequence[float], limit_s: float) -> float:
    """The largest of sorted times that is not after a limit."""
    at = bisect_right(times, limit_s)
    return times[at - 1] if at else -np.inf
