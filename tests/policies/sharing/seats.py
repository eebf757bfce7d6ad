"""The rules of a mechanism once more, from its docstring alone, to hold plans against; knows no code of policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState


def broken_rules(snapshot: SharingSnapshot, plan: Plan) -> set[str]:
    """Attributes of the mechanism that a plan does not keep to; ``apart``: a pair that was parted meets."""
    return _Seats(snapshot).follow(plan) if isinstance(plan, SharingPlan) else set()


class _Seats:
    """Who is where, the host of each GPU first."""

    def __init__(self, snapshot: SharingSnapshot) -> None:
        self.snapshot, self.mechanism = snapshot, snapshot.mechanism
        self.broken: set[str] = set()
        self.on: dict[int, list[int]] = {}
        self.guest_on: dict[int, set[int]] = {}
        """Where a job came to others, whether these are still there or not."""
        held = snapshot.devices
        for row in range(len(snapshot.jobs)):
            for at in range(int(held.held_start[row]), int(held.held_start[row + 1])):
                if snapshot.jobs.state[row] == JobState.RUNNING:
                    there = self.on.setdefault(int(held.held[at]), [])
                    there.insert(len(there) if held.guest[at] else 0, row)
                    self.guest_on.setdefault(row, set()).update([int(held.held[at])] if held.guest[at] else [])

    def guests(self, row: int) -> set[int]:
        return {one for there in self.on.values() if there[:1] == [row] for one in there[1:]}

    def held(self, row: int) -> set[int]:
        return {device for device, there in self.on.items() if row in there}

    def follow(self, plan: SharingPlan) -> set[str]:
        jobs, pending = self.snapshot.jobs, JobState.PENDING
        leaving = {jobs.row(one.job_id) for one in plan.preempts}
        for row in leaving:
            if self.guests(row) and not self.mechanism.preempts_hosts:
                self.broken.add("preempts_hosts")
            if self.guests(row) - leaving and self.mechanism.revokes:
                self.broken.add("revokes")
        vacated = {device for row in leaving for device in self.held(row)}
        for there in self.on.values():
            there[:] = [row for row in there if row not in leaving]
        self.guest_on |= {row: set() for row in leaving}
        moving = set(leaving)
        for job_id in plan.places:
            row, devices = jobs.row(job_id), plan.devices[job_id]
            shared = [device for device in devices if self.on.get(device)]
            if shared:
                late = jobs.state[row] != pending or vacated & set(shared)
                if not self.mechanism.starts_together and (
                    late or any(moving & set(self.on[device]) for device in shared)
                ):
                    self.broken.add("starts_together")
                self._join(row, devices, shared)
            self.guest_on[row] = set(shared)
            moving.add(row)
            for device in devices:
                self.on.setdefault(device, []).append(row)
        return self.broken

    def _join(self, row: int, devices: Sequence[int], shared: Sequence[int]) -> None:
        mechanism, sharing, table = self.mechanism, self.snapshot.sharing, self.snapshot.jobs
        hosts = {self.on[device][0] for device in shared}
        met = {one for device in shared for one in self.on[device]}
        pairs = {tuple(sorted((int(table.job_id[row]), int(table.job_id[one])))) for one in met}
        faults = {
            "jobs_per_gpu": any(len(self.on[device]) + 1 > mechanism.jobs_per_gpu for device in shared),
            "different_users": any(table.user[one] != table.user[row] for one in met) and not mechanism.different_users,
            "guests_need_requeue": mechanism.guests_need_requeue and not sharing.requeueable[row],
            "guests_host": not mechanism.guests_host and any(self.guest_on[host] for host in hosts),
            "several_hosts": not mechanism.several_hosts and len(hosts) > 1,
            "with_own_gpus": not mechanism.with_own_gpus and len(shared) < len(devices),
            "part_of_host": not mechanism.part_of_host and any(self.held(host) - set(devices) for host in hosts),
            "equal_indices": mechanism.equal_indices and not self._alike(devices, shared),
            "apart": not pairs.isdisjoint(sharing.apart),
        }
        self.broken |= {rule for rule, is_broken in faults.items() if is_broken}

    def _alike(self, devices: Sequence[int], shared: Sequence[int]) -> bool:
        first = self.snapshot.devices.first.tolist()
        where = {device: max(node for node, start in enumerate(first) if start <= device) for device in devices}
        nodes = set(where.values())
        indices = {frozenset(one - first[node] for one in shared if where[one] == node) for node in nodes}
        own = Counter(where[one] for one in devices if one not in shared)
        return len(indices) == 1 and len({own[node] for node in nodes}) == 1
