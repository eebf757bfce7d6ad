"""Running jobs that would lose their GPUs together: a host with its guests."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


class SharedSlots:
    """Of one snapshot.

    Attributes:
        guests: by row of the host, those who have all their GPUs from it alone.
        entangled: rows of all who share in another way, such as a guest of several hosts, and its hosts: nobody may take
            these GPUs by preemption, as it would end more than one slot.
    """

    def __init__(self, snapshot: SharingSnapshot, gpu_occupancy: GpuOccupancy) -> None:
        rules, jobs_on = gpu_occupancy.guest_rules, gpu_occupancy.jobs_on
        hosts: dict[int, set[int]] = {}
        beside: dict[int, set[int]] = {}
        for device, there in enumerate(jobs_on):
            if len(there) > 1:
                host = rules.host(device, there)
                for row in there:
                    hosts.setdefault(row, set()).add(host)
                    beside.setdefault(row, set()).update(there)
        mixed = {
            row
            for row, mine in hosts.items()
            if len(mine) > 1
            or (mine != {row} and any(len(jobs_on[device]) == 1 for device in snapshot.devices.of(row).tolist()))
        }
        self.entangled = {row for one in mixed for row in beside[one]}
        self.guests: dict[int, list[int]] = {}
        for row, mine in hosts.items():
            if row not in self.entangled and mine != {row}:
                self.guests.setdefault(next(iter(mine)), []).append(row)

    def best_of_slot(self, service: FloatColumn) -> FloatColumn:
        """By row, least first: a host ranks as the best of those who would lose their GPUs with it."""
        found = service.copy()
        for host, mine in self.guests.items():
            found[host] = min(service[host], *(service[row] for row in mine))
        return found

    def limit_to_slots(self, reclaimable: BoolColumn, *, hosts_too: bool) -> BoolColumn:
        """Whose GPUs can be had: of a host's if its guests may be preempted as well, of a guest's with its host's only."""
        found = reclaimable.copy()
        for host, mine in self.guests.items():
            found[host] &= hosts_too and bool(reclaimable[mine].all())
            found[mine] = False
        found[list(self.entangled)] = False
        return found

    def sum_over_slot(self, price_s: FloatColumn) -> FloatColumn:
        """By row: a host's price is that of all who leave with it."""
        found = price_s.copy()
        for host, mine in self.guests.items():
            found[host] += float(np.sum(price_s[mine]))
        return found
