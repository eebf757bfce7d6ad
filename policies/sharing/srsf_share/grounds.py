"""Why srsf-share put a job beside another, or on GPUs of its own: what the GPUs do for all who wait."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from slurm_soda.policies.sharing.company import Company
from slurm_soda.policies.sharing.telling.encounters import Encounters
from slurm_soda.policies.sharing.telling.meeting import Asked, Measure, Meeting
from slurm_soda.policies.sharing.view import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn

WORTH = "worth for all that wait (w x speed)"


class PairGrounds:
    """Tells of the jobs that one finished decision starts or moves.

    Args:
        stays: by row, running jobs that keep their GPUs.
        placed: devices by row of those who start or move.
        weight: by row, what a second at full speed takes off the sum of completion times.
        caution: slowdowns count as so many of their expected errors worse than known.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        company: Company,
        *,
        stays: BoolColumn,
        placed: Mapping[int, tuple[int, ...]],
        weight: FloatColumn,
        caution: float,
    ) -> None:
        self._snapshot, self._company, self._stays, self._placed = snapshot, company, stays, placed
        self._weight, self._caution = weight, caution

    def asked(self) -> Asked:
        """Of all of them."""
        return Asked({int(self._snapshot.jobs.job_id[row]): row for row in self._placed}, self._tell)

    def _tell(self, row: int) -> Meeting:
        """Complexity: O(GPUs) in all."""
        encounters, devices = self._encounters(), self._placed[row]
        seen = encounters.seen(row)
        others = encounters.met(row, devices, seen)
        course = encounters.course(row, devices, seen)
        return Meeting(
            bool(others),
            devices,
            course.alone_s,
            encounters.mates(row, others),
            course.sequential,
            course.together,
            (self._worth(row, others[0]),) if others else (),
            "shares: the two get more done there than either alone, counted by how many jobs they hold up"
            if others
            else "has its GPUs alone: nobody on them",
        )

    def _worth(self, row: int, mate: int) -> Measure:
        """Of both on these GPUs, against the better one of them alone."""
        both = [(row, mate), (mate, row)]
        value = sum(float(self._weight[one]) * self._speed(one, other) for one, other in both)
        return Measure(WORTH, value, max(float(self._weight[row]), float(self._weight[mate])), least=True)

    def _speed(self, one: int, other: int) -> float:
        mine, its = self._company.kind(one), self._company.kind(other)
        return 0.0 if mine is None or its is None else self._company.speed(mine, its, self._caution)

    def _encounters(self) -> Encounters:
        tenants: list[list[int]] = [[] for _ in range(len(self._snapshot.devices))]
        for row in np.flatnonzero(self._stays).tolist():
            for device in self._snapshot.devices.of(row).tolist():
                tenants[device].append(row)
        for row, devices in self._placed.items():
            for device in devices:
                tenants[device].append(row)
        return Encounters(self._snapshot, self._company, tenants, self._placed)
