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


LEAST_PRIORITY = 1
"""Slurm shows this of a job that would have less, as by a large ``--nice``, and sorts by it: 0 is for held ones."""


def find_natural_priorities(jobs: JobTable) -> IntColumn:
    """Slurm's own priority of each job as it is shown without what was added; where that is not known, as it is shown."""
    natural = jobs.priority - np.where(jobs.site_factor != UNKNOWN_SITE_FACTOR, jobs.site_factor, 0)
    found: IntColumn = np.maximum(natural, np.minimum(jobs.priority, LEAST_PRIORITY))
    return found


def find_tie_places(jobs: JobTable) -> IntColumn:
    """Place of each job among all where Slurm's priorities are equal: by the time of its submission, which a requeue moves,
    then by id, a task of an array by the array's (``sort_job_queue2`` in Slurm's source).
    """
    queued_s = jobs.queued_s if len(jobs.queued_s) else jobs.submit_s
    found = np.empty(len(jobs), dtype=np.int64)
    # Rows are by id, and both ways of sorting are stable.
    order = np.lexsort((jobs.id_place, queued_s)) if len(jobs.id_place) else np.argsort(queued_s, kind="stable")
    found[order] = np.arange(len(jobs))
    return found


@dataclass(frozen=True, slots=True)
class JobKeys:
    """Jobs as Slurm compares them: a *key* is a priority and a place among equals in one number; the larger key goes
    first.
    """

    rows: IntColumn
    ties: IntColumn
    """Their places among jobs of equal priority."""
    keys: IntColumn
    partition: IntColumn
    table_length: int
    """Places are smaller than this."""

    @classmethod
    def of(cls, priority: IntColumn, rows: IntColumn, partition: IntColumn, tie_places: IntColumn) -> JobKeys:
        """Their keys at these priorities; ``tie_places`` are those of the whole table (:func:`find_tie_places`)."""
        length, ties = len(tie_places), tie_places[rows]
        return cls(rows, ties, priority * length + length - 1 - ties, partition, length)

    def only(self, at: IntColumn) -> JobKeys:
        """Some of them."""
        return JobKeys(self.rows[at], self.ties[at], self.keys[at], self.partition[at], self.table_length)

    def joined(self, other: JobKeys) -> JobKeys:
        """These jobs, and then the others, of the same table."""
        return JobKeys(
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.ties, other.ties)),
            np.concatenate((self.keys, other.keys)),
            np.concatenate((self.partition, other.partition)),
            self.table_length,
        )

    def key(self, priority: int, at: int) -> int:
        """Key that a job would have with another priority."""
        return priority * self.table_length + self.table_length - 1 - int(self.ties[at])

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
