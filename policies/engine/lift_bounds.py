"""How far a job may be lifted: up to the next job above it that it must not pass.

A decision needs to know that as well as the order of a plan: others make way in vain for a job that stays behind one for
which Slurm keeps their nodes (:mod:`.kept_nodes`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, BoolColumn, IntColumn, JobTable

BEFORE_OVERDUE = -3
"""Rank of a job that takes nothing that others could have."""
OVERDUE = -2
"""Rank of a job that nobody is lifted past: an overdue one of which the policy says nothing."""
BEFORE_ALL = -1
"""Rank of a job that the plan ranks before all others, or that the policy does not rank."""


def find_natural_priorities(jobs: JobTable) -> IntColumn:
    """Slurm's own priority of each job, without what was added; where that is not known, as it is shown."""
    return jobs.priority - np.where(jobs.site_factor != UNKNOWN_SITE_FACTOR, jobs.site_factor, 0)


@dataclass(frozen=True, slots=True)
class JobKeys:
    """Jobs as Slurm compares them: a *key* is a priority and a row in one number; the larger key goes first."""

    rows: IntColumn
    keys: IntColumn
    partition: IntColumn
    table_length: int
    """Rows are smaller than this."""

    @classmethod
    def of(cls, priority: IntColumn, rows: IntColumn, partition: IntColumn, table_length: int) -> JobKeys:
        """Their keys at these priorities."""
        return cls(rows, priority * table_length + table_length - 1 - rows, partition, table_length)

    def only(self, at: IntColumn) -> JobKeys:
        """Some of them."""
        return JobKeys(self.rows[at], self.keys[at], self.partition[at], self.table_length)

    def joined(self, other: JobKeys) -> JobKeys:
        """These jobs, and then the others, of the same table."""
        pairs = ((self.rows, other.rows), (self.keys, other.keys), (self.partition, other.partition))
        return JobKeys(*(np.concatenate(pair) for pair in pairs), self.table_length)

    def key(self, priority: int, at: int) -> int:
        """Key that a job would have with another priority."""
        return priority * self.table_length + self.table_length - 1 - int(self.rows[at])

    def above(self, key: int, at: int) -> int:
        """Least priority that puts a job before a key."""
        priority = key // self.table_length
        return priority if self.key(priority, at) > key else priority + 1

    def below(self, key: int, at: int) -> int:
        """Largest priority that puts a job behind a key."""
        priority = key // self.table_length
        return priority if self.key(priority, at) < key else priority - 1


def find_bounds(
    jobs: JobKeys,
    groups: SharedNodes,
    *,
    asking: BoolColumn,
    rank: IntColumn,
    bounding: BoolColumn,
    bounding_rank: IntColumn,
) -> IntColumn:
    """For each asking job the least key above its own among bounding jobs of smaller rank that compete with it; a number
    above all keys where there is none.

    O(n log n) for each group of nodes: from the largest key down, of its bounding jobs only those count that no nearer one
    of at most their rank hides; their ranks are sorted.

    Args:
        jobs: all jobs that are compared.
        groups: of the nodes that each may take; jobs compete if they have one in common.
        asking: for whom a bound is wanted.
        rank: of those that ask.
        bounding: jobs that may bound others.
        bounding_rank: their ranks; a job bounds those of larger rank.
    """
    bounds = np.full(len(jobs.keys), np.iinfo(np.int64).max)
    at = np.flatnonzero(asking | bounding)
    at = at[np.argsort(-jobs.keys[at])]
    seen: dict[int, tuple[list[int], list[int]]] = {}
    groups_of = {partition: groups.of_list(partition) for partition in np.unique(jobs.partition[at]).tolist()}
    for job, key, partition, asks, own, bounds_others, others in zip(
        at.tolist(),
        jobs.keys[at].tolist(),
        jobs.partition[at].tolist(),
        asking[at].tolist(),
        rank[at].tolist(),
        bounding[at].tolist(),
        bounding_rank[at].tolist(),
        strict=True,
    ):
        if asks:
            for group in groups_of[partition]:
                ranks, keys = seen.get(group, ((), ()))
                if place := bisect_left(ranks, own):
                    bounds[job] = min(int(bounds[job]), keys[place - 1])
        for group in groups_of[partition] if bounds_others else ():
            ranks, keys = seen.setdefault(group, ([], []))
            while ranks and ranks[-1] >= others:
                ranks.pop()
                keys.pop()
            ranks.append(others)
            keys.append(key)
    return bounds
