"""The least lifts: priorities just above those of the jobs that are passed (see :mod:`.site_factors`)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from slurm_soda.policies.engine.lift_bounds import LEAST_PRIORITY
from slurm_soda.policies.snapshot import BoolColumn, IntColumn
from slurm_soda.slurm_ext.write.lifts import PRIORITY_CEILING, PRIORITY_SPACING, LiftWalk

_NOBODY = -1
"""Below the key of every job."""


def find_least_lifts(walk: LiftWalk) -> dict[int, int]:
    """Priorities by row, of jobs that are lifted."""
    lifts = _LeastLifts(walk)
    return lifts.assign(lifts.find_most())


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
                priority = max(min(start + min(gap, PRIORITY_SPACING), top, beyond), self._surfacing(at, top), least)
            wanted[int(jobs.rows[at])] = priority
            keys[at] = jobs.key(priority, at)
        return wanted

    def _surfacing(self, at: int, top: int) -> int:
        """Priority by twice its lift, of a job that Slurm shows at its least one although it is lifted; 0 for others.

        How far below that it would be by itself Slurm does not tell, only that it is by its lift or more. So this is the
        most that it will be shown at, and ``top`` holds whatever it is. Once more is shown, it gets what it needs.
        """
        present, lift = int(self._walk.present[at]), int(self._walk.lift[at])
        return min(present + lift, top) if lift > 0 and present <= LEAST_PRIORITY else 0

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
