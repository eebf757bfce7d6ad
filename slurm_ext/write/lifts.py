"""The least lifts: priorities just above those of the jobs that are passed (see :mod:`.site_factors`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn
from slurm_soda.slurm_ext.write.competition import find_larger, find_rivals, find_startable_soon
from slurm_soda.slurm_ext.write.lift_bounds import BEFORE_ALL, OVERDUE, JobKeys, find_bounds

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
    rank: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The policy's rank of those that lead and of those that wait, one after the other; :data:`.BEFORE_ALL` for a job that
    may skip all others. Empty: as they are listed, so that nobody skips anybody."""
    skippable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Of the same jobs, those that do not fit now and have no place in sight. Empty: those that wait."""


@dataclass(frozen=True, slots=True)
class LiftLimits:
    """How many jobs are lifted, and past whom."""

    depth: int
    passing_s: float
    """Nobody is lifted past a job that has waited so long."""
    skipping_s: float
    """Nobody is lifted past a job of smaller rank that does not fit and has waited so long."""


@dataclass(frozen=True)
class LiftWalk:
    """The jobs that are looked at one by one, in the plan's order (:mod:`.site_factors` says what is done)."""

    jobs: JobKeys
    natural: IntColumn
    """Priority without SiteFactor."""
    present: IntColumn
    leads: BoolColumn
    liftable: BoolColumn
    passable: BoolColumn
    """It must not stand before a waiting job of its size or smaller that is before it in the plan."""
    rank: IntColumn
    skipped: BoolColumn
    """Nobody of larger rank is lifted past it."""
    bound: IntColumn
    """Key of the first job above each past which it may not be lifted, whoever else is lifted."""
    size: IntColumn
    """Number of its request among the different ones."""
    rivals: Mapping[int, Sequence[int]]
    """For each partition those whose jobs may take its nodes, itself included."""
    larger: Mapping[int, Sequence[int]]
    """For each size those that fit nowhere where it does not, itself included."""

    @classmethod
    def of(cls, queue: WaitingQueue, snapshot: ClusterSnapshot, limits: LiftLimits) -> LiftWalk | None:
        """Choose the jobs; ``None`` if nobody is to be lifted."""
        jobs = snapshot.jobs
        parts = (queue.leading, queue.waiting, queue.unranked, queue.never)
        rows = np.searchsorted(jobs.job_id, np.concatenate(parts))
        part = np.repeat(np.arange(len(parts)), [len(one) for one in parts])
        known = jobs.site_factor[rows] != UNKNOWN_SITE_FACTOR
        natural = jobs.priority[rows] - np.where(known, jobs.site_factor[rows], 0)
        known &= natural < PRIORITY_CEILING
        rank, skippable = _ranks(queue, part)
        rows, part, natural, rank, skippable = rows[known], part[known], natural[known], rank[known], skippable[known]
        if not len(rows):
            return None
        leads, ranked, waited_s = part == 0, part <= 1, jobs.waited_s[rows]
        ascending = np.sort(rows)
        demand = group_snapshot_requests(replace(snapshot, jobs=jobs.only(ascending)))
        size = demand.code[np.searchsorted(ascending, rows)]
        partition = jobs.partition[rows]
        liftable = ranked & (leads | find_startable_soon(size, leads, demand.shapes, snapshot))
        liftable &= np.cumsum(liftable) <= limits.depth
        if not liftable.any():
            return None
        rivals = find_rivals(np.unique(partition), snapshot)
        overdue = ((part == 1) | (part == 2)) & (waited_s >= limits.passing_s)
        skipped = skippable & (waited_s >= limits.skipping_s)
        keys = JobKeys.of(natural, rows, partition, len(jobs))
        bound = find_bounds(
            keys,
            rivals,
            asking=liftable,
            rank=rank,
            bounding=overdue | (skipped & ~liftable),
            bounding_rank=np.where(overdue, OVERDUE, rank),
            unbounded=PRIORITY_CEILING * len(jobs),
        )
        kept = np.flatnonzero(liftable | (_natural_rank(natural, rows, partition, ~liftable) < limits.depth))
        keys = JobKeys(rows[kept], keys.keys[kept], partition[kept], len(jobs))
        nice = jobs.nice[rows[kept]] if len(jobs.nice) else natural[:0]
        if len(nice) and np.ptp(nice):
            everybody = np.ones(len(kept), dtype=np.bool_)
            less_nice = find_bounds(
                keys,
                rivals,
                asking=liftable[kept],
                rank=nice,
                bounding=everybody,
                bounding_rank=nice,
                unbounded=PRIORITY_CEILING * len(jobs),
            )
            bound[kept] = np.minimum(bound[kept], less_nice)
        return cls(
            keys,
            natural[kept],
            jobs.priority[rows[kept]],
            leads[kept],
            liftable[kept],
            ranked[kept],
            rank[kept],
            skipped[kept],
            bound[kept],
            size[kept],
            rivals,
            find_larger(np.unique(size[kept]).tolist(), demand.shapes),
        )

    def priorities(self) -> dict[int, int]:
        """Priorities by row, of jobs that are lifted."""
        solution = _LeastLifts(self)
        return solution.assign(solution.find_most())

    def must_pass(self, at: int) -> BoolColumn:
        """Jobs behind this one in the plan that may take what it waits for, or are in its way."""
        if self.leads[at]:
            found = self.competes(at)
        else:
            among = np.zeros(int(self.size.max()) + 1, dtype=np.bool_)
            among[self.larger[int(self.size[at])]] = True
            found = self.passable & among[self.size]
        found[: at + 1] = False
        return found

    def competes(self, at: int) -> BoolColumn:
        """Jobs that may take the same nodes."""
        partition = self.jobs.partition
        among = np.zeros(int(partition.max()) + 1, dtype=np.bool_)
        among[self.rivals[int(partition[at])]] = True
        return among[partition]


