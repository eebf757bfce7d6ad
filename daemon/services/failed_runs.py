"""Which instances fail again and again, and which services on which device: what one report alone does not tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.policies.services.service import Device, InstanceState, ServiceTable

Run = tuple[int, int]
"""Job, and how often it was restarted."""


@dataclass(slots=True)
class FailedRuns:
    """Runs of instances that failed. Kept in memory alone: a new sodad begins with none."""

    _in_a_row: dict[tuple[ServiceKey, Device], set[Run]] = field(default_factory=dict)
    """Those that failed since an instance was ready there."""
    _first_s: dict[Run, float] = field(default_factory=dict)
    """When each that still runs failed first, since it was ready itself."""

    def observe(
        self, keys: Sequence[ServiceKey], table: ServiceTable, restarts: Mapping[int, int], now_s: float
    ) -> ServiceTable:
        """The table with :attr:`.ServiceTable.failures`, and with failed instances as what they are.

        A command that fails is started again on its node at least once a minute (``slurm_soda_serve.py``), so its instance
        is reported as failed and as starting by turns. It has failed since the first time, and after ``requeue_failed_s``
        nobody expects that it will start.

        Args:
            keys: of the rows of the table; all others are forgotten.
            table: as the newest reports tell.
            restarts: how often each job was restarted.
            now_s: by the clock of the table.
        """
        known, settings = set(keys), table.settings
        self._in_a_row = {at: runs for at, runs in self._in_a_row.items() if at[0] in known}
        states, since = table.state.copy(), table.since_s.copy()
        ready, first_s = set[tuple[ServiceKey, Device]](), dict[Run, float]()
        for row, (job_id, state, since_s) in enumerate(
            zip(table.job_id.tolist(), table.state.tolist(), table.since_s.tolist(), strict=True)
        ):
            at, run = (keys[table.service[row]], Device(table.device[row])), (job_id, restarts.get(job_id, 0))
            if state == InstanceState.READY:
                ready.add(at)
                continue
            late = state == InstanceState.STARTING and now_s - since_s >= settings.start_limit_s
            if late or state == InstanceState.FAILED:
                self._in_a_row.setdefault(at, set()).add(run)
            if run not in self._first_s and state != InstanceState.FAILED:
                continue
            first_s[run] = self._first_s.get(run, since_s)
            if state == InstanceState.STARTING and now_s - first_s[run] >= settings.requeue_failed_s:
                states[row] = InstanceState.FAILED
            if states[row] == InstanceState.FAILED:
                since[row] = first_s[run]
        self._first_s = first_s
        for at in ready:
            self._in_a_row.pop(at, None)
        counts = [[len(self._in_a_row.get((key, device), ())) for device in Device] for key in keys]
        failures = np.array(counts, dtype=np.int64).reshape(len(keys), len(Device))
        return replace(table, state=states, since_s=since, failures=failures)
