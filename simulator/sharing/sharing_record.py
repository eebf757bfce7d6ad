"""What became of jobs that shared GPUs, and of the GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn


@dataclass(frozen=True, slots=True)
class GpuJobCountIntervals:
    """Times during which the number of jobs on a GPU did not change and was not 0, by their ends. Equal lengths."""

    device: IntColumn
    """GPU ``i`` of a node is the number of all GPUs of the nodes before it, plus ``i``."""
    start_s: FloatColumn
    end_s: FloatColumn
    jobs: IntColumn


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """Columns of jobs are in the workload's row order."""

    shared_s: FloatColumn
    """Time that a job had a partner on one of its GPUs at least."""
    xi: FloatColumn
    """Mean over that time of its iteration time over that alone; NaN without partners. Accumulation is not in it."""
    worst_xi: FloatColumn
    """The largest of them; NaN without partners."""
    partners: IntColumn
    """Different jobs that it met."""
    sub_batch: IntColumn
    """Samples a GPU and forward pass of its last run, where it accumulated; else 0."""
    out_of_memory: IntColumn
    """Times that it could not start, since it did not fit beside those who were there."""
    revoked: IntColumn
    """Times that its seat ended with its host's job."""
    lost_s: FloatColumn
    """Work that it did then and had to do again, alone and at full speed."""
    parted: IntColumn
    """Times that it left its GPUs to others since a slowdown was observed beyond its bound."""
    stretches: GpuJobCountIntervals
    segment_start: IntColumn
    """Compressed rows beside :class:`~slurm_soda.simulator.outcome.AllocationSegments`: segment ``i`` was on
    ``device[segment_start[i]:segment_start[i + 1]]``."""
    device: IntColumn

    @property
    def busy_gpu_s(self) -> float:
        """Time that GPUs had a job, each counted once however many jobs it had."""
        return float((self.stretches.end_s - self.stretches.start_s).sum())

    @property
    def shared_gpu_s(self) -> float:
        """The part of it with two jobs or more."""
        shared = self.stretches.jobs > 1
        return float((self.stretches.end_s - self.stretches.start_s)[shared].sum())


class SharingRecorder:
    """Writes it down while the clock runs."""

    def __init__(self, jobs: int, devices: int) -> None:
        self._since_s = [0.0] * devices
        self._stretches: list[tuple[int, float, float, int]] = []
        self._counts: list[int] = [0]
        self._devices: list[int] = []
        self._shared_s = np.zeros(jobs)
        self._xi_s = np.zeros(jobs)
        self._worst_xi = np.full(jobs, np.nan)
        self._met: dict[int, set[int]] = {}
        self._sub_batch = np.zeros(jobs, dtype=np.int64)
        self._out_of_memory = np.zeros(jobs, dtype=np.int64)
        self._revoked = np.zeros(jobs, dtype=np.int64)
        self._lost_s = np.zeros(jobs)
        self._parted = np.zeros(jobs, dtype=np.int64)

    def turn(self, device: int, jobs: int, now_s: float) -> None:
        """A GPU has had so many jobs until now; that changes."""
        since_s = self._since_s[device]
        if jobs and now_s > since_s:
            self._stretches.append((device, since_s, now_s, jobs))
        self._since_s[device] = now_s

    def add_shared_time(self, row: int, partners: frozenset[int], xi: float, time_s: float) -> None:
        """A job shared its GPUs with these partners for this long."""
        if time_s > 0:
            self._shared_s[row] += time_s
            self._xi_s[row] += xi * time_s
            self._worst_xi[row] = np.fmax(self._worst_xi[row], xi)
            self._met.setdefault(row, set()).update(partners)

    def start(self, row: int, sub_batch: int) -> None:
        """A job starts; ``sub_batch`` is 0 where it does not accumulate."""
        self._sub_batch[row] = sub_batch

    def fail(self, row: int) -> None:
        """It does not fit."""
        self._out_of_memory[row] += 1

    def revoke(self, row: int, lost_s: float) -> None:
        """Its seat ended, and so much work was lost."""
        self._revoked[row] += 1
        self._lost_s[row] += lost_s

    def part(self, row: int) -> None:
        """It leaves since a bound is broken."""
        self._parted[row] += 1

    def leave(self, devices: tuple[int, ...]) -> None:
        """A segment ends that was on these."""
        self._devices += devices
        self._counts.append(len(self._devices))

    def record(self) -> SharingRecord:
        """Everything so far."""
        partners = np.zeros(len(self._shared_s), dtype=np.int64)
        for row, met in self._met.items():
            partners[row] = len(met)
        with np.errstate(invalid="ignore"):
            xi = np.where(self._shared_s > 0, self._xi_s / self._shared_s, np.nan)
        device, start_s, end_s, jobs = zip(*self._stretches, strict=True) if self._stretches else ((),) * 4
        return SharingRecord(
            shared_s=self._shared_s,
            xi=xi,
            worst_xi=self._worst_xi,
            partners=partners,
            sub_batch=self._sub_batch,
            out_of_memory=self._out_of_memory,
            revoked=self._revoked,
            lost_s=self._lost_s,
            parted=self._parted,
            stretches=GpuJobCountIntervals(
                np.array(device, dtype=np.int64),
                np.array(start_s, dtype=np.float64),
                np.array(end_s, dtype=np.float64),
                np.array(jobs, dtype=np.int64),
            ),
            segment_start=np.array(self._counts, dtype=np.int64),
            device=np.array(self._devices, dtype=np.int64),
        )