class _LeastLifts:
    """The solution from the last job to the first; whom each job passes in it."""

    def __init__(self, walk: LiftWalk) -> None:
        self._walk = walk
        self._order = np.flatnonzero(walk.liftable).tolist()
        self._reached = walk.jobs.keys.copy()
        """Least key of each job in the solution."""
        self._bound = walk.bound.copy()
        self._lifted = np.zeros(len(walk.natural), dtype=np.bool_)
        self._passed = walk.natural.copy()
        """Largest natural priority among those that each passes."""
        self._passes: dict[int, BoolColumn] = {}
        self._bound_those_that_wait()
        for at in reversed(self._order):
            self._lift(at)

    def _top(self, at: int) -> int:
        """Largest key that a job may have."""
        jobs = self._walk.jobs
        return max(jobs.key(jobs.below(int(self._bound[at]), at), at), int(jobs.keys[at]))

    def _bound_those_that_wait(self) -> None:
        """From the first job to the last: one that waits is not lifted past another before it, unless that one is as well.

        That one is lifted as well if it must pass this one, as far as its own bound.
        """
        walk, keys = self._walk, self._walk.jobs.keys
        for at in self._order:
            if walk.skipped[at]:
                if walk.leads[at]:
                    self._bound_one_that_leads(at)
                behind = ~walk.leads & (walk.rank > walk.rank[at]) & (keys < keys[at]) & walk.competes(at)
                bound = np.where(walk.must_pass(at), self._top(at), keys[at])
                np.minimum(self._bound, bound, out=self._bound, where=behind)

    def _bound_one_that_leads(self, at: int) -> None:
        """Not lifted past one of smaller rank that waits."""
        walk = self._walk
        ahead = walk.skipped & (walk.rank < walk.rank[at]) & (walk.jobs.keys > walk.jobs.keys[at]) & walk.competes(at)
        self._bound[at] = self._reached[ahead].min(initial=self._bound[at])

    def _lift(self, at: int) -> None:
        """A job that has a lift keeps it while its natural priority is within one spacing of needing it, so that rounding
        does not make it come and go.
        """
        walk, jobs = self._walk, self._walk.jobs
        if walk.leads[at]:
            self._bound_one_that_leads(at)
        passes = walk.must_pass(at)
        passes &= self._reached < self._top(at)
        self._passes[at] = passes
        low = int(self._reached[passes].max(initial=_NOBODY))
        key, natural = int(jobs.keys[at]), int(walk.natural[at])
        near = low != _NOBODY and walk.present[at] > natural and natural <= low // jobs.table_length + PRIORITY_SPACING
        if key < low or near:
            self._lifted[at] = True
            self._reached[at] = max(key, jobs.key(jobs.above(low, at), at))
            self._passed[at] = self._passed[passes].max(initial=natural)

    def find_most(self) -> IntColumn:
        """How high each job may go without forcing up one that needs no lift, from the first job to the last."""
        walk, jobs = self._walk, self._walk.jobs
        most, bottoms = walk.natural.copy(), self._bound.copy()
        for at in self._order:
            if self._lifted[at]:
                most[at] = jobs.below(int(bottoms[at]), at)
            key = jobs.key(int(most[at]), at)
            np.minimum(bottoms, key, out=bottoms, where=self._passes[at])
        return most

    def assign(self, most: IntColumn) -> dict[int, int]:
        """Priorities of lifted jobs, from the last to the first; a present one that will do is kept."""
        walk, jobs = self._walk, self._walk.jobs
        wanted: dict[int, int] = {}
        keys = jobs.keys.copy()
        ahead, naturals = self._ahead(), [*np.sort(walk.natural).tolist(), 2 * PRIORITY_CEILING]
        for at in reversed(self._order):
            if not self._lifted[at]:
                continue
            low, top = int(keys[self._passes[at]].max(initial=_NOBODY)), int(most[at])
            least, start = max(jobs.above(low, at), int(walk.natural[at])), low // jobs.table_length
            height = int(self._passed[at]) + PRIORITY_SPACING * (len(wanted) + 2)
            priority = int(walk.present[at])
            if not least <= priority <= min(top, height):
                gap = (ahead[at] - start) // 2 if ahead[at] > least else PRIORITY_SPACING
                beyond = naturals[bisect_right(naturals, start)] - 1
                priority = max(min(start + min(gap, PRIORITY_SPACING), top, beyond), least)
            wanted[int(jobs.rows[at])] = priority
            keys[at] = jobs.key(priority, at)
        return wanted

    def _ahead(self) -> dict[int, int]:
        """Present priority of the next lifted job before each that is compared with it; 0 where there is none."""
        walk = self._walk
        last: dict[int, int] = {}
        found = {}
        for at in self._order:
            line = -1 if walk.leads[at] else int(walk.size[at])
            found[at] = last.get(line, 0)
            if self._lifted[at]:
                last[line] = int(walk.present[at])
        return found


def _ranks(queue: WaitingQueue, part: IntColumn) -> tuple[IntColumn, BoolColumn]:
    """Rank of each job, and whether it is skipped when a job of larger rank is lifted past it."""
    rank = np.full(len(part), BEFORE_ALL, dtype=np.int64)
    skippable = (part == 1) | (part == 2)
    ranked = len(queue.leading) + len(queue.waiting)
    rank[:ranked] = queue.rank if len(queue.rank) else np.arange(ranked)
    if len(queue.skippable):
        skippable[:ranked] = queue.skippable
    return rank, skippable


def _natural_rank(natural: IntColumn, rows: IntColumn, partition: IntColumn, among: BoolColumn) -> IntColumn:
    """Place of each job among those of its partition, by natural priority; the largest number for those left out."""
    at = np.flatnonzero(among)
    by_rank = at[np.lexsort((rows[at], -natural[at], partition[at]))]
    found = np.full(len(natural), np.iinfo(np.int64).max)
    found[by_rank] = np.arange(len(by_rank)) - np.searchsorted(partition[by_rank], partition[by_rank])
    return found
