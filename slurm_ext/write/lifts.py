"""The least lifts: priorities just above those of the jobs that are passed (see :mod:`.site_factors`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn
from slurm_soda.slurm_ext.write.competition import find_larger, find_rivals, find_startable_soon

PRIORITY_CEILING = 2_000_000_000
"""No job is lifted above this, and none above a job that is: other components and Slurm's 32 bits need room."""

PRIORITY_SPACING = 16
"""Distance of a lifted job from the next one below it, where there is room: Slurm's own numbers waver by one with their
rounding, and a job that comes in between later needs one update."""


UNKNOWN_SITE_FACTOR = -(2**62)
"""Stands in a snapshot for a SiteFactor that Slurm does not tell (sprio leaves out jobs before their begin time)."""

_NOBODY = -1
"""Below the key of every job."""


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """Waiting jobs that Slurm compares with each other, by id."""

    leading: IntColumn
    """Those that start now, then those whose places are being vacated, most urgent first."""
    waiting: IntColumn
    """Those that do not fit now, most urgent first."""
    unranked: IntColumn
    """Those about which the policy has nothing to say: never lifted, and passed only by those that lead."""
    never: IntColumn
    """Those that no nodes could hold; they are treated alike, however long they have waited."""
    others: IntColumn
    """Those that are not eligible."""


