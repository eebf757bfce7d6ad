"""Which services fail on a device: runs of their instances that failed there since one was ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.policies.services.service import Device, InstanceState, IntColumn, ServiceTable


@dataclass(slots=True)
class FailedRuns:
    """Kept in memory alone: after a restart of sodad they count from none again."""

    _runs: dict[tuple[ServiceKey, Device], set[tuple[int, int]]] = field(default_factory=dict)
    """Jobs and restart counts."""

    def observe(
        self, keys: Sequence[ServiceKey], table: ServiceTable, restarts: Mapping[int, int], now_s: float
    ) -> IntColumn:
        """Take in the instances of these services; gives :attr:`.ServiceTable.failures`.

        Args:
            keys: of the rows of the table; all others are forgotten.
            table: with the states of all instances.
            restarts: how often each of their jobs was restarted.
            now_s: by the clock of the table.
        """
        known = set(keys)
        self._runs = {at: runs for at, runs in self._runs.items() if at[0] in known}
        columns = (table.job_id, table.service, table.device, table.state, table.since_s)
        ready = set[tuple[ServiceKey, Device]]()
        for job_id, row, device, state, since_s in zip(*(column.tolist() for column in columns), strict=True):
            at = keys[row], Device(device)
            late = state == InstanceState.STARTING and now_s - since_s >= table.settings.start_limit_s
            if state == InstanceState.READY:
                ready.add(at)
            elif late or state == InstanceState.FAILED:
                self._runs.setdefault(at, set()).add((job_id, restarts.get(job_id, 0)))
        for at in ready:
            self._runs.pop(at, None)
        counts = [[len(self._runs.get((key, device), ())) for device in Device] for key in keys]
        return np.array(counts, dtype=np.int64).reshape(len(keys), len(Device))
