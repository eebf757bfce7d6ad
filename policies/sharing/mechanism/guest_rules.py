"""Who may take which seats by the engine's mechanism, while one decision is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from slurm_soda.policies.sharing.mechanism.guest_obstacles import find_guest_obstacle, may_meet
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState

JobsOn = Callable[[int], Sequence[int]]
"""Rows of the jobs on a device, those that leave in the decision not among them, in the order in which they came."""


class GuestRules:
    """Hosts and guests, as the snapshot has them and as the decision goes on.

    A refusal is a clause for people, empty where the mechanism can do it.

    Attributes:
        limited: whether the mechanism limits anything, a pair is kept apart, or somebody was slowed too much; if not,
            nothing is refused.
    """

    def __init__(self, snapshot: SharingSnapshot) -> None:
        self.mechanism = snapshot.mechanism
        self._apart = _apart_by_row(snapshot)
        self._barred = _barred_programs(snapshot)
        self._behind = frozenset(np.flatnonzero(snapshot.sharing.behind_s > 0).tolist())
        self.limited = bool(self._apart or self._barred or self._behind) or not snapshot.mechanism.unlimited
        self._snapshot = snapshot
        self._guest_on: dict[int, frozenset[int]] = {}
        """Devices on which a job is a guest, by row; of those asked about."""
        self._changing: set[int] = set()
        """Rows that start, leave or move in this decision."""
        self._vacated: set[int] = set()
        """Devices that somebody leaves in this decision."""
        self._obstacles: dict[int, str] = {}
        """Of those asked about."""
        self._placed: dict[int, tuple[int, ...]] = {}
        """Devices of those who got them in this decision."""

    def guest_on(self, row: int) -> frozenset[int]:
        """Devices on which a job is a guest."""
        if row not in self._guest_on:
            self._guest_on[row] = frozenset(self._snapshot.devices.guest_on(row).tolist())
        return self._guest_on[row]

    def host(self, device: int, there: Sequence[int]) -> int:
        """Who hosts on a device that these are on: the first that is no guest there."""
        return next((row for row in there if device not in self.guest_on(row)), there[0])

    def guests(self, row: int, jobs_on: JobsOn) -> list[int]:
        """Guests of a running job, ascending."""
        mine: list[int] = self._snapshot.devices.of(row).tolist()
        found: set[int] = set()
        for device in mine:
            there = jobs_on(device)
            if len(there) > 1 and self.host(device, there) == row:
                found.update(there)
        return sorted(found - {row})

    def depart(self, row: int) -> None:
        """A running job is preempted."""
        self._vacated.update(self._snapshot.devices.of(row).tolist())
        self._changing.add(row)
        self._guest_on[row] = frozenset()

    def arrive(self, row: int, devices: Iterable[int], jobs_on: JobsOn) -> None:
        """A job starts on these devices; ``jobs_on``: those who were there before it."""
        self._placed[row] = tuple(devices)
        self._guest_on[row] = frozenset(device for device in self._placed[row] if jobs_on(device))
        self._changing.add(row)

    def refuse(self, row: int, devices: Sequence[int], jobs_on: JobsOn) -> str:
        """Why a job cannot have these devices, which others are on."""
        shared = {device: jobs_on(device) for device in devices if jobs_on(device)} if self.limited else {}
        for device, there in shared.items():
            refusal = self.refuse_device(row, device, there)
            if refusal:
                return refusal
        return self._refuse_gang(devices, shared) if shared else ""

    def refuse_device(self, row: int, device: int, there: Sequence[int], *, later: bool = False) -> str:
        """Why a job cannot join these on one device, whatever else it gets; ``later``: in a decision after this one."""
        return next(self.refusals(row, device, there, later=later), "")

    def refusals(self, row: int, device: int, there: Sequence[int], *, later: bool = False) -> Iterator[str]:
        """All that speaks against it, as :meth:`refuse_device` says the first of it."""
        if not self.limited or not there:
            return
        mechanism, snapshot = self.mechanism, self._snapshot
        if barred := self.refuse_barred(row, there):
            yield barred
        if len(there) >= mechanism.jobs_per_gpu:
            yield f"all {mechanism.jobs_per_gpu:g} places are taken"
        if not mechanism.starts_together and not later and self._changes(row, device, there):
            yield "it, or who is there, starts, leaves or moves in the same decision"
        if not snapshot.devices.shareable[device]:
            yield f"nobody can join others on GPU {self.place(device)[1]} of its node now"
        if obstacle := self._obstacle(row):
            yield obstacle
        if not all(may_meet(snapshot, row, one) for one in there):
            yield "a job of another user is there"
        if not mechanism.guests_host and self.guest_on(self.host(device, there)):
            yield "who would be its host is a guest itself"

    def refuse_barred(self, row: int, there: Sequence[int]) -> str:
        """Why a job must not join these, whatever the mechanism can do: it was parted from one, or in quarantine, or one was
        slowed beyond its bound and has not made up for that.
        """
        apart, job_id = self._apart.get(row, frozenset()), self._snapshot.jobs.job_id
        met = next((one for one in there if one in apart), None)
        if met is not None:
            return f"it was parted from job {int(job_id[met])}"
        program = self._snapshot.sharing.program
        barred = self.barred_programs(int(program[row]))
        met = next((one for one in there if int(program[one]) in barred), None) if barred else None
        if met is not None:
            return f"its program and that of job {int(job_id[met])} are in quarantine after a fault of MPS"
        met = next((one for one in there if one in self._behind), None) if self._behind else None
        if met is not None:
            behind_s = float(self._snapshot.sharing.behind_s[met])
            return f"job {int(job_id[met])} there was slowed beyond its bound, and makes up for {behind_s:.0f} s first"
        return ""

    def barred_pairs(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Pairs among these rows that must not meet, each as the positions of both, the smaller one first; ascending.

        Who was slowed beyond its bound meets nobody whom it has not beside it already.
        """
        at = {row: place for place, row in enumerate(rows) if row in self._apart}
        found = {(place, at[other]) for row, place in at.items() for other in self._apart[row] if other in at}
        for place, row in enumerate(rows):
            if row in self._behind:
                mine = set(self._held(row))
                found.update(
                    (place, there)
                    for there, other in enumerate(rows)
                    if there != place and mine.isdisjoint(self._held(other))
                )
        return sorted({(min(pair), max(pair)) for pair in found})

    def barred_programs(self, program: int) -> frozenset[int]:
        """Programs with which a program does not share."""
        return self._barred.get(program, frozenset())

    def _obstacle(self, row: int) -> str:
        """Why a job can be nobody's guest."""
        if row not in self._obstacles:
            requeueable = self._snapshot.sharing.requeueable[row] or not self.mechanism.guests_need_requeue
            why = find_guest_obstacle(self._snapshot, row)
            told = f"it cannot be a guest: {why}" if why else ""
            self._obstacles[row] = told if requeueable else "it cannot be requeued, so it cannot be a guest"
        return self._obstacles[row]

    def _changes(self, row: int, device: int, there: Sequence[int]) -> bool:
        """Whether somebody who starts, leaves or moves in this decision would be on a device with others."""
        if self._snapshot.jobs.state[row] != JobState.PENDING or device in self._vacated:
            return True
        return any(one in self._changing for one in there)

    def _refuse_gang(self, devices: Sequence[int], shared: dict[int, Sequence[int]]) -> str:
        mechanism = self.mechanism
        hosts = {self.host(device, there) for device, there in shared.items()}
        if not mechanism.several_hosts and len(hosts) > 1:
            return "it would have several hosts"
        if not mechanism.with_own_gpus and len(shared) < len(devices):
            return "it would have GPUs of its own beside shared ones"
        if not mechanism.part_of_host:
            wanted = set(devices)
            if not all(wanted.issuperset(self._held(host)) for host in hosts):
                return "it would be on a part of its host's GPUs"
        if mechanism.equal_indices and not self._equal(devices, shared):
            return "its GPUs would have other indices on one node than on another"
        return ""

    def _equal(self, devices: Sequence[int], shared: dict[int, Sequence[int]]) -> bool:
        """Whether it shares the same indices on all of its nodes, and has as many GPUs of its own there."""
        by_node: dict[int, tuple[set[int], int]] = {}
        for device in devices:
            node, index = self.place(device)
            indices, own = by_node.get(node, (set(), 0))
            by_node[node] = (indices | {index}, own) if device in shared else (indices, own + 1)
        return all(one == next(iter(by_node.values())) for one in by_node.values())

    def _held(self, row: int) -> Sequence[int]:
        held: list[int] = self._snapshot.devices.of(row).tolist()
        return self._placed.get(row, held)

    def place(self, device: int) -> tuple[int, int]:
        """Row of a device's node, and its index there."""
        first = self._snapshot.devices.first
        node = int(first.searchsorted(device, side="right")) - 1
        return node, device - int(first[node])

    def traits(self, row: int) -> tuple[object, ...]:
        """By what else than kind, size and bounds a waiting job is told from another one; empty where nothing is limited."""
        if not self.limited:
            return ()
        barred = self.barred_programs(int(self._snapshot.sharing.program[row]))
        apart = (self._apart.get(row, frozenset()), barred)
        if self.mechanism.unlimited:
            return apart
        sharing = self._snapshot.sharing
        return (
            int(self._snapshot.jobs.user[row]),
            bool(sharing.requeueable[row]),
            float(sharing.saves_every_s[row]),
            bool(sharing.meets_others[row]),
            find_guest_obstacle(self._snapshot, row),
            *apart,
        )


def _apart_by_row(snapshot: SharingSnapshot) -> dict[int, frozenset[int]]:
    """Of each job that was parted from others which are there too, the rows of these."""
    found: dict[int, set[int]] = {}
    row_of = (
        dict(zip(snapshot.jobs.job_id.tolist(), range(len(snapshot.jobs)), strict=True))
        if snapshot.sharing.apart or snapshot.sharing.faulted
        else {}
    )
    for one, other in (*snapshot.sharing.apart, *snapshot.sharing.faulted):
        if one in row_of and other in row_of:
            found.setdefault(row_of[one], set()).add(row_of[other])
            found.setdefault(row_of[other], set()).add(row_of[one])
    return {row: frozenset(others) for row, others in found.items()}


def _barred_programs(snapshot: SharingSnapshot) -> dict[int, frozenset[int]]:
    """Of each program in quarantine those with which it does not share, itself perhaps."""
    found: dict[int, set[int]] = {}
    for one, other in snapshot.sharing.quarantined:
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return {program: frozenset(others) for program, others in found.items()}