@dataclass(frozen=True)
class LiftWalk:
    """The jobs that are looked at one by one, in the plan's order, as lists (:mod:`.site_factors` says what is done).

    A *key* is a priority and a row in one number; the larger key goes first in Slurm.
    """

    rows: list[int]
    natural: list[int]
    """Priority without SiteFactor."""
    present: list[int]
    leads: list[bool]
    liftable: list[bool]
    passable: list[bool]
    """It must not stand before a waiting job of its size or smaller that is before it in the plan."""
    partition: list[int]
    size: list[int]
    """Number of its request among the different ones."""
    rivals: Mapping[int, list[int]]
    """For each partition those whose jobs may take its nodes, itself included."""
    larger: Mapping[int, list[int]]
    """For each size those that fit nowhere where it does not, itself included."""
    nice: list[int]
    barriers: Mapping[int, list[int]]
    """For each partition the keys of jobs that nobody is lifted past, ascending."""
    table_length: int
    known_less_nice: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, queue: WaitingQueue, snapshot: ClusterSnapshot, depth: int, limit_s: float) -> LiftWalk | None:
        """Choose the jobs; ``None`` if nobody is to be lifted. Arguments as of :func:`.compute_site_factors`."""
        jobs = snapshot.jobs
        parts = (queue.leading, queue.waiting, queue.unranked, queue.never)
        rows = np.searchsorted(jobs.job_id, np.concatenate(parts))
        part = np.repeat(np.arange(len(parts)), [len(one) for one in parts])
        known = jobs.site_factor[rows] != UNKNOWN_SITE_FACTOR
        natural = jobs.priority[rows] - np.where(known, jobs.site_factor[rows], 0)
        known &= natural < PRIORITY_CEILING
        rows, part, natural = rows[known], part[known], natural[known]
        leads, ranked = part == 0, part <= 1
        overdue = ((part == 1) | (part == 2)) & (jobs.waited_s[rows] >= limit_s)
        if not len(rows):
            return None
        ascending = np.sort(rows)
        demand = group_snapshot_requests(replace(snapshot, jobs=jobs.only(ascending)))
        size = demand.code[np.searchsorted(ascending, rows)]
        partition = jobs.partition[rows]
        liftable = ranked & (leads | find_startable_soon(size, leads, demand.shapes, snapshot))
        liftable &= np.cumsum(liftable) <= depth
        if not liftable.any():
            return None
        kept = np.flatnonzero(liftable | (_natural_rank(natural, rows, partition, ~liftable) < depth))
        return cls(
            rows[kept].tolist(),
            natural[kept].tolist(),
            jobs.priority[rows[kept]].tolist(),
            leads[kept].tolist(),
            liftable[kept].tolist(),
            ranked[kept].tolist(),
            partition[kept].tolist(),
            size[kept].tolist(),
            find_rivals(np.unique(partition[kept]), snapshot),
            find_larger(np.unique(size[kept]).tolist(), demand.shapes),
            jobs.nice[rows[kept]].tolist() if len(jobs.nice) else [0] * len(kept),
            _keys_by_partition(natural, rows, partition, len(jobs), overdue),
            len(jobs),
        )

    def priorities(self) -> dict[int, int]:
        """Priorities by row, of jobs that are lifted."""
        limits = [self._limit(at) for at in range(len(self.rows))]
        lifted, placed, passed = self._lifted(limits)
        return self._assign(lifted, self._most(lifted, placed, limits), passed)

    def _limit(self, at: int) -> int:
        """Key of the first job above this one past which it may not be lifted, or that of the ceiling."""
        key = self._key(self.natural[at], at)
        rivals = self.rivals[self.partition[at]]
        above = [self.barriers.get(rival, []) for rival in rivals]
        if self.nice[at] > min(self.nice):
            less_nice = self._less_nice(self.nice[at])
            above += [less_nice.get(rival, []) for rival in rivals]
        found = [keys[place] for keys in above if (place := bisect_right(keys, key)) < len(keys)]
        return min(found, default=self._key(PRIORITY_CEILING, 0))

    def _key(self, priority: int, at: int) -> int:
        return priority * self.table_length + self.table_length - 1 - self.rows[at]

    def _above(self, key: int, at: int) -> int:
        """Least priority that puts a job before a key."""
        priority = key // self.table_length
        return priority if self._key(priority, at) > key else priority + 1

    def _below(self, key: int, at: int) -> int:
        """Largest priority that puts a job behind a key."""
        priority = key // self.table_length
        return priority if self._key(priority, at) < key else priority - 1

    def _less_nice(self, nice: int) -> Mapping[int, list[int]]:
        """For each partition the keys of jobs that are less nice, ascending."""
        if nice not in self.known_less_nice:
            keys = self.known_less_nice.setdefault(nice, {})
            for at, other in enumerate(self.nice):
                if other < nice:
                    keys.setdefault(self.partition[at], []).append(self._key(self.natural[at], at))
            for found in keys.values():
                found.sort()
        return self.known_less_nice[nice]

    def _lifted(self, limits: Sequence[int]) -> tuple[list[bool], list[bool], list[int]]:
        """Who must be lifted, who then has its place, and the largest natural priority that each passes; from the last job.

        A job that would have to pass its limit is not lifted at all. One that has a lift keeps it while its natural priority
        is within one spacing of needing it, so that rounding does not make it come and go.
        """
        lifted, placed, passed = [False] * len(self.rows), [False] * len(self.rows), list(self.natural)
        tops, highest = _Extremes(self, _NOBODY), _Extremes(self, 0)
        for at in reversed(range(len(self.rows))):
            natural, key = self.natural[at], self._key(self.natural[at], at)
            if self.liftable[at]:
                low = tops.largest_passed(at)
                near = self.present[at] > natural and natural <= low // self.table_length + PRIORITY_SPACING
                reached = max(key, self._key(self._above(low, at), at))
                lifted[at] = (key < low or (near and low != _NOBODY)) and reached < limits[at]
                placed[at] = lifted[at] or key > low
            if lifted[at]:
                key, passed[at] = reached, max(natural, highest.largest_passed(at))
            tops.raise_to(at, key)
            highest.raise_to(at, passed[at])
        return lifted, placed, passed

    def _most(self, lifted: Sequence[bool], placed: Sequence[bool], limits: Sequence[int]) -> list[int]:
        """How high each job may go without forcing up one that needs no lift, from the first job to the last."""
        most = []
        bottoms = _Extremes(self, self._key(PRIORITY_CEILING, 0))
        for at in range(len(self.rows)):
            above = min(bottoms.least_passing(at), limits[at])
            most.append(self._below(above, at) if lifted[at] else self.natural[at])
            if placed[at]:
                bottoms.lower_to(at, self._key(most[at], at))
        return most

    def _assign(self, lifted: list[bool], most: list[int], passed: list[int]) -> dict[int, int]:
        """Priorities of lifted jobs, from the last to the first; a present one that will do is kept."""
        wanted: dict[int, int] = {}
        tops = _Extremes(self, _NOBODY)
        ahead, naturals = self._ahead(lifted), [*sorted(self.natural), 2 * PRIORITY_CEILING]
        for at in reversed(range(len(self.rows))):
            priority = self.natural[at]
            if lifted[at]:
                low = tops.largest_passed(at)
                least, start = max(self._above(low, at), self.natural[at]), low // self.table_length
                height = passed[at] + PRIORITY_SPACING * (len(wanted) + 2)
                priority = self.present[at]
                if not least <= priority <= min(most[at], height):
                    gap = (ahead[at] - start) // 2 if ahead[at] > least else PRIORITY_SPACING
                    beyond = naturals[bisect_right(naturals, start)] - 1
                    priority = max(min(start + min(gap, PRIORITY_SPACING), most[at], beyond), least)
                wanted[self.rows[at]] = priority
            tops.raise_to(at, self._key(priority, at))
        return wanted

    def _ahead(self, lifted: list[bool]) -> list[int]:
        """Present priority of the next lifted job before each that is compared with it; 0 where there is none."""
        last: dict[int, int] = {}
        found = []
        for at in range(len(self.rows)):
            line = -1 if self.leads[at] else self.size[at]
            found.append(last.get(line, 0))
            if lifted[at]:
                last[line] = self.present[at]
        return found


