"""Which SiteFactors keep a plan's order in Slurm until the next cycle: as few as possible, none negative, none high.

Slurm tries pending jobs by priority, larger first, ties by smaller job id; priority/multifactor computes
``Priority = natural + SiteFactor``. A job whose natural priority gives it its place already needs nothing, and nobody is
pushed down: a job that shall pass others is *lifted* to just above them, everybody else has SiteFactor 0.

**Who must stand before whom.** A job that starts now, or whose places are being vacated for it, goes before every job behind
it in the plan that may compete for its nodes. A job that waits goes before those behind it in the plan that ask for at least
as much of the same nodes: what does not suffice for it does not suffice for them either. So when the main loop stops at a
lifted job that does not fit, it would have stopped at the job that was passed: a lift never stops a partition that would
have gone on, also where nobody takes it back.

**Least lifts.** These pairs are a partial order along the plan. From the last job to the first, each gets the least priority
that is above those that it passes, but not less than its natural one. That is the least solution: a job that it lifts is
lifted in every solution that pushes nobody down, and at least as high.

Cost: O(n log n) for n waiting jobs, in numpy; then O(d s) for the d jobs that are looked at one by one, in at most s sizes;
both are bounded by the depth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.engine.demand import ANY_GPU_TYPE, RequestShape, group_snapshot_requests
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn

SITE_FACTOR_LIMIT = 2_147_483_645
"""Largest magnitude that scontrol takes; a larger one is ignored with exit status 1."""

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
    never: IntColumn
    """Those that no nodes could hold."""
    others: IntColumn
    """Those that are not eligible."""


def compute_site_factors(queue: WaitingQueue, snapshot: ClusterSnapshot, *, depth: int) -> dict[int, int]:
    """New SiteFactors by job id, only for jobs that need another one than they have.

    Args:
        queue: whom to order. Jobs whose present SiteFactor is unknown are passed over.
        snapshot: the jobs' requests and priorities, and the nodes.
        depth: at most so many are lifted, and so many of each partition, by natural priority, are passed: those that Slurm
            looks at before the next cycle.
    """
    jobs = snapshot.jobs
    walk = _Walk.of(queue, snapshot, depth)
    wanted = {} if walk is None else walk.priorities()
    ids = np.concatenate((queue.leading, queue.waiting, queue.never, queue.others))
    rows = np.searchsorted(jobs.job_id, ids)
    changes: dict[int, int] = {}
    for job_id, row, factor, priority in zip(
        ids.tolist(), rows.tolist(), jobs.site_factor[rows].tolist(), jobs.priority[rows].tolist(), strict=True
    ):
        new = wanted[row] - (priority - factor) if row in wanted else 0
        if factor not in (new, UNKNOWN_SITE_FACTOR):
            changes[job_id] = min(new, SITE_FACTOR_LIMIT)
    return changes


@dataclass(frozen=True)
class _Walk:
    """The jobs that are looked at one by one, in the plan's order, as lists.

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
    table_length: int

    @classmethod
    def of(cls, queue: WaitingQueue, snapshot: ClusterSnapshot, depth: int) -> _Walk | None:
        """Choose the jobs; ``None`` if nobody is to be lifted."""
        jobs = snapshot.jobs
        ids = np.concatenate((queue.leading, queue.waiting, queue.never))
        rows = np.searchsorted(jobs.job_id, ids)
        place = np.arange(len(rows))
        leads, never = place < len(queue.leading), place >= len(rows) - len(queue.never)
        known = jobs.site_factor[rows] != UNKNOWN_SITE_FACTOR
        natural = jobs.priority[rows] - np.where(known, jobs.site_factor[rows], 0)
        known &= natural < PRIORITY_CEILING
        rows, leads, never, natural = rows[known], leads[known], never[known], natural[known]
        if not len(rows):
            return None
        ascending = np.sort(rows)
        demand = group_snapshot_requests(replace(snapshot, jobs=jobs.only(ascending)))
        size = demand.code[np.searchsorted(ascending, rows)]
        partition = jobs.partition[rows]
        liftable = ~never & (leads | _could_start(size, leads, demand.shapes, snapshot))
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
            (~never)[kept].tolist(),
            partition[kept].tolist(),
            size[kept].tolist(),
            _rivals(np.unique(partition[kept]), snapshot),
            _larger(np.unique(size[kept]).tolist(), demand.shapes),
            len(jobs),
        )

    def priorities(self) -> dict[int, int]:
        """Priorities by row, of jobs that are lifted."""
        lifted, below = self._lifted()
        most = self._most(lifted)
        return self._assign(lifted, most, below)

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

    def _lifted(self) -> tuple[list[bool], list[int]]:
        """Who must be lifted, and the largest natural priority that each passes, from the last job to the first.

        A job that has a lift keeps it while its natural priority is within one spacing of needing it, so that rounding does
        not make it come and go.
        """
        lifted, passed = [False] * len(self.rows), [0] * len(self.rows)
        tops, highest = _Extremes(self, _NOBODY), _Extremes(self, 0)
        for at in reversed(range(len(self.rows))):
            natural, key = self.natural[at], self._key(self.natural[at], at)
            passed[at] = natural
            if self.liftable[at]:
                low = tops.largest_passed(at)
                near = self.present[at] > natural and natural <= low // self.table_length + PRIORITY_SPACING
                if key < low or (near and low != _NOBODY):
                    lifted[at], key = True, max(key, self._key(self._above(low, at), at))
                    passed[at] = max(natural, highest.largest_passed(at))
            tops.raise_to(at, key)
            highest.raise_to(at, passed[at])
        return lifted, passed

    def _most(self, lifted: list[bool]) -> list[int]:
        """How high each job may go without forcing up one that needs no lift, from the first job to the last."""
        most = []
        ceiling = self._key(PRIORITY_CEILING, 0)
        bottoms = _Extremes(self, ceiling)
        for at in range(len(self.rows)):
            most.append(self._below(bottoms.least_passing(at), at) if lifted[at] else self.natural[at])
            if self.liftable[at]:
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

    def __init__(self, walk: _Walk, start: int) -> None:
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


