"""Where jobs share GPUs: what is free once one is preempted, who leaves with it, and who had better be on its own."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, JobTable


class SharedSlots:
    """Of one snapshot.

    Attributes:
        guests: by row of a host, all who have some GPU from it, or from one of these: they leave with it.
        holding: the jobs, each with the GPUs that it hosts: these are free once it leaves. On others it is a guest itself.
    """

    def __init__(self, snapshot: SharingSnapshot, gpu_occupancy: GpuOccupancy) -> None:
        jobs, rules = snapshot.jobs, gpu_occupancy.guest_rules
        hosted = jobs.alloc_gpus.copy()
        guests: dict[int, set[int]] = {}
        for device, there in enumerate(gpu_occupancy.jobs_on):
            if len(there) > 1:
                host, node = rules.host(device, there), gpu_occupancy.node[device]
                mine = {row for row in there if row != host}
                guests.setdefault(host, set()).update(mine)
                for row in mine:
                    first, end = jobs.alloc_start[row], jobs.alloc_start[row + 1]
                    hosted[first:end] -= jobs.alloc_node[first:end] == node
        self.holding: JobTable = jobs.with_columns(alloc_gpus=hosted) if guests else jobs
        self._hosts: dict[int, list[int]] = {}
        for host, all_mine in guests.items():
            for row in all_mine:
                self._hosts.setdefault(row, []).append(host)
        self.guests = {host: _reached(host, guests) for host in guests}

    def limit_to_hosts(self, reclaimable: BoolColumn, *, hosts_too: bool) -> BoolColumn:
        """Whose GPUs can be had: those of a host if its guests may be preempted as well."""
        found = reclaimable.copy()
        for host, mine in self.guests.items():
            found[host] &= hosts_too and bool(reclaimable[mine].all())
        return found

    def price_with_guests(self, price_s: FloatColumn) -> FloatColumn:
        """By row, of jobs that would be preempted: a host's price is that of all who leave."""
        found = price_s.copy()
        for host, mine in self.guests.items():
            found[host] += float(price_s[mine].sum())
        return found

    def seated(self) -> list[tuple[int, tuple[int, ...]]]:
        """Guests that host nobody themselves, with their hosts; ascending."""
        return [(guest, tuple(hosts)) for guest, hosts in sorted(self._hosts.items()) if guest not in self.guests]

    def is_lone(self, hosts: Sequence[int]) -> bool:
        """Whether these are one host with one guest."""
        return len(hosts) == 1 and len(self.guests[hosts[0]]) == 1

    def find_movers(
        self, snapshot: SharingSnapshot, view: InterferenceView, prices_s: FloatColumn
    ) -> list[tuple[int, float]]:
        """Guests that host nobody and had better have GPUs of their own, if nobody else wants these; and what that gains.

        ``prices_s``: by row, what the preemption of a job costs it.
        """
        jobs = snapshot.jobs
        found = []
        for row, hosts in sorted(self._hosts.items()):
            if row in self.guests or not jobs.preemptible[row]:
                continue
            left_s, xi = float(jobs.remaining_s[row]), view.pace(row)
            together_s = min([left_s * xi, *(view.left_s(host) for host in hosts)])
            gain_s = together_s * (1.0 - 1.0 / xi) - float(prices_s[row])
            gain_s += sum(together_s * (1.0 - 1.0 / view.pace(host)) for host in hosts if len(self.guests[host]) == 1)
            if gain_s > 0:
                found.append((row, gain_s))
        return found


def _reached(host: int, guests: dict[int, set[int]]) -> list[int]:
    """Guests of a host, of these, and so on."""
    found: set[int] = set()
    left = [host]
    while left:
        new = guests.get(left.pop(), set()) - found - {host}
        found |= new
        left += sorted(new)
    return sorted(found)
