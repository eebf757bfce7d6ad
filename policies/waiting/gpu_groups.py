"""Jobs that share GPUs, as one holder: a GPU is free once all who are on it have left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

STATES_HOLDING_RESOURCES = (JobState.RUNNING, JobState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Holder:
    """Jobs that run on common GPUs, directly or through others; as a rule one job."""

    rows: tuple[int, ...]
    pieces: list[NodeAllocation]
    """GPUs that several of them hold count once."""
    limit_s: float
    """When the last of them ends, whether it can be requeued or not."""
    end_s: float
    """The same where those make way that can be requeued; negative infinity where all do at once."""

    @property
    def makes_way(self) -> bool:
        """Whether all of them can be requeued now."""
        return self.end_s == float("-inf")


def list_holders(snapshot: ClusterSnapshot, limits_s: FloatColumn, ways_s: FloatColumn) -> list[Holder]:
    """All who run or are suspended, in the order of their first row.

    Args:
        limits_s: of each row, when it ends at the latest.
        ways_s: the same where it makes way if it can be requeued; negative infinity: at once.

    O(jobs + nodes held), and O(GPUs held) where they are known one by one.
    """
    rows = np.flatnonzero(np.isin(snapshot.jobs.state, STATES_HOLDING_RESOURCES))
    pieces = _pieces_of(snapshot, rows)
    groups, devices = {row: [row] for row in rows.tolist()}, {}
    if isinstance(snapshot, SharingSnapshot):
        devices = {row: snapshot.devices.of(row).tolist() for row in rows.tolist()}
        groups = _join_sharing(devices)
    found = []
    for first, group in groups.items():
        limit_s, end_s = float(limits_s[group].max()), float(ways_s[group].max())
        held = pieces[first]
        if len(group) > 1:
            assert isinstance(snapshot, SharingSnapshot)
            held = _add_up([pieces[row] for row in group], [devices[row] for row in group], snapshot.devices.first)
            end_s = end_s if snapshot.mechanism.preempts_hosts else limit_s
        found.append(Holder(tuple(group), held, limit_s, end_s))
    return found


def _pieces_of(snapshot: ClusterSnapshot, rows: IntColumn) -> dict[int, list[NodeAllocation]]:
    jobs = snapshot.jobs
    owner, entry = find_allocation_entries(jobs, rows)
    memory_mib = split_memory_mib(jobs, owner, entry)
    found: dict[int, list[NodeAllocation]] = {row: [] for row in rows.tolist()}
    columns = (jobs.alloc_node[entry], jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib)
    for row, *values in zip(owner.tolist(), *(column.tolist() for column in columns), strict=True):
        found[row].append(NodeAllocation(*values))
    return found


def _join_sharing(devices: dict[int, list[int]]) -> dict[int, list[int]]:
    """Rows by the first of those with which they share, themselves included."""
    root = {row: row for row in devices}

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    on: dict[int, int] = {}
    for row, held in devices.items():
        for device in held:
            one, other = sorted((find(row), find(on.setdefault(device, row))))
            root[other] = one
    groups: dict[int, list[int]] = {}
    for row in devices:
        groups.setdefault(find(row), []).append(row)
    return groups


def _add_up(pieces: list[list[NodeAllocation]], devices: list[list[int]], first: IntColumn) -> list[NodeAllocation]:
    """What a group holds of each node; of GPUs, as many as there are different ones."""
    together = np.unique(np.concatenate([np.array(held, dtype=np.int64) for held in devices]))
    nodes, gpus = np.unique(np.searchsorted(first, together, side="right") - 1, return_counts=True)
    of_node = dict(zip(nodes.tolist(), gpus.tolist(), strict=True))
    sums: dict[int, list[int]] = {}
    for piece in (one for held in pieces for one in held):
        total = sums.setdefault(piece.node, [0, 0])
        total[0] += piece.cpus
        total[1] += piece.memory_mib
    return [NodeAllocation(node, of_node.get(node, 0), *total) for node, total in sums.items()]
