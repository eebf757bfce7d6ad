"""Who was where when a decision came to one job, and what they and that job do to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from slurm_soda.policies.sharing.arithmetic.completion_times import (
    OverlappedJob,
    schedule_sequentially,
    schedule_together,
)
from slurm_soda.policies.sharing.arithmetic.sharing_decision import PairSlowdown
from slurm_soda.policies.sharing.co_runners.report import (
    BoundCheck,
    CoRunner,
    CoRunnersReport,
    LazyCoRunnersReports,
    WorkerMoveReport,
)
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState


class CoRunnersLookup:
    """A finished decision, looked at as it was when so many jobs had their places (``seen``)."""

    def __init__(
        self,
        snapshot: SharingSnapshot,
        interference_view: InterferenceView,
        jobs_on: Sequence[Sequence[int]],
        placed: Mapping[int, tuple[int, ...]],
    ) -> None:
        """``jobs_on``: rows on each device at the end; ``placed``: devices by row, in the order in which they were given."""
        self.snapshot, self.interference_view = snapshot, interference_view
        self._jobs_on, self._placed = jobs_on, placed
        self._at = {row: at for at, row in enumerate(placed)}

    def job_id(self, row: int) -> int:
        return int(self.snapshot.jobs.job_id[row])

    def seen(self, row: int) -> int:
        """How many had their places before this one that got one, too."""
        return self._at[row]

    def before(self, device: int, seen: int) -> list[int]:
        """Rows on a device, in the order in which they came."""
        return [row for row in self._jobs_on[device] if self._at.get(row, -1) < seen]

    def initially_on(self, device: int) -> list[int]:
        """Running jobs that the snapshot has on a device."""
        running = np.flatnonzero(self.snapshot.jobs.state == JobState.RUNNING).tolist()
        return [row for row in running if device in self.snapshot.devices.of(row)]

    def devices(self, row: int) -> tuple[int, ...]:
        """Where a job is by the plan, or already."""
        return self._placed.get(row) or tuple(self.snapshot.devices.of(row).tolist())

    def met(self, row: int, devices: Sequence[int], seen: int) -> list[int]:
        """Other rows on these devices, ascending."""
        return sorted({one for device in devices for one in self.before(device, seen)} - {row})

    def co_runners(self, row: int, others: Sequence[int]) -> tuple[CoRunner, ...]:
        """Each of these with what a pair of them do to each other."""
        return tuple(CoRunner(self.job_id(other), self._pair(row, other)) for other in others)

    def reports(self, rows: Iterable[int], report_on: Callable[[int], CoRunnersReport]) -> LazyCoRunnersReports:
        """Reports on the jobs of these rows, each made when it is read."""
        return LazyCoRunnersReports({self.job_id(row): row for row in rows}, report_on)

    def report(
        self,
        row: int,
        devices: Sequence[int],
        seen: int,
        reason: str,
        *,
        share: bool,
        bound_checks: tuple[BoundCheck, ...] = (),
        move: WorkerMoveReport | None = None,
    ) -> CoRunnersReport:
        """Of one job on these devices: what is known of the pairs, and when all end by that."""
        others = self.met(row, devices, seen)
        work_s = self._work_s(row, 1.0)
        running = [self._overlap(row, other, devices, seen) for other in others]
        alone_s = (work_s, *(one.work_s for one in running))
        sequential = together = None
        if all(map(math.isfinite, alone_s)):
            sequential = schedule_sequentially(work_s, [OverlappedJob(one.work_s, 1.0, 1.0) for one in running])
            if all(math.isfinite(factor) for one in running for factor in (one.xi, one.new_xi)):
                together = schedule_together(work_s, running)
        co_runners = self.co_runners(row, others)
        return CoRunnersReport(
            share, tuple(devices), alone_s, co_runners, sequential, together, bound_checks, reason, move
        )

    def _pair(self, row: int, other: int) -> PairSlowdown | None:
        mine, its = self.interference_view.kind(row), self.interference_view.kind(other)
        if mine is None or its is None:
            return None
        to_me, to_it = self.interference_view.xi(mine, (its,)), self.interference_view.xi(its, (mine,))
        return None if to_me is None or to_it is None else PairSlowdown(to_me, to_it)

    def _overlap(self, row: int, other: int, devices: Sequence[int], seen: int) -> OverlappedJob:
        """On the worst of its devices; the other's slowdown is over the pace that it has without the job."""
        interference_view = self.interference_view
        co_runners = {place: [one for one in self.before(place, seen) if one != other] for place in self.devices(other)}
        without = max((interference_view.slowdown(other, there) for there in co_runners.values() if there), default=1.0)
        joined = {place: [*there, row] if place in devices else there for place, there in co_runners.items()}
        beside = max((interference_view.slowdown(other, there) for there in joined.values() if there), default=1.0)
        own = max(
            (
                interference_view.slowdown(row, [*there, other])
                for place, there in co_runners.items()
                if place in devices
            ),
            default=1.0,
        )
        return OverlappedJob(
            self._work_s(other, without), beside / without if math.isfinite(without) else math.inf, own
        )

    def _work_s(self, row: int, pace: float) -> float:
        """At this pace; NaN: nobody knows."""
        work_s = float(self.snapshot.jobs.remaining_s[row]) * pace * self.interference_view.accumulation_slowdown(row)
        return work_s if math.isfinite(work_s) else math.nan
