"""Who holds which GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slurm_soda.policies.sharing.snapshot import GpuDevices
from slurm_soda.policies.snapshot import FloatColumn, IntColumn


class GpuHolders:
    """Jobs by GPU and GPUs by job, one number a GPU: GPU ``i`` of node row ``n`` is ``first[n] + i``.

    Jobs are any numbers that tell them apart, such as their ids.
    """

    def __init__(self, gpus: IntColumn) -> None:
        """``gpus``: of each node."""
        self.first: IntColumn = np.concatenate(([0], np.cumsum(gpus))).astype(np.int64)
        self._holders: list[list[int]] = [[] for _ in range(int(self.first[-1]))]
        self._held: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def holders(self, device: int) -> Sequence[int]:
        """The jobs on a GPU, in the order in which they came."""
        return self._holders[device]

    def of(self, job: int) -> tuple[int, ...]:
        """What a job holds, ascending; nothing while it waits."""
        return self._held.get(job, ())

    def jobs_on(self, devices: Iterable[int]) -> set[int]:
        """Jobs on any of these."""
        return {job for device in devices for job in self._holders[device]}

    def take(self, job: int, devices: tuple[int, ...]) -> None:
        """A job starts."""
        self._held[job] = devices
        for device in devices:
            self._holders[device].append(job)

    def release(self, job: int) -> tuple[int, ...]:
        """A job leaves; what it held."""
        devices = self._held.pop(job)
        for device in devices:
            self._holders[device].remove(job)
        return devices

    def devices(self, jobs: Iterable[int], memory_mib: FloatColumn) -> GpuDevices:
        """All GPUs, and what these jobs hold, which are the rows of a job table.

        ``memory_mib``: of each GPU.
        """
        held = [self._held.get(job, ()) for job in jobs]
        start = np.zeros(len(held) + 1, dtype=np.int64)
        np.cumsum([len(devices) for devices in held], out=start[1:])
        return GpuDevices(
            self.first, memory_mib, start, np.array([device for devices in held for device in devices], dtype=np.int64)
        )