def _could_start(
    size: IntColumn, leads: BoolColumn, shapes: Sequence[RequestShape], snapshot: ClusterSnapshot
) -> BoolColumn:
    """Waiting jobs that could start before the next cycle: of each size as many as all nodes together have room for."""
    nodes = snapshot.nodes
    gpus, cpus = (nodes.in_partition.T @ column for column in (nodes.gpus, nodes.cpus))
    room = np.array(
        [
            (gpus if shape.wants_gpus else cpus)[shape.partition]
            // (shape.units or shape.nodes * (shape.gpus or shape.cpus) or 1)
            for shape in shapes
        ]
    )
    waiting = np.flatnonzero(~leads)
    by_size = waiting[np.argsort(size[waiting], kind="stable")]
    first = np.searchsorted(size[by_size], size[by_size])
    found = np.zeros(len(size), dtype=np.bool_)
    found[by_size] = np.arange(len(by_size)) - first < np.maximum(room[size[by_size]], 1)
    return found


def _natural_rank(natural: IntColumn, rows: IntColumn, partition: IntColumn, among: BoolColumn) -> IntColumn:
    """Place of each job among those of its partition, by natural priority; the largest number for those left out."""
    at = np.flatnonzero(among)
    by_rank = at[np.lexsort((rows[at], -natural[at], partition[at]))]
    found = np.full(len(natural), np.iinfo(np.int64).max)
    found[by_rank] = np.arange(len(by_rank)) - np.searchsorted(partition[by_rank], partition[by_rank])
    return found


def _rivals(partitions: IntColumn, snapshot: ClusterSnapshot) -> dict[int, list[int]]:
    """Which partitions share a node and a tier, as far as the tier is known: Slurm compares tiers before priorities."""
    members = snapshot.nodes.in_partition[:, partitions].astype(np.float32)
    share = (members.T @ members > 0) | np.eye(len(partitions), dtype=np.bool_)
    tiers = [_tiers(snapshot.partitions[code], snapshot) for code in partitions.tolist()]
    return {
        code: [
            other
            for at_other, other in enumerate(partitions.tolist())
            if share[at, at_other] and (not tiers[at] or not tiers[at_other] or tiers[at] & tiers[at_other])
        ]
        for at, code in enumerate(partitions.tolist())
    }


def _tiers(partitions: str, snapshot: ClusterSnapshot) -> set[int]:
    """Tiers of a list of partitions; empty where one is unknown."""
    parts = [snapshot.pools.table.get(name) for name in partitions.split(",")]
    return {part.tier for part in parts if part} if all(parts) else set()


def _larger(sizes: Sequence[int], shapes: Sequence[RequestShape]) -> dict[int, list[int]]:
    """For each request those that fit nowhere where it does not fit."""
    of_partition: dict[int, list[int]] = {}
    for size in sizes:
        of_partition.setdefault(shapes[size].partition, []).append(size)
    return {
        size: [group[other] for other in np.flatnonzero(larger).tolist()]
        for group in of_partition.values()
        for size, larger in zip(group, _fits_where([shapes[size] for size in group]), strict=True)
    }


def _fits_where(shapes: Sequence[RequestShape]) -> Iterator[BoolColumn]:
    """Of requests of one partition: for each one which of them can only be met where it can be met as well.

    A request that may be split in any way over at least so many nodes is met wherever an even one of as much is met; an even
    one for a single GPU or CPU wherever one of several is.
    """
    columns = np.array(shapes, dtype=np.int64).T
    gpu_type, nodes, gpus, cpus, memory_mib, units, unit_cpus, unit_memory_mib, wants_gpus = columns[1:10]
    split = units > 0
    for shape in shapes:
        same = (gpu_type == shape.gpu_type) | (shape.gpu_type == ANY_GPU_TYPE)
        same &= (wants_gpus == shape.wants_gpus) & (nodes >= shape.nodes)
        if shape.units:
            each = np.where(shape.wants_gpus, gpus, cpus)
            even = (each * nodes >= shape.units) & (cpus >= each * shape.unit_cpus)
            even &= memory_mib >= each * shape.unit_memory_mib
            other = (units >= shape.units) & (unit_cpus >= shape.unit_cpus) & (unit_memory_mib >= shape.unit_memory_mib)
            yield same & np.where(split, other, even)
            continue
        even = (gpus >= shape.gpus) & (cpus >= shape.cpus) & (memory_mib >= shape.memory_mib)
        single = shape.nodes == 1 and (shape.gpus if shape.wants_gpus else shape.cpus) <= 1
        other = (unit_cpus >= shape.cpus) & (unit_memory_mib >= shape.memory_mib) & single
        yield same & np.where(split, other, even)