class _Extremes:
    """Largest or smallest numbers seen so far of the jobs that a job passes, or that pass it."""

    def __init__(self, walk: LiftWalk, start: int) -> None:
        self._walk = walk
        self._of_partition = dict.fromkeys(walk.rivals, start)
        self._of_size = dict.fromkeys(walk.larger, start)
        self._smaller: dict[int, list[int]] = {size: [] for size in walk.larger}
        for size, others in walk.larger.items():
            for other in others:
                self._smaller[other].append(size)

    def largest_passed(self, at: int) -> int:
        """Of the jobs behind this one that it must pass."""
        walk = self._walk
        if walk.leads[at]:
            return max(self._of_partition[rival] for rival in walk.rivals[walk.partition[at]])
        return max(self._of_size[other] for other in walk.larger[walk.size[at]])

    def raise_to(self, at: int, number: int) -> None:
        """One more job that those before it may have to pass."""
        walk, partition, size = self._walk, self._walk.partition[at], self._walk.size[at]
        self._of_partition[partition] = max(self._of_partition[partition], number)
        if walk.passable[at] and not walk.leads[at]:
            self._of_size[size] = max(self._of_size[size], number)

    def least_passing(self, at: int) -> int:
        """Of the jobs before this one that must pass it."""
        walk = self._walk
        least = min(self._of_partition[rival] for rival in walk.rivals[walk.partition[at]])
        if walk.passable[at] and not walk.leads[at]:
            least = min([least, *(self._of_size[other] for other in self._smaller[walk.size[at]])])
        return least

    def lower_to(self, at: int, number: int) -> None:
        """One more job that may have to pass those behind it."""
        walk, partition, size = self._walk, self._walk.partition[at], self._walk.size[at]
        if walk.leads[at]:
            self._of_partition[partition] = min(self._of_partition[partition], number)
        else:
            self._of_size[size] = min(self._of_size[size], number)


def _natural_rank(natural: IntColumn, rows: IntColumn, partition: IntColumn, among: BoolColumn) -> IntColumn:
    """Place of each job among those of its partition, by natural priority; the largest number for those left out."""
    at = np.flatnonzero(among)
    by_rank = at[np.lexsort((rows[at], -natural[at], partition[at]))]
    found = np.full(len(natural), np.iinfo(np.int64).max)
    found[by_rank] = np.arange(len(by_rank)) - np.searchsorted(partition[by_rank], partition[by_rank])
    return found


def _keys_by_partition(
    natural: IntColumn, rows: IntColumn, partition: IntColumn, length: int, among: BoolColumn
) -> dict[int, list[int]]:
    """Keys of the jobs among them, ascending, as :meth:`LiftWalk._key` makes them."""
    keys: dict[int, list[int]] = {}
    for code, key in zip(
        partition[among].tolist(), (natural * length + length - 1 - rows)[among].tolist(), strict=True
    ):
        keys.setdefault(code, []).append(key)
    return {code: sorted(found) for code, found in keys.items()}
