"""GPUs for pair slots: which jobs stay on their GPUs, which join them there, which start elsewhere, and which must leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, JobState


class PairSlot(NamedTuple):
    """Rows of one job, or of two that are to share all their GPUs, the one who should rather stay first."""

    rows: tuple[int, ...]


class PairSlotPlacement:
    """Places of one decision.

    Attributes:
        staying: running jobs that keep their GPUs.
        devices: by row, of those who start or move.
        claims: by row, what these take of nodes.
        deferred: somebody could join a job that only starts now, or take a seat that is only left now.
    """

    def __init__(
        self, placing: PlacementPass, snapshot: SharingSnapshot, gpu_occupancy: GpuOccupancy, fixed: BoolColumn
    ) -> None:
        self._placing, self._snapshot, self._gpu_occupancy, self._fixed = placing, snapshot, gpu_occupancy, fixed
        self._claimed = gpu_occupancy.taken.copy()
        self.staying: set[int] = set()
        self.devices: dict[int, tuple[int, ...]] = {}
        self.claims: dict[int, JobPlacement] = {}
        self.deferred = False
        self._leaving: set[int] = set()
        self._running: list[bool] = (snapshot.jobs.state == JobState.RUNNING).tolist()
        self._masks: dict[int, BoolColumn] = {}
        self._hosts = self._find_hosts()
        """Whose end would end the seat of a guest, by its row."""

    def keep(self, rows: Iterable[int]) -> None:
        """These stay, whoever else does, and nobody joins them."""
        for row in rows:
            self.staying.add(row)
            self._claimed[self._of(row)] = True

    def place_slots(self, slots: Sequence[PairSlot], others: Sequence[int]) -> None:
        """Place slots, the most valuable first, and then other rows on what is left."""
        order = sorted(range(len(slots)), key=lambda at: not any(self._fixed[row] for row in slots[at].rows))
        joins: list[tuple[int, int]] = []
        restarts: list[PairSlot] = []
        for slot in (slots[at] for at in order):
            may_host = slot.rows[:1] if self._gpu_occupancy.guest_rules.mechanism.revokes else slot.rows
            staying = next((row for row in may_host if self._may_stay(row)), None)
            if staying is None:
                restarts.append(slot)
                continue
            self.keep([staying])
            others_in_slot = [row for row in slot.rows if row != staying]
            self.staying.update(row for row in others_in_slot if self._runs(row) and self._of(row) == self._of(staying))
            joins += [(row, staying) for row in others_in_slot if row not in self.staying]
        self._vacate()
        for row, staying_row in joins:
            self._join(row, staying_row)
        rest: list[int] = []
        for slot in restarts:
            if self._start(slot.rows[0]):
                self.deferred |= len(slot.rows) > 1
                rest += slot.rows[1:]
            else:
                rest += slot.rows
        refusals = RefusedShapes()
        for row in (*rest, *others):
            if row not in self.staying and row not in self.devices and not self._stay_after_all(row):
                shape = self._shape(row)
                if not self._runs(row) and not refusals.cover(shape) and not self._start(row):
                    refusals.add(shape)

    @property
    def leaving(self) -> set[int]:
        """Running jobs that lose their GPUs, those that get others too."""
        return self._leaving - self.staying

    @property
    def gpus_unclaimed(self) -> int:
        """GPUs that may be decided about: nobody stays on them, and they are in service."""
        return int(np.count_nonzero(~self._claimed))

    @property
    def gpus_left(self) -> int:
        """GPUs that nobody has after this decision."""
        return int(self._free_nodes.gpus.sum())

    def place_cpu_job(self, row: int) -> list[NodeAllocation] | None:
        """Room for a job without GPUs, free now and later; takes it."""
        pieces = self._free_nodes.find(self._shape(row))
        if pieces is None or not self._has_now(pieces):
            return None
        self._free_nodes.take(pieces)
        self._take_now(pieces)
        return pieces

    def _has_now(self, pieces: Iterable[NodeAllocation]) -> bool:
        cpus, memory_mib = self._now_cpus, self._now_memory_mib
        return all(cpus[p.node] >= p.cpus and memory_mib[p.node] >= p.memory_mib for p in pieces)

    def _take_now(self, pieces: Iterable[NodeAllocation]) -> None:
        for piece in pieces:
            self._now_cpus[piece.node] -= piece.cpus
            self._now_memory_mib[piece.node] -= piece.memory_mib

    def _vacate(self) -> None:
        """Count what nodes have once everybody left who does not stay."""
        self._drop_guests_without_hosts()
        jobs, free_capacity = self._snapshot.jobs, self._placing.free_capacity.now
        running = np.flatnonzero((jobs.state == JobState.RUNNING) & (jobs.gpus > 0)).tolist()
        self._leaving = {row for row in running if row not in self.staying}
        for row in self._leaving:
            self._gpu_occupancy.guest_rules.depart(row)
        cpus, memory_mib = free_capacity.cpus.copy(), free_capacity.memory_mib.copy()
        self._now_cpus, self._now_memory_mib = free_capacity.cpus.copy(), free_capacity.memory_mib.copy()
        for row in self._leaving:
            for piece in list_allocations(jobs, row):
                cpus[piece.node] += piece.cpus
                memory_mib[piece.node] += piece.memory_mib
        open_to_all = self._gpu_occupancy.node[~self._claimed]
        gpus = np.bincount(open_to_all, minlength=len(cpus)).astype(np.int64)
        self._free_nodes = FreeNodes(self._gpu_occupancy.classes, gpus, cpus, memory_mib)

    def _join(self, joining: int, staying: int) -> None:
        shape, devices = self._shape(joining), self._of(staying)
        code = int(self._placing.demand.code[joining])
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(shape)
        counts: dict[int, int] = {}
        for device in devices:
            node = int(self._gpu_occupancy.node[device])
            counts[node] = counts.get(node, 0) + 1
        pieces = [_piece(shape, node, count) for node, count in counts.items()]
        fits = all(self._masks[code][piece.node] and self._has(piece) for piece in pieces)
        if not self._may_be_guest(joining, devices):
            return
        if fits and (shape.units or all(count == shape.gpus for count in counts.values())):
            self._take(joining, devices, pieces, [piece._replace(gpus=0) for piece in pieces])

    def _has(self, piece: NodeAllocation) -> bool:
        _, cpus, memory_mib = self._free_nodes.on(piece.node)
        return cpus >= piece.cpus and memory_mib >= piece.memory_mib

    def _start(self, row: int) -> bool:
        """GPUs that nobody stays on: empty ones, and those of jobs that leave."""
        pieces = self._free_nodes.find(self._shape(row))
        if pieces is None:
            return False
        devices: list[int] = []
        for piece in pieces:
            first = int(self._snapshot.devices.first[piece.node])
            last = int(self._snapshot.devices.first[piece.node + 1])
            free = [device for device in range(first, last) if not self._claimed[device]]
            devices += sorted(free, key=lambda device: bool(self._gpu_occupancy.jobs_on[device]))[: piece.gpus]
        self._claimed[devices] = True
        self._take(row, sorted(devices), pieces, pieces)
        return True

    def _take(
        self, row: int, devices: Sequence[int], pieces: list[NodeAllocation], taken: list[NodeAllocation]
    ) -> None:
        self._free_nodes.take(taken)
        jobs_on = {one for device in devices for one in self._gpu_occupancy.jobs_on[device]}
        at_once = row not in self._leaving and not (jobs_on & self._leaving) and self._has_now(pieces)
        if at_once:
            self._take_now(pieces)
        if self._gpu_occupancy.guest_rules.limited:
            self._gpu_occupancy.guest_rules.arrive(row, devices, lambda device: self._staying_on(device, row))
        self.devices[row] = tuple(devices)
        self.claims[row] = JobPlacement(pieces, at_once)

    def _stay_after_all(self, row: int) -> bool:
        """Whether a running job may keep GPUs that nobody got in its place."""
        if row not in self._leaving or any(self._claimed[device] for device in self._of(row)):
            return False
        if row in self._hosts:
            return False
        pieces = list_allocations(self._snapshot.jobs, row)
        if not all(self._has(piece) and self._free_nodes.on(piece.node)[0] >= piece.gpus for piece in pieces):
            return False
        self._free_nodes.take(pieces)
        self.keep([row])
        return True

    def _may_stay(self, row: int) -> bool:
        """Whether a running job keeps its GPUs; a guest does with its hosts only, if its seat ends with them."""
        if not self._runs(row) or any(self._claimed[device] for device in self._of(row)):
            return False
        return row not in self._hosts

    def hosts_of(self, rows: Iterable[int]) -> set[int]:
        """Whose end would end the seats of these, or of their hosts."""
        found: set[int] = set()
        left = list(rows)
        while left:
            more = self._hosts.get(left.pop(), set()) - found
            found |= more
            left += more
        return found

    def _find_hosts(self) -> dict[int, set[int]]:
        guest_rules, jobs_on = self._gpu_occupancy.guest_rules, self._gpu_occupancy.jobs_on
        if not guest_rules.mechanism.revokes:
            return {}
        found: dict[int, set[int]] = {}
        for device, there in enumerate(jobs_on):
            for row in there:
                if device in guest_rules.guest_on(row) and guest_rules.host(device, there) != row:
                    found.setdefault(row, set()).add(guest_rules.host(device, there))
        return found

    def _drop_guests_without_hosts(self) -> None:
        """A guest that was to stay beside one of its hosts leaves if another one does not stay."""
        while dropped := {row for row in self.staying if not self._hosts.get(row, set()) <= self.staying}:
            self.staying -= dropped

    def _may_be_guest(self, joining: int, devices: Sequence[int]) -> bool:
        """Whether the mechanism lets a job join those who stay on these devices, in this decision."""
        guest_rules, jobs_on = self._gpu_occupancy.guest_rules, self._gpu_occupancy.jobs_on
        if not guest_rules.limited:
            return True
        if not guest_rules.mechanism.starts_together:
            changing = self._leaving | self.devices.keys()
            if self._runs(joining) or any(one in changing for device in devices for one in jobs_on[device]):
                self.deferred = True
                return False
        refusal = guest_rules.refuse(joining, devices, lambda device: self._staying_on(device, joining))
        return not refusal

    def _staying_on(self, device: int, joining: int) -> list[int]:
        """Who is on a device beside a job that joins it: those who stay, and those who were given it by now."""
        there = [row for row in self._gpu_occupancy.jobs_on[device] if row in self.staying and row != joining]
        return there + [row for row, held in self.devices.items() if device in held and row != joining]

    def _runs(self, row: int) -> bool:
        return self._running[row]

    def _of(self, row: int) -> list[int]:
        devices: list[int] = self._snapshot.devices.of(row).tolist()
        return devices

    def _shape(self, row: int) -> RequestShape:
        return self._placing.demand.shapes[int(self._placing.demand.code[row])]


def _piece(shape: RequestShape, node: int, count: int) -> NodeAllocation:
    if shape.units:
        return NodeAllocation(node, count, count * shape.unit_cpus, count * shape.unit_memory_mib)
    return NodeAllocation(node, count, shape.cpus, shape.memory_mib)
