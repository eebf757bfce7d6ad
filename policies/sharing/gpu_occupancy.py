"""Who is on which GPU, and what is left of nodes, while one decision is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation, NodeGroups
from slurm_soda.policies.sharing.mechanism.device_rankings import list_rankings
from slurm_soda.policies.sharing.mechanism.guest_rules import GuestRules
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, JobState


class GpuOccupancy:
    """Devices with the running jobs on them. Jobs that get a place in this decision make it theirs, and join no list unless
    they are settled there.

    Attributes:
        node: row of the node of each device.
        jobs_on: running jobs on each device, those that leave in this decision not counted.
        taken: devices that nobody else may have: of jobs that complete or are suspended, of unusable nodes, or given to
            a job in this decision.
        guest_rules: what the engine's mechanism allows.
    """

    def __init__(self, snapshot: SharingSnapshot, free_capacity: FreeCapacity) -> None:
        self._snapshot, self._free_capacity = snapshot, free_capacity
        self.guest_rules = GuestRules(snapshot)
        first = snapshot.devices.first
        self.node = np.repeat(np.arange(len(first) - 1), np.diff(first)).astype(np.int64)
        self.jobs_on: list[list[int]] = [[] for _ in range(len(self.node))]
        self.taken: BoolColumn = ~snapshot.nodes.usable[self.node]
        if len(snapshot.devices.unavailable):
            self.taken |= snapshot.devices.unavailable
        held, owner = snapshot.devices.held, snapshot.devices.owner
        runs = snapshot.jobs.state[owner] == JobState.RUNNING
        self.taken[held[~runs]] = True
        for device, row in zip(held[runs].tolist(), owner[runs].tolist(), strict=True):
            self.jobs_on[device].append(row)
        free = ~self.taken
        free[held] = False
        empty = np.flatnonzero(free)[::-1]
        self._empty: dict[int, list[int]] = {}
        """Devices of each node that nobody holds, descending."""
        for device, node in zip(empty.tolist(), self.node[empty].tolist(), strict=True):
            self._empty.setdefault(node, []).append(device)

    @property
    def classes(self) -> NodeGroups:
        """Nodes by what may run on them."""
        return self._free_capacity.classes

    def free(self, nodes: BoolColumn) -> list[int]:
        """Devices that nobody holds on these nodes, those of fuller nodes first."""
        lists = sorted((len(empty), node) for node, empty in self._empty.items() if empty and nodes[node])
        return [device for _, node in lists for device in reversed(self._empty[node])]

    def free_on(self, node: int) -> list[int]:
        """Devices of one node that nobody holds, in the order in which :meth:`take_empty` gives them."""
        return self._empty.get(node, [])[::-1]

    def has_empty(self, pieces: Iterable[NodeAllocation]) -> bool:
        """Whether nobody holds as many devices of these nodes as the pieces say."""
        return all(len(self._empty.get(piece.node, ())) >= piece.gpus for piece in pieces)

    def take_empty(self, pieces: Iterable[NodeAllocation]) -> tuple[int, ...]:
        """Give a job empty devices of these nodes, as many as its pieces say; the room is to be held apart."""
        devices = [self._empty[piece.node].pop() for piece in pieces for _ in range(piece.gpus)]
        self.taken[devices] = True
        return tuple(sorted(devices))

    def take(self, devices: Sequence[int], pieces: Sequence[NodeAllocation]) -> JobPlacement:
        """Give a job these devices, some of which others hold; returns what it takes of the room."""
        empty: dict[int, int] = {}
        for device in devices:
            if not self.jobs_on[device]:
                node = int(self.node[device])
                self._empty[node].remove(device)
                empty[node] = empty.get(node, 0) + 1
        self.taken[list(devices)] = True
        return JobPlacement([piece._replace(gpus=empty.get(piece.node, 0)) for piece in pieces], at_once=True)

    def settle(self, row: int, devices: Sequence[int]) -> None:
        """Others may join a job in the same decision on the devices that it was given, if the mechanism can do that."""
        if self.guest_rules.limited:
            self.guest_rules.arrive(row, devices, self.jobs_on.__getitem__)
        if not self.guest_rules.mechanism.starts_together:
            return
        for device in devices:
            self.jobs_on[device].append(row)
        self.taken[list(devices)] = False

    def open_devices(self, row: int, devices: Sequence[int]) -> Sequence[int]:
        """Those of these devices that have a place left; all of them where these are too few for a job."""
        most = self.guest_rules.mechanism.jobs_per_gpu
        left = [device for device in devices if not self.taken[device] and len(self.jobs_on[device]) < most]
        return left if len(left) >= int(self._snapshot.jobs.gpus[row]) else devices

    def pick(
        self, row: int, shape: RequestShape, ranked: Iterable[int]
    ) -> tuple[list[int], list[NodeAllocation]] | None:
        """The first devices of a ranking that make up a job's gang, within CPUs and memory of their nodes; takes nothing.

        Where the mechanism refuses these, the first that it does not, of one of the rankings of :func:`.list_rankings`.
        """
        if not self.guest_rules.limited:
            return self._first_gang(shape, ranked)
        for ranking in list_rankings(self.guest_rules, row, shape, list(ranked), self.jobs_on.__getitem__):
            picked = self._first_gang(shape, ranking)
            if picked is not None and not self.guest_rules.refuse(row, picked[0], self.jobs_on.__getitem__):
                return picked
        return None

    def _first_gang(self, shape: RequestShape, ranked: Iterable[int]) -> tuple[list[int], list[NodeAllocation]] | None:
        chosen: dict[int, list[int]] = {}
        whole: list[int] = []  # nodes with all that an even gang wants there
        wanted = shape.units or shape.gpus * shape.nodes
        left, free_capacity = wanted, {}
        # Nodes that a split has to be on: once no more GPUs than those that are missing are left, each is on a new one.
        spread = min(shape.nodes, shape.units)
        for device in ranked:
            node = int(self.node[device])
            if node not in free_capacity:
                free_capacity[node] = min(wanted if shape.units else shape.gpus, self._units(shape, node))
            mine = chosen.get(node, [])
            if len(mine) == free_capacity[node] or (mine and len(chosen) + left <= spread):
                continue
            chosen[node] = mine
            mine.append(device)
            if shape.units:
                left -= 1
            elif len(mine) == shape.gpus:
                whole.append(node)
                left -= shape.gpus
            if not left:
                return self._gang(shape, chosen if shape.units else {node: chosen[node] for node in whole})
        return None

    def _units(self, shape: RequestShape, node: int) -> int:
        """GPUs that the node has CPUs and memory for; with a fixed number a node, all of them or none."""
        _, cpus, memory_mib = self._free_capacity.now.on(node)
        if not shape.units:
            return shape.gpus if cpus >= shape.cpus and memory_mib >= shape.memory_mib else 0
        units = cpus // shape.unit_cpus if shape.unit_cpus else shape.units
        return min(units, memory_mib // shape.unit_memory_mib) if shape.unit_memory_mib else units

    def _gang(self, shape: RequestShape, chosen: dict[int, list[int]]) -> tuple[list[int], list[NodeAllocation]] | None:
        parts = dict(sorted(chosen.items()))
        if shape.units and 0 < shape.most_nodes < len(parts):
            return None
        pieces = [
            NodeAllocation(node, len(devices), len(devices) * shape.unit_cpus, len(devices) * shape.unit_memory_mib)
            if shape.units
            else NodeAllocation(node, shape.gpus, shape.cpus, shape.memory_mib)
            for node, devices in parts.items()
        ]
        return sorted(device for devices in parts.values() for device in devices), pieces


def jobs_on_devices(gpu_occupancy: GpuOccupancy, devices: Iterable[int]) -> list[int]:
    """Running jobs on any of these devices, ascending."""
    return sorted({row for device in devices for row in gpu_occupancy.jobs_on[device]})


def joinable_devices(gpu_occupancy: GpuOccupancy, most: int) -> list[int]:
    """Devices with at least one running job and fewer than ``most``, that this decision has not given away."""
    taken: list[bool] = gpu_occupancy.taken.tolist()
    return [at for at, there in enumerate(gpu_occupancy.jobs_on) if there and len(there) < most and not taken[at]]
