"""Why srsf-share put a job beside another, or on GPUs of its own: what the GPUs do for all who wait."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from slurm_soda.policies.sharing.co_runners.lookup import CoRunnersLookup
from slurm_soda.policies.sharing.co_runners.report import BoundCheck, CoRunnersReport, LazyCoRunnersReports
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn

WORTH = "worth for all that wait (w x speed)"


class PairReasons:
    """Reports on the jobs that one finished decision starts or moves.

    Args:
        stays: by row, running jobs that keep their GPUs.
        placed: devices by row of those who start or move.
        weight: by row, what a second at full speed takes off the sum of completion times.
        caution: slowdowns count as so many of their expected errors worse than known.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        interference_view: InterferenceView,
        *,
        stays: BoolColumn,
        placed: Mapping[int, tuple[int, ...]],
        weight: FloatColumn,
        caution: float,
    ) -> None:
        self._snapshot, self._interference_view, self._stays, self._placed = snapshot, interference_view, stays, placed
        self._weight, self._caution = weight, caution

    def reports(self) -> LazyCoRunnersReports:
        """On all of them."""
        return LazyCoRunnersReports(
            {int(self._snapshot.jobs.job_id[row]): row for row in self._placed}, self._report_on
        )

    def _report_on(self, row: int) -> CoRunnersReport:
        """Complexity: O(GPUs) in all."""
        lookup, devices = self._lookup(), self._placed[row]
        seen = lookup.seen(row)
        others = lookup.met(row, devices, seen)
        if not others:
            return lookup.report(row, devices, seen, "has its GPUs alone: no other job on them", share=False)
        reason = "shares: the two get more done there than either alone, counted by how many jobs they hold up"
        worth = self._worth(row, others[0])
        return lookup.report(row, devices, seen, reason, share=True, bound_checks=(worth,))

    def _worth(self, row: int, co_runner: int) -> BoundCheck:
        """Of both on these GPUs, against the better one of them alone."""
        both = [(row, co_runner), (co_runner, row)]
        value = sum(float(self._weight[one]) * self._speed(one, other) for one, other in both)
        return BoundCheck(WORTH, value, max(float(self._weight[row]), float(self._weight[co_runner])), least=True)

    def _speed(self, one: int, other: int) -> float:
        mine, its = self._interference_view.kind(one), self._interference_view.kind(other)
        return 0.0 if mine is None or its is None else self._interference_view.speed(mine, its, self._caution)

    def _lookup(self) -> CoRunnersLookup:
        jobs_on: list[list[int]] = [[] for _ in range(len(self._snapshot.devices))]
        for row in np.flatnonzero(self._stays).tolist():
            for device in self._snapshot.devices.of(row).tolist():
                jobs_on[device].append(row)
        for row, devices in self._placed.items():
            for device in devices:
                jobs_on[device].append(row)
        return CoRunnersLookup(self._snapshot, self._interference_view, jobs_on, self._placed)
