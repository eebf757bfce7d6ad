"""Who holds which GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slurm_soda.policies.snapshot import IntColumn
from slurm_soda.simulator.cluster import SimulatedCluster


class GpuHolders:
    """Jobs by GPU and GPUs by job, one number a GPU: GPU ``i`` of node row ``n`` is ``first[n] + i``."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.first: IntColumn = np.concatenate(([0], np.cumsum(cluster.gpus))).astype(np.int64)
        self.node: list[int] = np.repeat(np.arange(len(cluster)), cluster.gpus).tolist()
        """Row of each GPU's node."""
        self.free: IntColumn = cluster.gpus.copy()
        """GPUs of each node that nobody holds."""
        self._holders: list[list[int]] = [[] for _ in self.node]
        self._held: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.node)

    def holders(self, device: int) -> Sequence[int]:
        """Rows of the jobs on a GPU, in the order in which they came."""
        return self._holders[device]

    def of(self, row: int) -> tuple[int, ...]:
        """What a job holds, ascending; nothing while it waits."""
        return self._held.get(row, ())

    def jobs_on(self, devices: Iterable[int]) -> set[int]:
        """Jobs on any of these."""
        return {row for device in devices for row in self._holders[device]}

    def take(self, row: int, devices: tuple[int, ...]) -> None:
        """A job starts."""
        self._held[row] = devices
        for device in devices:
            if not self._holders[device]:
                self.free[self.node[device]] -= 1
            self._holders[device].append(row)

    def release(self, row: int) -> tuple[int, ...]:
        """A job leaves; what it held."""
        devices = self._held.pop(row)
        for device in devices:
            self._holders[device].remove(row)
            if not self._holders[device]:
                self.free[self.node[device]] += 1
        return devices

    def rows(self, present: Sequence[int]) -> tuple[IntColumn, IntColumn]:
        """What these jobs hold, in compressed rows: starts, then GPUs."""
        held = [self._held.get(row, ()) for row in present]
        start = np.zeros(len(held) + 1, dtype=np.int64)
        np.cumsum([len(devices) for devices in held], out=start[1:])
        return start, np.array([device for devices in held for device in devices], dtype=np.int64)
