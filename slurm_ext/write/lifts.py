"""Who is lifted, and past whom (see :mod:`.site_factors`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.lift_bounds import (
    BEFORE_ALL,
    OVERDUE,
    JobKeys,
    find_bounds,
    find_natural_priorities,
    find_tie_places,
)
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.scope.fence import find_fence_bounds
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, BoolColumn, ClusterSnapshot, IntColumn
from slurm_soda.slurm_ext.write.competition import find_larger, find_startable_soon

PRIORITY_CEILING = 2_000_000_000
"""No job is lifted above this, and none above a job that is: other components and Slurm's 32 bits need room."""

PRIORITY_SPACING = 16
"""Distance of a lifted job from the next one below it, where there is room: Slurm's own numbers waver by one with their
rounding, and a job that comes in between later needs one update."""


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
    """Those that no nodes could hold as they ask; they are treated alike, however long they have waited."""
    others: IntColumn
    """Those that are not eligible."""
    rank: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The policy's rank of those that lead and of those that wait, one after the other; :data:`.BEFORE_ALL` for a job that
    may skip all others. Empty: as they are listed, so that nobody skips anybody."""
    skippable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Of the same jobs, those that do not fit now and have no place in sight. Empty: those that wait."""
    fence: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Jobs out of scope: nobody is lifted past one of them, with the priority that it has now."""


@dataclass(frozen=True, slots=True)
class LiftLimits:
    """How many jobs are lifted, and past whom."""

    depth: int
    skipping_s: float
    """Nobody is lifted past a job of smaller rank that does not fit and has waited so long."""


@dataclass(frozen=True)
class LiftWalk:
    """The jobs that are looked at one by one, in the plan's order (:mod:`.site_factors` says what is done)."""

    jobs: JobKeys
    natural: IntColumn
    """Priority that is shown without SiteFactor."""
    present: IntColumn
    lift: IntColumn
    """Present SiteFactor."""
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
    groups: SharedNodes
    """Of the nodes that each may take."""
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
        natural = find_natural_priorities(jobs)[rows]
        known &= natural < PRIORITY_CEILING
        rank, skippable = _ranks(queue, part)
        rows, part, natural, rank, skippable = rows[known], part[known], natural[known], rank[known], skippable[known]
        if not len(rows):
            return None
        leads, ranked, waited_s = part == 0, part <= 1, jobs.waited_s[rows]
        ascending = np.sort(rows)
        demand = group_snapshot_requests(replace(snapshot, jobs=jobs.only(ascending)))
        size = demand.code[np.searchsorted(ascending, rows)]
        liftable = ranked & (leads | find_startable_soon(size, leads, demand.shapes, snapshot))
        liftable &= np.cumsum(liftable) <= limits.depth
        if not liftable.any():
            return None
        keys = JobKeys.of(natural, rows, jobs.partition[rows], find_tie_places(jobs))
        groups = SharedNodes.of(np.unique(keys.partition), snapshot)
        overdue = ((part == 1) | (part == 2)) & (jobs.overdue[rows] if len(jobs.overdue) else False)
        skipped = skippable & (waited_s >= limits.skipping_s)
        fixed = overdue | (skipped & ~liftable)
        fixed_rank = np.where(overdue, OVERDUE, rank)
        bound = find_bounds(keys, groups, asking=liftable, rank=rank, bounding=fixed, bounding_rank=fixed_rank)
        fence = np.searchsorted(jobs.job_id, queue.fence)
        bound = np.minimum(bound, find_fence_bounds(keys, liftable, fence, snapshot))
        if len(jobs.band):  # nobody passes a waiting job of a better band, except who starts where another one made way
            band = jobs.band[rows]
            own = np.where(rank <= BEFORE_ALL, rank, band)
            better = find_bounds(keys, groups, asking=liftable, rank=own, bounding=skippable, bounding_rank=band)
            bound = np.minimum(bound, better)
        kept = np.flatnonzero(liftable | (_natural_rank(natural, keys.ties, keys.partition, ~liftable) < limits.depth))
        walk = cls(
            keys.only(kept),
            natural[kept],
            jobs.priority[rows[kept]],
            jobs.site_factor[rows[kept]],
            leads[kept],
            liftable[kept],
            ranked[kept],
            rank[kept],
            skipped[kept],
            np.minimum(bound[kept], PRIORITY_CEILING * len(jobs)),
            size[kept],
            groups,
            find_larger(np.unique(size[kept]).tolist(), demand.shapes),
        )
        return walk.with_nice(jobs.nice[rows[kept]]) if len(jobs.nice) else walk

    def with_nice(self, nice: IntColumn) -> LiftWalk:
        """The same where nobody is lifted past a job that is less nice."""
        if not np.ptp(nice):
            return self
        everybody = np.ones(len(nice), dtype=np.bool_)
        bound = find_bounds(
            self.jobs, self.groups, asking=self.liftable, rank=nice, bounding=everybody, bounding_rank=nice
        )
        return replace(self, bound=np.minimum(self.bound, bound))

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
        return self.groups.rivals(int(partition[at]))[partition]


def _ranks(queue: WaitingQueue, part: IntColumn) -> tuple[IntColumn, BoolColumn]:
    """Rank of each job, and whether it is skipped when a job of larger rank is lifted past it."""
    rank = np.full(len(part), BEFORE_ALL, dtype=np.int64)
    skippable = (part == 1) | (part == 2)
    ranked = len(queue.leading) + len(queue.waiting)
    rank[:ranked] = queue.rank if len(queue.rank) else np.arange(ranked)
    if len(queue.skippable):
        skippable[:ranked] = queue.skippable
    return rank, skippable


def _natural_rank(natural: IntColumn, ties: IntColumn, partition: IntColumn, among: BoolColumn) -> IntColumn:
    """Place of each job among those of its partition, by natural priority; the largest number for those left out."""
    at = np.flatnonzero(among)
    by_rank = at[np.lexsort((ties[at], -natural[at], partition[at]))]
    found = np.full(len(natural), np.iinfo(np.int64).max)
    found[by_rank] = np.arange(len(by_rank)) - np.searchsorted(partition[by_rank], partition[by_rank])
    return found
