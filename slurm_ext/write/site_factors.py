"""Which SiteFactors make Slurm's own priority order equal a plan's order, with as few writes as possible.

Slurm runs pending jobs by priority, larger first, ties by smaller job id; priority/multifactor computes
``Priority = max(1, other + SiteFactor)``. We write SiteFactor alone. Jobs that already stand in the right relative order
keep their priority (a longest increasing subsequence); the others get values between their neighbours. Values are spaced
widely, so a later insertion needs one write; where a space runs out the neighbours above it are renumbered with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import JobState, JobTable

SITE_FACTOR_LIMIT = 2_147_483_645
"""Largest magnitude that scontrol takes; a larger one is ignored with exit status 1."""

PRIORITY_CEILING = 2_000_000_000
"""No priority of ours goes above this: other components and Slurm's 32 bits need room."""

BF_MIN_PRIO_RESERVE = 1_000_000_000
"""Priority from which backfill may reserve nodes for a waiting job of a pool.

``sodactl pools apply`` sets bf_min_prio_reserve to it. A job for which Slurm reserves nodes gets whole ones, whatever it
needs of them: a CPU job that lists its pool's partition and the one where it borrows so keeps itself out of the second, and
a GPU job keeps CPU jobs from cores that they would give back in time. So nobody reserves but the next GPU job of a pool that
has waited long: without that, a job of many GPUs might never find enough free at once."""

PRIORITY_SPACING = 65_536
"""Distance between neighbours when there is room for it: sixteen insertions at one place before a renumbering."""


UNKNOWN_SITE_FACTOR = -(2**62)
"""Stands in a snapshot for a SiteFactor that Slurm does not tell (sprio leaves out jobs before their begin time)."""


PriorityKey = tuple[int, int]
"""``(-priority, job_id)``: sorts most urgent first."""


@dataclass(frozen=True, slots=True)
class _RankedJob:
    """A job in the present priority order."""

    job_id: int
    priority: int
    other: int
    """The part of the priority that is not ours."""

    @property
    def key(self) -> PriorityKey:
        return (-self.priority, self.job_id)

    @property
    def written(self) -> bool:
        """It has a SiteFactor."""
        return self.priority != self.other


def compute_site_factors(
    jobs: JobTable, order: Sequence[int], *, depth: int, base: int, least: int = 0, ceiling: int = PRIORITY_CEILING
) -> dict[int, int]:
    """New SiteFactors by job id, only for jobs that need another one than they have.

    Args:
        jobs: the snapshot's jobs.
        order: pending jobs, most urgent first.
        depth: how many of them, from the first, shall be in exactly this order and before all others. Jobs whose present
            SiteFactor is unknown are passed over.
        base: least priority that a first numbering gives out, so that other components can grow beneath it.
        least: a job with less gets another priority, also where its place is right.
        ceiling: no priority goes above it as long as what is not ours leaves room.
    """
    ids = jobs.job_id.tolist()
    priority, factor = jobs.priority.tolist(), jobs.site_factor.tolist()
    standing = {
        job_id: _RankedJob(job_id, p, p - f)
        for job_id, p, f in zip(ids, priority, factor, strict=True)
        if f != UNKNOWN_SITE_FACTOR
    }
    head = [standing[job_id] for job_id in order[:depth] if job_id in standing]
    if not head:
        return {}
    waiting = np.isin(jobs.state, (JobState.PENDING, JobState.BLOCKED))
    in_head = {job.job_id for job in head}
    tail = [standing[i] for i in jobs.job_id[waiting].tolist() if i in standing and i not in in_head]
    kept = [head[i] for i in _longest_increasing([job.key for job in head])]
    floor = _cheapest_floor(kept, tail)
    keep = {job.job_id for job in kept if job.key < floor and least <= job.priority <= ceiling}
    wanted = _assign_priorities(head, keep, floor=-floor[0], base=base, ceiling=ceiling)
    if max(wanted.values(), default=0) > ceiling:
        floor = _lowest_floor(tail)
        wanted = _assign_priorities(head, frozenset(), floor=-floor[0], base=base, ceiling=ceiling)
    changes = {job.job_id: wanted[job.job_id] - job.other for job in head if job.job_id in wanted}
    changes |= {job.job_id: 0 for job in tail if job.written and job.key < floor}
    return {i: max(-SITE_FACTOR_LIMIT, min(f, SITE_FACTOR_LIMIT)) for i, f in changes.items()}


def _longest_increasing(keys: Sequence[PriorityKey]) -> list[int]:
    """Positions of one longest strictly increasing subsequence."""
    best_end: list[PriorityKey] = []
    end_at: list[int] = []
    before: list[int] = []
    for at, key in enumerate(keys):
        length = bisect_left(best_end, key)
        before.append(end_at[length - 1] if length else -1)
        best_end[length : length + 1] = [key]
        end_at[length : length + 1] = [at]
    chain: list[int] = []
    at = end_at[-1] if end_at else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def _lowest_floor(tail: Sequence[_RankedJob]) -> PriorityKey:
    """Key of the first job of the tail once every SiteFactor there is 0."""
    return min(((-job.other, job.job_id) for job in tail), default=(0, 0))


def _cheapest_floor(kept: Sequence[_RankedJob], tail: Sequence[_RankedJob]) -> PriorityKey:
    """The key that separates head from tail with fewest writes.

    A tail job before the floor must lose its old SiteFactor, a kept head job behind it must be written anew.
    """
    lowest = _lowest_floor(tail)
    ours = sorted(job.key for job in tail if job.written)
    head = [job.key for job in kept]

    def writes(floor: PriorityKey) -> int:
        return bisect_left(ours, floor) + len(head) - bisect_left(head, floor)

    return min([lowest, *(key for key in ours if key < lowest)], key=writes)


def _assign_priorities(
    head: Sequence[_RankedJob], kept: frozenset[int] | set[int], *, floor: int, base: int, ceiling: int
) -> dict[int, int]:
    """Priorities for the jobs of ``head`` that are not kept; walks from the last job to the first.

    A kept job whose neighbours below do not fit beneath it is numbered with them.
    """
    wanted: dict[int, int] = {}
    below = floor
    run: list[_RankedJob] = []
    for job in reversed(head):
        if job.job_id not in kept or (run and job.priority - below <= len(run)):
            run.append(job)
            continue
        wanted |= _spread_priorities(run, below, job.priority)
        below, run = job.priority, []
    below = max(below, base) if below == floor else below
    spacing = max(1, min(PRIORITY_SPACING, (ceiling - below) // (2 * len(head))))
    wanted |= {job.job_id: below + spacing * (rank + 1) for rank, job in enumerate(run)}
    return wanted


def _spread_priorities(run: Sequence[_RankedJob], below: int, above: int) -> dict[int, int]:
    """Distinct priorities strictly between two neighbours; ``run`` is least urgent first."""
    return {job.job_id: below + (above - below) * (rank + 1) // (len(run) + 1) for rank, job in enumerate(run)}
