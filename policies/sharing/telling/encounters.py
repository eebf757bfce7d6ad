"""Who was where when a decision came to one job, and what they and that job do to each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.arithmetic.pairs import Overlap, Schedule, sequential, together
from slurm_soda.policies.sharing.arithmetic.subbatch import Xi
from slurm_soda.policies.sharing.company import Company
from slurm_soda.policies.sharing.telling.meeting import Mate
from slurm_soda.policies.sharing.view import SharingSnapshot
from slurm_soda.policies.snapshot import JobState


class Course(NamedTuple):
    """When a job and those whom it meets end, as in :class:`.meeting.Meeting`."""

    alone_s: tuple[float, ...]
    sequential: Schedule | None
    together: Schedule | None


class Encounters:
    """A finished decision, looked at as it was when so many jobs had their places (``seen``)."""

    def __init__(
        self,
        snapshot: SharingSnapshot,
        company: Company,
        tenants: Sequence[Sequence[int]],
        placed: Mapping[int, tuple[int, ...]],
    ) -> None:
        """``tenants``: rows on each device at the end; ``placed``: devices by row, in the order in which they were given."""
        self.snapshot, self.company = snapshot, company
        self._tenants, self._placed = tenants, placed
        self._at = {row: at for at, row in enumerate(placed)}

    def job_id(self, row: int) -> int:
        return int(self.snapshot.jobs.job_id[row])

    def seen(self, row: int) -> int:
        """How many had their places before this one that got one, too."""
        return self._at[row]

    def before(self, device: int, seen: int) -> list[int]:
        """Rows on a device, in the order in which they came."""
        return [row for row in self._tenants[device] if self._at.get(row, -1) < seen]

    def at_first(self, device: int) -> list[int]:
        """Running jobs that the snapshot has on a device."""
        running = np.flatnonzero(self.snapshot.jobs.state == JobState.RUNNING).tolist()
        return [row for row in running if device in self.snapshot.devices.of(row)]

    def devices(self, row: int) -> tuple[int, ...]:
        """Where a job is by the plan, or already."""
        return self._placed.get(row) or tuple(self.snapshot.devices.of(row).tolist())

    def met(self, row: int, devices: Sequence[int], seen: int) -> list[int]:
        """Other rows on these devices, ascending."""
        return sorted({one for device in devices for one in self.before(device, seen)} - {row})

    def mates(self, row: int, others: Sequence[int]) -> tuple[Mate, ...]:
        """Each of these with what a pair of them do to each other."""
        return tuple(Mate(self.job_id(other), self._pair(row, other)) for other in others)

    def course(self, row: int, devices: Sequence[int], seen: int) -> Course:
        """When this job and those on these devices end, one after the other and together, by the slowdowns known."""
        others = self.met(row, devices, seen)
        work_s = self._work_s(row, 1.0)
        running = [self._overlap(row, other, devices, seen) for other in others]
        alone_s = (work_s, *(one.work_s for one in running))
        if not all(map(math.isfinite, alone_s)):
            return Course(alone_s, None, None)
        after = sequential(work_s, [Overlap(one.work_s, 1.0, 1.0) for one in running])
        known = all(math.isfinite(factor) for one in running for factor in (one.xi, one.new_xi))
        return Course(alone_s, after, together(work_s, running) if known else None)

    def _pair(self, row: int, other: int) -> Xi | None:
        mine, its = self.company.kind(row), self.company.kind(other)
        if mine is None or its is None:
            return None
        to_me, to_it = self.company.xi(mine, (its,)), self.company.xi(its, (mine,))
        return None if to_me is None or to_it is None else Xi(to_me, to_it)

    def _overlap(self, row: int, other: int, devices: Sequence[int], seen: int) -> Overlap:
        """On the worst of its devices; the other's slowdown is over the pace that it has without the job."""
        company = self.company
        mates = {place: [one for one in self.before(place, seen) if one != other] for place in self.devices(other)}
        without = max((company.slowdown(other, there) for there in mates.values() if there), default=1.0)
        joined = {place: [*there, row] if place in devices else there for place, there in mates.items()}
        beside = max((company.slowdown(other, there) for there in joined.values() if there), default=1.0)
        own = max(
            (company.slowdown(row, [*there, other]) for place, there in mates.items() if place in devices), default=1.0
        )
        return Overlap(self._work_s(other, without), beside / without if math.isfinite(without) else math.inf, own)

    def _work_s(self, row: int, pace: float) -> float:
        """At this pace; NaN: nobody knows."""
        work_s = float(self.snapshot.jobs.remaining_s[row]) * pace * self.company.accumulation(row)
        return work_s if math.isfinite(work_s) else math.nan
