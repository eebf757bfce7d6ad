"""Which GPUs overdue jobs get, where GPUs are told one by one: their own, nobody joins them in the same decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, JobState
from slurm_soda.policies.waiting.overdue_pass import OverduePass


class DeviceChoice:
    """Devices of overdue jobs that start, or will once others have left.

    Attributes:
        of_job: by job id; empty where GPUs are only counted, without jobs for which not enough of theirs are known.
    """

    def __init__(self, snapshot: ClusterSnapshot, placing: OverduePass) -> None:
        self.of_job: dict[int, tuple[int, ...]] = {}
        if not isinstance(snapshot, SharingSnapshot):
            return
        devices = snapshot.devices
        self._first = devices.first
        self._idle = np.ones(len(devices), dtype=np.bool_)
        self._idle[devices.held] = False
        if len(devices.unavailable):
            self._idle &= ~devices.unavailable
        self._taken: BoolColumn = np.zeros(len(devices), dtype=np.bool_)
        leaving = snapshot.jobs.state == JobState.COMPLETING
        leaving[[row for first in placing.victims for row in placing.members(first)]] = True
        vacated: BoolColumn = np.zeros(len(devices), dtype=np.bool_)
        leaves = leaving[devices.owner]
        vacated[devices.held[leaves]] = True
        vacated[devices.held[~leaves]] = False  # hosts stay where their guests leave
        for row, claim in placing.claims.items():
            # What others leave goes first: what nobody holds is counted as left for the rest.
            sources = (self._idle,) if claim.at_once else (vacated, self._idle)
            chosen = [one for piece in claim.pieces for one in self._take(piece.node, piece.gpus, sources)]
            if len(chosen) == sum(piece.gpus for piece in claim.pieces):
                self.of_job[int(snapshot.jobs.job_id[row])] = tuple(sorted(chosen))

    def without_taken(self, devices: GpuDevices) -> GpuDevices:
        """The devices, of which those that were chosen are nobody's else."""
        taken = self._taken | devices.unavailable if len(devices.unavailable) else self._taken
        return replace(devices, unavailable=taken)

    def _take(self, node: int, gpus: int, sources: Iterable[BoolColumn]) -> list[int]:
        chosen: list[int] = []
        span = slice(int(self._first[node]), int(self._first[node + 1]))
        for source in sources:
            found = np.flatnonzero(source[span])[: gpus - len(chosen)] + span.start
            source[found] = False
            self._taken[found] = True
            chosen += found.tolist()
        return chosen
