"""Who holds which GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.sharing.snapshot import GpuDevices
from slurm_soda.policies.snapshot import FloatColumn, IntColumn


class GpuHolders:
    """Jobs by GPU and GPUs by job, one number a GPU: GPU ``i`` of node row ``n`` is ``first[n] + i``.

    Jobs are any numbers that tell them apart, such as their ids.
    """

    def __init__(self, gpus: IntColumn) -> None:
        """``gpus``: of each node."""
        self.first: IntColumn = np.concatenate(([0], np.cumsum(gpus))).astype(np.int64)
        self._first: list[int] = self.first.tolist()
        self._holders: list[list[int]] = [[] for _ in range(int(self.first[-1]))]
        self._held: dict[int, tuple[int, ...]] = {}
        self._guest_on: dict[int, frozenset[int]] = {}
        """Those of them on which a job is a guest: others were there when it came."""
        self.shared = 0
        """GPUs with several jobs."""

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

    def is_guest(self, job: int) -> bool:
        """Whether others were on one of its GPUs at least when it came."""
        return bool(self._guest_on.get(job))

    def guests(self, job: int) -> set[int]:
        """Those who came to GPUs on which this job is no guest."""
        hosted = [device for device in self.of(job) if device not in self._guest_on[job]]
        return {one for device in hosted for one in self._holders[device] if device in self._guest_on[one]}

    def take(self, job: int, devices: tuple[int, ...]) -> None:
        """A job starts."""
        self._held[job] = devices
        self._guest_on[job] = frozenset(device for device in devices if self._holders[device])
        for device in devices:
            self._holders[device].append(job)
            self.shared += len(self._holders[device]) == 2

    def release(self, job: int) -> tuple[int, ...]:
        """A job leaves; what it held."""
        devices = self._held.pop(job)
        del self._guest_on[job]
        for device in devices:
            self._holders[device].remove(job)
            self.shared -= len(self._holders[device]) == 1
        return devices

    def choose(
        self, pieces: Iterable[NodeAllocation], given: set[int], leaving: Collection[int] = ()
    ) -> tuple[int, ...]:
        """The first GPUs of these nodes that nobody holds but jobs that are about to leave.

        ``given``: those that other jobs get, to which these are added.
        """
        found: list[int] = []
        for piece in pieces:
            there = range(self._first[piece.node], self._first[piece.node + 1])
            free = (one for one in there if one not in given and all(job in leaving for job in self._holders[one]))
            found += islice(free, piece.gpus)
        given.update(found)
        return tuple(sorted(found))

    def devices(self, jobs: Iterable[int], memory_mib: FloatColumn) -> GpuDevices:
        """All GPUs, and what these jobs hold, which are the rows of a job table, ascending.

        ``memory_mib``: of each GPU.
        """
        table = np.fromiter(jobs, dtype=np.int64)
        holding = sorted(self._held)
        row = np.searchsorted(table, np.array(holding, dtype=np.int64))
        there = np.append(table, -1)[row] == holding
        holding, row = [job for job, known in zip(holding, there.tolist(), strict=True) if known], row[there]
        count = np.zeros(len(table) + 1, dtype=np.int64)
        count[row + 1] = [len(self._held[job]) for job in holding]
        start = np.cumsum(count)
        held = np.fromiter(chain.from_iterable(self._held[job] for job in holding), np.int64, int(start[-1]))
        guest = np.zeros(len(held), dtype=np.bool_)
        for job, at in zip(holding, start[row].tolist(), strict=True):
            guests = self._guest_on[job]
            if guests:
                guest[at : at + len(self._held[job])] = [device in guests for device in self._held[job]]
        return GpuDevices(self.first, memory_mib, start, held, guest=guest)
