"""Who holds which GPU, guests that still wait among them, by what Slurm says of jobs and nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.daemon.sharing.node_guards import NodeGuards
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.snapshot import GpuDevices
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable
from slurm_soda.slurm_ext.client import Allocation, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.slurm_values import parse_gpu_request, parse_shared_indices


@dataclass(frozen=True, slots=True)
class GuestPlacement:
    """Where a waiting job whose request is that of a guest will be."""

    row: int
    """Of the job table."""
    nodes: tuple[int, ...]
    """Rows of the node table."""
    devices: tuple[int, ...]
    """Those that it shares."""
    own: int
    """Idle GPUs on each node beside them."""


@dataclass(frozen=True, slots=True)
class DeviceReader:
    """One reading of Slurm: records are those of the job table, nodes those of the node table, in their order."""

    snapshot: ClusterSnapshot
    records: Sequence[SlurmJob]
    nodes: Sequence[SlurmNode]
    allocations: Mapping[int, Allocation]
    shared_gres: str
    guards: NodeGuards

    def find_devices(self, known: KindProfiles) -> tuple[GpuDevices, list[GuestPlacement]]:
        """Who holds which GPU. Those that are in use, and of which Slurm did not tell by whom, are nobody's to give away.

        Guests that wait hold their GPUs already; where they wait in vain, because nobody who stays runs there or another
        guest does, they do not.
        """
        gpus = self.snapshot.nodes.gpus
        first = np.concatenate(([0], np.cumsum(gpus))).astype(np.int64)
        held, dark = self._held(first)
        hosted = self._hosted(held)
        joinable = hosted - {device for mine in held.values() for device, is_guest in mine.items() if is_guest}
        guests = []
        for guest in self._waiting(first):
            if joinable.issuperset(guest.devices):
                held[guest.row] = dict.fromkeys(guest.devices, True)
                joinable.difference_update(guest.devices)
                guests.append(guest)
        devices = self._columns(first, held, known)
        unavailable = self._unavailable(first, dark)
        unavailable[devices.held] = False
        for device in _own_gpus(guests, first, unavailable, devices.held):
            unavailable[device] = True
        return replace(devices, unavailable=unavailable, shareable=self._shareable(first, hosted, held)), guests

    def _held(self, first: IntColumn) -> tuple[dict[int, dict[int, bool]], set[int]]:
        """By row of the job: its devices, and whether it is a guest there; rows of nodes of which not all is known."""
        row_of = {node.name: row for row, node in enumerate(self.nodes)}
        held: dict[int, dict[int, bool]] = {}
        dark: set[int] = set()
        for row, record in enumerate(self.records):
            for on in self.allocations.get(record.job_id, ()) if record.state != "PENDING" else ():
                node = row_of.get(on.node)
                if node is None:
                    continue
                if on.devices is None or max(on.devices, default=-1) >= self.nodes[node].gpus:
                    dark.add(node)
                    continue
                mine = held.setdefault(row, {})
                mine |= {int(first[node]) + index: index in on.shared_indices for index in on.devices}
        return held, dark

    def _hosted(self, held: Mapping[int, Mapping[int, bool]]) -> set[int]:
        """Devices whose plain holder runs, stays, and has begun."""
        state = self.snapshot.jobs.state
        return {
            device
            for row, mine in held.items()
            if state[row] == JobState.RUNNING and self.records[row].state == "RUNNING"
            for device, is_guest in mine.items()
            if not is_guest
        }

    def _waiting(self, first: IntColumn) -> list[GuestPlacement]:
        row_of = {node.name: row for row, node in enumerate(self.nodes)}
        found = []
        for row, record in enumerate(self.records):
            if record.state != "PENDING" or not record.shared_gpus:
                continue
            asked = f"{record.tres_per_node},{record.tres_per_job}"
            indices, own = parse_shared_indices(asked, self.shared_gres), parse_gpu_request(asked)[0]
            try:
                nodes = tuple(row_of[name] for name in expand_hosts(record.req_node_names))
            except (SodaError, KeyError):
                continue
            if nodes and indices and all(max(indices) < self.nodes[node].gpus for node in nodes):
                devices = tuple(int(first[node]) + index for node in sorted(nodes) for index in indices)
                found.append(GuestPlacement(row, nodes, devices, own))
        return found

    def _columns(self, first: IntColumn, held: Mapping[int, Mapping[int, bool]], known: KindProfiles) -> GpuDevices:
        rows = [sorted(held[row].items()) for row in sorted(held)]
        counts = np.zeros(len(self.records) + 1, dtype=np.int64)
        counts[np.array(sorted(held), dtype=np.int64) + 1] = [len(mine) for mine in rows]
        told = {gpu_type: known.device_mib(gpu_type) for gpu_type in {node.gpu_type for node in self.nodes}}
        by_type = {gpu_type: math.inf if found is None else found.value for gpu_type, found in told.items()}
        memory_mib = [by_type[node.gpu_type] for node in self.nodes]
        return GpuDevices(
            first,
            np.repeat(np.array(memory_mib, dtype=np.float64), np.diff(first)),
            np.cumsum(counts),
            np.array([device for mine in rows for device, _ in mine], dtype=np.int64),
            guest=np.array([is_guest for mine in rows for _, is_guest in mine], dtype=np.bool_),
        )

    def _unavailable(self, first: IntColumn, dark: set[int]) -> BoolColumn:
        unavailable = np.zeros(int(first[-1]), dtype=np.bool_)
        for row, node in enumerate(self.nodes):
            if node.gpus_in_use is None or row in dark:
                unavailable[first[row] : first[row + 1]] = True
            else:
                unavailable[[first[row] + index for index in node.gpus_in_use]] = True
        return unavailable

    def _shareable(self, first: IntColumn, hosted: set[int], held: Mapping[int, Mapping[int, bool]]) -> BoolColumn:
        """Devices of hosts that can be guarded, on nodes that start jobs: not while one completes, that is until its epilog
        has ended.
        """
        completing = set[str]()
        for record in self.records:
            if record.state == "COMPLETING":
                try:
                    completing.update(expand_hosts(record.node_names))
                except SodaError:
                    continue
        shareable = np.zeros(int(first[-1]), dtype=np.bool_)
        for row, node in enumerate(self.nodes):
            if node.usable and node.name not in completing:
                shareable[[first[row] + index for index in node.shareable if first[row] + index in hosted]] = True
        for row, mine in held.items():
            for device, is_guest in mine.items():
                if not is_guest and shareable[device]:
                    node = self.nodes[int(np.searchsorted(first, device, side="right")) - 1]
                    shareable[device] = not self.guards.why_unguarded(node.name, self.records[row].job_id)
        return shareable


def _own_gpus(
    guests: Sequence[GuestPlacement],
    first: IntColumn,
    unavailable: BoolColumn,
    held: IntColumn,
) -> set[int]:
    """Idle GPUs that waiting guests get beside those that they share: Slurm gives the lowest free ones of a node."""
    wanted: Counter[int] = Counter()
    for guest in guests:
        wanted.update(dict.fromkeys(guest.nodes, guest.own))
    taken = frozenset(held.tolist())
    found: set[int] = set()
    for node, count in wanted.items():
        free = (at for at in range(int(first[node]), int(first[node + 1])) if not unavailable[at] and at not in taken)
        found.update(device for device, _ in zip(free, range(count), strict=False))
    return found


def without_guests(nodes: NodeTable, snapshot: ClusterSnapshot, guests: Sequence[GuestPlacement]) -> NodeTable:
    """The nodes without the CPUs and the memory that guests which wait will take."""
    cpus, memory_mib, jobs = nodes.cpus_free.copy(), nodes.memory_free_mib.copy(), snapshot.jobs
    for guest in guests:
        for node in guest.nodes:
            cpus[node] -= -(-int(jobs.cpus[guest.row]) // len(guest.nodes))
            memory_mib[node] -= -(-int(jobs.memory_mib[guest.row]) // len(guest.nodes))
    return replace(nodes, cpus_free=np.maximum(cpus, 0), memory_free_mib=np.maximum(memory_mib, 0))
