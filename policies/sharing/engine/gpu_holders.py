"""Who holds which GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slurm_soda.policies.snapshot import IntColumn


class GpuHolders:
    """Jobs by GPU and GPUs by job, one number a GPU: GPU ``i`` of node row ``n`` is ``first[n] + i``.

    Jobs are any numbers that tell them apart, such as their ids.
    """

    def __init__(self, gpus: IntColumn) -> None:
        """``gpus``: of each node."""
        self.first: IntColumn = np.concatenate(([0], np.cumsum(gpus))).astype(np.int64)
        self.node: list[int] = np.repeat(np.arange(len(gpus)), gpus).tolist()
        """Row of each GPU's node."""
        self.free: IntColumn = gpus.copy()
        """GPUs of each node that nobody holds."""
        self._holders: list[list[int]] = [[] for _ in self.node]
        self._held: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.node)

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
            if not self._holders[device]:
                self.free[self.node[device]] -= 1
            self._holders[device].append(job)

    def release(self, job: int) -> tuple[int, ...]:
        """A job leaves; what it held."""
        devices = self._held.pop(job)
        for device in devices:
            self._holders[device].remove(job)
            if not self._holders[device]:
                self.free[self.node[device]] += 1
        return devices

    def compressed_rows(self, jobs: Iterable[int]) -> tuple[IntColumn, IntColumn]:
        """What these jobs hold: starts, then GPUs, as :class:`.GpuDevices` has them."""
        held = [self._held.get(job, ()) for job in jobs]
        start = np.zeros(len(held) + 1, dtype=np.int64)
        np.cumsum([len(devices) for devices in held], out=start[1:])
        return start, np.array([device for devices in held for device in devices], dtype=np.int64)
