"""Who waits for GPUs at the instant of a decision, in which order, and for how long each would."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_waits import MOST_JOBS, expect_waits_s
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import FloatColumn, IntColumn, JobState

_LONG_S = 365 * 86_400.0
"""In place of a run time that nobody knows."""


class QueueOutlook:
    """Of one decision, once jobs have places of their own.

    Attributes:
        waiting: rows of the jobs that got none, in their order.
        total_gpus: of the cluster.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        placing: PlacementPass,
        gpu_occupancy: GpuOccupancy,
        interference_view: InterferenceView,
        *,
        waiting: IntColumn,
        service: FloatColumn,
    ) -> None:
        """``service``: GPUs x rank of each job, by row, which ``waiting`` is ordered by."""
        self._snapshot, self._placing = snapshot, placing
        self._gpu_occupancy, self._interference_view = gpu_occupancy, interference_view
        self.waiting, self._service = waiting, service
        self._found: dict[int, FloatColumn] = {}
        self._guest_gpus = self._count_guest_gpus()
        guests = np.flatnonzero((self._guest_gpus > 0) & (placing.verdict == JobVerdict.RUN))
        self._guest_service: FloatColumn = np.sort(service[guests])
        self.total_gpus = max(int(snapshot.nodes.gpus[snapshot.nodes.usable].sum()), 1)

    def weight(self, gpus: FloatColumn | IntColumn, *, guests_gone: int = 0) -> FloatColumn:
        """By how much all jobs together end later for each second that a running job with so many GPUs does: 1 + n g / G.

        Guests wait for GPUs of their own as well, but ``guests_gone``.
        """
        later = len(self.waiting) + len(self._guest_service) - guests_gone
        found: FloatColumn = 1.0 + gpus * later / self.total_gpus
        return found

    def behind(self, at: int) -> int:
        """Jobs that come after one of those that wait: others of these, and guests, who want GPUs of their own as well."""
        row = int(self.waiting[at])
        return len(self.waiting) - at - 1 + self._guests_after(row)

    def waits_s(self) -> FloatColumn:
        """Until each of those that wait has GPUs of its own."""
        return self._waits_s(0)[: len(self.waiting)]

    def around(self, row: int) -> tuple[float, float]:
        """Of a running guest that would leave its hosts: the jobs that would wait behind it, and those before it, each times
        its part of all GPUs.
        """
        share = int(self._snapshot.jobs.gpus[row]) / self.total_gpus
        at = self._place(row)
        return (len(self.waiting) - at + self._guests_after(row)) * share, at * share

    def wait_if_left_s(self, row: int, host_left_s: float) -> float:
        """How long it would wait if it left its hosts, the first of which would end after so long then."""
        at, last = self._place(row), len(self.waiting)
        wait_s = float(self._waits_s(0 if at < last else int(self._snapshot.jobs.gpus[row]))[at])
        return wait_s if at else min(wait_s, host_left_s)

    def _guests_after(self, row: int) -> int:
        return len(self._guest_service) - int(np.searchsorted(self._guest_service, self._service[row], side="right"))

    def _place(self, row: int) -> int:
        return int(np.searchsorted(self._service[self.waiting], self._service[row], side="right"))

    def _waits_s(self, more: int) -> FloatColumn:
        """Of those that wait, and of one more behind them that wants so many GPUs; 0: of nobody else."""
        if more not in self._found:
            self._found[more] = self._find_waits_s(more)
        return self._found[more]

    def _find_waits_s(self, more: int) -> FloatColumn:
        jobs, waiting = self._snapshot.jobs, self.waiting
        stays = (jobs.state == JobState.RUNNING) & (jobs.gpus > 0) & (self._placing.verdict != JobVerdict.PREEMPT)
        running = np.flatnonzero(stays)
        left_s = self._hold_s(running)
        # What a guest shares is free once its host has ended: it makes way, or its place is revoked.
        own = jobs.gpus[running] - self._guest_gpus[running]
        shared = {row for there in self._gpu_occupancy.jobs_on if len(there) > 1 for row in there}
        for at, row in enumerate(running.tolist()):
            if row in shared:
                left_s[at] *= self._interference_view.pace(row)
        work_s = self._hold_s(waiting[:MOST_JOBS])
        wanted = jobs.gpus[waiting].tolist()
        if more:
            wanted, work_s = [*wanted, more], np.concatenate((work_s, np.full((1, work_s.shape[1]), _LONG_S)))
        return expect_waits_s(
            int(self._placing.free_capacity.now.gpus.sum()), left_s, own.tolist(), work_s[:MOST_JOBS], wanted
        )

    def _count_guest_gpus(self) -> IntColumn:
        """GPUs on which each job is a guest, by row."""
        occupancy = self._gpu_occupancy
        found = np.zeros(len(self._snapshot.jobs), dtype=np.int64)
        for device, there in enumerate(occupancy.jobs_on):
            if len(there) > 1:
                host = occupancy.guest_rules.host(device, there)
                found[[row for row in there if row != host]] += 1
        return found

    def _hold_s(self, rows: IntColumn) -> FloatColumn:
        """How long jobs keep GPUs: until they end, or, by their ranks, others had better have a turn."""
        ranks_s = self._service[rows] / np.maximum(self._snapshot.jobs.gpus[rows], 1)
        held_s = np.fmin(expect_remaining_s(self._snapshot, rows), ranks_s[:, None])
        return np.where(np.isfinite(held_s), held_s, _LONG_S)
