"""Outcomes written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.outcome import AllocationSegments, SimulationOutcome
from slurm_soda.simulator.workload import Workload

Run = tuple[float, float] | tuple[float, float, list[tuple[int, int]]]
"""Start, end and, where nodes count, ``(node, gpus)`` pairs."""


def outcome(
    jobs: Sequence[dict[str, Any]], cluster: str = "1x2", policy: str = "fifo", cpu_s: float = 0.5
) -> SimulationOutcome:
    """An outcome of jobs by submission: columns of a workload, and ``runs``; the last one ends the job unless ``ended``
    is false.
    """
    jobs = sorted(jobs, key=lambda job: float(job["submit_s"]))
    rows = [{key: value for key, value in job.items() if key not in ("runs", "ended", "failures")} for job in jobs]
    rows = [{"run_s": 1.0, **row} for row in rows]
    workload = Workload.build("by hand", rows)
    runs: list[list[Run]] = [job["runs"] for job in jobs]
    ended = [bool(job.get("ended", True) and job["runs"]) for job in jobs]
    failures = [int(job.get("failures", 0)) for job in jobs]
    return SimulationOutcome(
        policy=policy,
        workload=workload,
        cluster=parse_cluster(cluster),
        first_start_s=np.array([job[0][0] if job else np.nan for job in runs]),
        end_s=np.array([job[-1][1] if done else np.nan for job, done in zip(runs, ended, strict=True)]),
        held_s=np.array([sum(run[1] - run[0] for run in job) for job in runs], dtype=np.float64),
        preemptions=np.array([max(0, len(job) - 1) - lost for job, lost in zip(runs, failures, strict=True)]),
        failures=np.array(failures),
        segments=segments(workload, runs),
        decisions=7,
        cpu_s=cpu_s,
    )


def segments(workload: Workload, runs: Sequence[Sequence[Run]]) -> AllocationSegments:
    """All runs by their ends."""
    flat = sorted(
        ((run[1], run[0], job, run) for job, of_job in enumerate(runs) for run in of_job), key=lambda e: e[:3]
    )
    places = [run[2] if len(run) > 2 else [] for *_, run in flat]
    jobs = np.array([job for _, _, job, _ in flat], dtype=np.int64)
    pieces = [piece for place in places for piece in place]
    return AllocationSegments(
        job=jobs,
        start_s=np.array([start for _, start, *_ in flat], dtype=np.float64),
        end_s=np.array([end for end, *_ in flat], dtype=np.float64),
        gpus=workload.gpus[jobs],
        cpus=workload.cpus[jobs],
        node_start=np.cumsum([0, *map(len, places)]),
        node=np.array([node for node, _ in pieces], dtype=np.int64),
        node_gpus=np.array([gpus for _, gpus in pieces], dtype=np.int64),
    )


# Two GPUs. JCTs 10, 20, 40; waits 0, 10, 20; GPU seconds 10, 2 * 10, 20 of 2 * 50.
WORKED = (
    {"submit_s": 0.0, "gpus": 1, "runs": [(0.0, 10.0)]},
    {"submit_s": 10.0, "gpus": 2, "runs": [(20.0, 30.0)]},
    {"submit_s": 10.0, "gpus": 1, "runs": [(30.0, 40.0), (40.0, 50.0)]},
)
