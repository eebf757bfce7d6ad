"""A site at work: what its Slurm would add to a snapshot, and what its limits keep from starting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.bands.bands import OFF, PriorityParts, assign_bands
from slurm_soda.policies.session.ranking import JobStart
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState, JobTable
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.site.slurm_priority import SlurmPriority
from slurm_soda.simulator.workload import Workload


class SiteState:
    """Priorities, bands and users' limits of one run; whoever runs it reports starts and stops."""

    def __init__(self, site: SiteDescription, workload: Workload, cluster: SimulatedCluster) -> None:
        self._bands, self._rules_starts = site.bands, site.rules_starts
        self._parts: PriorityParts | None = None
        self._priority = SlurmPriority(site, workload, cluster)
        self._gpus: list[int] = workload.gpus.tolist()
        self._limits = _GpuLimits(site, workload) if site.limits_users else None
        self.tiers = {name: site.partition_of(name).tier for name in cluster.partitions}

    def start(self, row: int, now_s: float) -> None:
        """A job starts."""
        self._priority.start(row, now_s)
        if self._limits is not None:
            self._limits.hold(row, self._gpus[row])

    def stop(self, row: int, start_s: float, now_s: float) -> None:
        """A job stops that started then."""
        self._priority.stop(row, start_s, now_s)
        if self._limits is not None:
            self._limits.hold(row, -self._gpus[row])

    def priority(self, rows: IntColumn, waits: BoolColumn, since_s: FloatColumn, now_s: float) -> IntColumn:
        """Slurm's priority of these jobs of the workload, of whom some wait, and since then."""
        self._parts = self._priority.compute(rows, waits, since_s, now_s)
        return self._priority.priority(rows)

    def complete(self, jobs: JobTable, rows: IntColumn) -> JobTable:
        """The jobs with their bands; one that its user's limit keeps from starting is blocked, as in Slurm.

        Args:
            jobs: of the snapshot, with the priorities that were computed last.
            rows: theirs in the workload.
        """
        if not self._rules_starts:
            return jobs
        assert self._parts is not None
        waits, state = jobs.state == JobState.PENDING, jobs.state
        if self._limits is not None and waits.any():
            state = np.where(waits & self._limits.exceeded_by(rows), np.int8(JobState.BLOCKED), state)
        return jobs.with_columns(band=assign_bands(self._parts, self._bands, ~waits), state=state)

    def within_limits(self, starts: Sequence[JobStart]) -> list[JobStart]:
        """Those of these starts that users' limits allow, the first ones first, as Slurm would start no others."""
        return list(starts) if self._limits is None else self._limits.allowed(starts)

    def next_change_s(self, now_s: float) -> float:
        """When the bands of waiting jobs may next change; infinite for never."""
        return math.inf if self._bands == OFF else self._priority.next_period_s(now_s)


class _GpuLimits:
    """GPUs that the jobs of each user and QOS hold, and may hold (MaxTRESPerUser=gres/gpu)."""

    def __init__(self, site: SiteDescription, workload: Workload) -> None:
        names = (*workload.qos_names, "")
        most = np.array([site.qos_of(name).max_gpus_per_user for name in names])
        self._most = most[workload.qos]
        self._account = np.maximum(workload.user, 0) * len(names) + workload.qos % len(names)
        self._gpus = workload.gpus
        self._held = np.zeros(int(self._account.max(initial=0)) + 1, dtype=np.int64)

    def hold(self, row: int, gpus: int) -> None:
        """The account of a job holds so many more."""
        self._held[self._account[row]] += gpus

    def exceeded_by(self, rows: IntColumn) -> BoolColumn:
        """Whether each job would exceed its limit if it started now; a job without GPUs never does."""
        gpus = self._gpus[rows]
        found: BoolColumn = (gpus > 0) & (self._held[self._account[rows]] + gpus > self._most[rows])
        return found

    def allowed(self, starts: Sequence[JobStart]) -> list[JobStart]:
        """Those that are within the limits one after the other."""
        held, found = self._held.copy(), []
        for start in starts:
            row = start[0].job_id - 1
            account, gpus = int(self._account[row]), int(self._gpus[row])
            if not gpus or held[account] + gpus <= self._most[row]:
                held[account] += gpus
                found.append(start)
        return found
