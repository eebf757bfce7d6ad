"""The cluster in figures, as one cycle saw it: by partition and by node, never by job or user."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.daemon.metrics.label_text import label_text
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, JobTable
from slurm_soda.slurm_ext.client import SlurmNode
from slurm_soda.wire.core_tuning import GuestGpus


@dataclass(slots=True)
class QueueCounts:
    """Jobs of the cluster, or of one partition."""

    pending: int = 0
    eligible: int = 0
    running: int = 0
    gpus_pending: int = 0
    """Of eligible jobs."""
    gpus_alloc: int = 0

    def add(self, other: QueueCounts) -> None:
        """Count these too."""
        self.pending += other.pending
        self.eligible += other.eligible
        self.running += other.running
        self.gpus_pending += other.gpus_pending
        self.gpus_alloc += other.gpus_alloc


@dataclass(slots=True)
class GpuCounts:
    """GPUs of the cluster, of one partition or of one node."""

    gpus: int = 0
    alloc: int = 0
    idle: int = 0
    shared: int = 0
    usable: bool = True
    """Of a node."""

    def add(self, other: GpuCounts) -> None:
        """Count these too."""
        self.gpus += other.gpus
        self.alloc += other.alloc
        self.idle += other.idle
        self.shared += other.shared


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """All of it; names are fit for labels."""

    jobs: QueueCounts = field(default_factory=QueueCounts)
    jobs_in: Mapping[str, QueueCounts] = field(default_factory=dict)
    """By partition."""
    gpus: GpuCounts = field(default_factory=GpuCounts)
    gpus_in: Mapping[str, GpuCounts] = field(default_factory=dict)
    """By partition."""
    gpus_on: Mapping[str, GpuCounts] = field(default_factory=dict)
    """By node, with all of its GPUs."""
    guests: int = 0
    scope_jobs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By ``in`` or ``out`` of ``[scope]``, and ``pending`` or ``running``."""


def cluster_figures(
    snapshot: ClusterSnapshot, nodes: Iterable[SlurmNode], guests: Mapping[str, Iterable[GuestGpus]]
) -> ClusterFigures:
    """Count what one cycle saw.

    Args:
        snapshot: of its jobs; a list of partitions is a partition of its own there, and counts in each of them here.
        nodes: as Slurm shows them.
        guests: jobs that run as guests, with their GPUs, by node.
    """
    total, jobs_in = QueueCounts(), defaultdict[str, QueueCounts](QueueCounts)
    for names, figures in _jobs_by_partition(snapshot.jobs, snapshot.partitions):
        total.add(figures)
        for name in names:
            jobs_in[name].add(figures)
    gpus, gpus_in, gpus_on = GpuCounts(), defaultdict[str, GpuCounts](GpuCounts), dict[str, GpuCounts]()
    for node in nodes:
        shared = len({index for guest in guests.get(node.name, ()) for index in guest.gpus})
        idle = max(node.gpus - node.gpus_allocated, 0) if node.usable else 0
        own = GpuCounts(node.gpus, node.gpus_allocated, idle, shared, node.usable)
        gpus_on[label_text(node.name)] = own
        gpus.add(own)
        for name in {label_text(partition) for partition in node.partitions}:
            gpus_in[name].add(own)
    for name in gpus_in:
        jobs_in[name].add(QueueCounts())  # a partition without jobs has zeros
    ids = {guest.job_id for on_node in guests.values() for guest in on_node}
    scoped = _jobs_by_scope(snapshot.jobs)
    return ClusterFigures(total, dict(jobs_in), gpus, dict(gpus_in), gpus_on, len(ids), scoped)


def _waits(jobs: JobTable) -> BoolColumn:
    waits: BoolColumn = (jobs.state == JobState.PENDING) | (jobs.state == JobState.BLOCKED)
    return waits


def _jobs_by_scope(jobs: JobTable) -> dict[tuple[str, str], int]:
    """How many wait and run, in and out of the scope; without one all jobs are in it, and the column is empty."""
    out = jobs.left_out > 0 if len(jobs.left_out) else np.zeros(len(jobs), dtype=np.bool_)
    states = {"pending": _waits(jobs), "running": jobs.state == JobState.RUNNING}
    return {
        (scope, state): int(np.count_nonzero(rows & member))
        for scope, member in (("in", ~out), ("out", out))
        for state, rows in states.items()
    }


def _jobs_by_partition(jobs: JobTable, partitions: tuple[str, ...]) -> Iterable[tuple[set[str], QueueCounts]]:
    """Figures of each partition or list of partitions that some job names, with the names in it."""
    waits = _waits(jobs)
    eligible, running = jobs.state == JobState.PENDING, jobs.state == JobState.RUNNING
    holds = running | (jobs.state == JobState.SUSPENDED) | (jobs.state == JobState.COMPLETING)

    def count(rows: BoolColumn, weights: IntColumn | None = None) -> list[int]:
        weighed = None if weights is None else weights[rows]
        counted = np.bincount(jobs.partition[rows], weights=weighed, minlength=len(partitions))
        return [int(value) for value in counted.tolist()]

    columns = count(waits), count(eligible), count(running), count(eligible, jobs.gpus), count(holds, jobs.gpus)
    for name, *figures in zip(partitions, *columns, strict=True):
        yield {label_text(part) for part in name.split(",") if part}, QueueCounts(*figures)


@dataclass(slots=True)
class StartedWaits:
    """Finds jobs that started since the cycle before, with how long they had waited."""

    _runs: frozenset[tuple[int, float]] | None = None
    """Job id and start of each run at the last look; ``None``: there was none, so nobody can tell who is new."""

    def take(self, snapshot: ClusterSnapshot) -> list[tuple[str, float]]:
        """Partition and wait in seconds of each; of a list of partitions Slurm says in which one a job runs."""
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.state == JobState.RUNNING)
        runs = list(zip(jobs.job_id[rows].tolist(), jobs.start_s[rows].tolist(), strict=True))
        before, self._runs = self._runs, frozenset(runs)
        if before is None:
            return []
        fresh = [row for row, run in zip(rows.tolist(), runs, strict=True) if run not in before]
        found = [(snapshot.partitions[int(jobs.partition[row])], float(jobs.waited_s[row])) for row in fresh]
        return [(label_text(name.split(",")[0]), max(waited_s, 0.0)) for name, waited_s in found if waited_s < math.inf]
