"""Which lists of partitions compete for the same nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn


@dataclass(frozen=True, slots=True)
class SharedNodes:
    """Nodes for which the same lists of partitions compete, in one tier: Slurm compares tiers before priorities.

    Two lists of partitions are *rivals* if they have a group in common. There are as many groups as the site's partitions
    make, however many lists its users combine them to, so work by group is not work by pair of lists.
    """

    members: BoolColumn
    """By the code of a list of partitions, and by group, whether its jobs may take the group's nodes."""

    @classmethod
    def of(cls, partitions: IntColumn, snapshot: ClusterSnapshot) -> SharedNodes:
        """Groups of these lists of partitions, the other lists being in none.

        A list with a partition of unknown tier counts in every tier.
        """
        rows = (row[partitions] for row in snapshot.nodes.in_partition)
        kinds = {row.tobytes(): row for row in rows}  # of nodes, by the lists that have them
        may_take = np.array(list(kinds.values()), dtype=np.bool_).reshape(-1, len(partitions))
        tiers = _tiers([snapshot.partitions[code] for code in partitions.tolist()], snapshot)
        groups = np.concatenate([may_take & of_tier for of_tier in tiers])
        groups = groups[groups.any(axis=1)]
        members = np.zeros((len(snapshot.partitions), len(groups)), dtype=np.bool_)
        members[partitions] = groups.T
        return cls(members)

    def of_list(self, partition: int) -> list[int]:
        """The groups of one list of partitions; one that is nobody else's for a list without nodes."""
        return np.flatnonzero(self.members[partition]).tolist() or [-1 - partition]

    def rivals(self, partition: int) -> BoolColumn:
        """Of all lists of partitions those whose jobs may take the nodes of one, itself included."""
        found: BoolColumn = np.any(self.members[:, self.members[partition]], axis=1)
        found[partition] = True
        return found


def _tiers(lists: Sequence[str], snapshot: ClusterSnapshot) -> BoolColumn:
    """By tier, and by list of partitions, whether the list counts in the tier; the last tier is that of unknown ones."""
    known = {part.name: part.tier for part in snapshot.pools.table} | dict(snapshot.tiers)
    row = {tier: at for at, tier in enumerate(sorted(set(known.values())))}
    found = np.zeros((len(row) + 1, len(lists)), dtype=np.bool_)
    for at, names in enumerate(lists):
        rows = [row[known[name]] if name in known else -1 for name in names.split(",")]
        found[slice(None) if -1 in rows else rows, at] = True
    return found
