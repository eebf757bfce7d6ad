"""Why co-location put a job beside others, or let it wait: summed occupancy and bandwidth, and the predicted speed-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.policies.sharing.co_runners.lookup import CoRunnersLookup
from slurm_soda.policies.sharing.co_runners.report import (
    BoundCheck,
    CoRunnersReport,
    GpuCheck,
    LazyCoRunnersReports,
    find_nearest_gpu,
)
from slurm_soda.policies.sharing.colocation.speedup_models import (
    NO_LOAD,
    GpuLoad,
    LinearSpeedup,
    OccupancyThreshold,
    SpeedupModel,
)
from slurm_soda.policies.snapshot import IntColumn

_UNKNOWN = "its occupancy is not known, or it does not share"
_UNKNOWN_THERE = "a job of unknown occupancy, or that does not share,"
_TOGETHER = "too few, or on nodes without CPUs or memory for it"
_OWNERS = "memory not known to suffice, or an owner's bound"


@dataclass(frozen=True, slots=True)
class ColocationCriteria:
    """What a decision of co-location went by.

    Attributes:
        own: load of the job in a row; infinite for one that shares with nobody.
        allowed: whether a job may be beside others, by memory and by everybody's bound.
        worst: slowdown of a job beside others, as it counts against its owner's bound.
        refuse: why a job cannot, or should not, join those on a device by the engine's mechanism; empty where it may.
        open_to: devices that a job may have by its nodes.
    """

    speedup_model: SpeedupModel
    jobs_per_gpu: int
    own: Callable[[int], GpuLoad]
    allowed: Callable[[int, list[int]], bool]
    worst: Callable[[int, list[int]], float]
    refuse: Callable[[int, int, Sequence[int]], str]
    open_to: Callable[[int], IntColumn]


class ColocationReasons:
    """Reports on the jobs of one finished decision, by what held when it came to each."""

    def __init__(
        self, lookup: CoRunnersLookup, criteria: ColocationCriteria, beside: Sequence[int], refused: Mapping[int, int]
    ) -> None:
        """``beside``: rows that were put beside others; ``refused``: of each row that was, how many had places."""
        self._lookup, self._criteria, self._beside, self._refused = lookup, criteria, beside, refused

    def reports(self) -> LazyCoRunnersReports:
        """On jobs that share, or wait; not on those with free GPUs: these come first, so nothing was compared."""
        return self._lookup.reports((*self._beside, *self._refused), self._report_on)

    def _report_on(self, row: int) -> CoRunnersReport:
        """Complexity: O(GPUs x jobs on one) for a job that is refused, else O(its GPUs x jobs on one)."""
        if row in self._refused:
            return self._waits(row, self._refused[row])
        reason = "shares: no GPUs are free for it, and of those where sharing is predicted to gain these hold least"
        seen = self._lookup.seen(row)
        return self._report(row, self._lookup.devices(row), seen, reason, share=True)

    def _report(self, row: int, devices: Sequence[int], seen: int, reason: str, *, share: bool) -> CoRunnersReport:
        checks = self._bound_checks(row, devices, seen)
        return self._lookup.report(row, devices, seen, reason, share=share, bound_checks=checks)

    def _waits(self, row: int, seen: int) -> CoRunnersReport:
        """On the GPU in use where fewest bounds are broken, then of least summed occupancy."""
        if math.isinf(self._criteria.own(row).occupancy_s):
            return self._report(row, (), seen, f"waits for GPUs of its own: {_UNKNOWN}", share=False)
        used = [device for device in self._criteria.open_to(row).tolist() if self._lookup.before(device, seen)]
        checks = {
            device: GpuCheck(self._together(row, device, seen).occupancy_s, self._broken(row, device, seen))
            for device in used
        }
        devices, why = find_nearest_gpu(checks, _TOGETHER)
        return self._report(row, devices, seen, f"waits: {why}", share=False)

    def _broken(self, row: int, device: int, seen: int) -> list[str]:
        """What stands in the way on one GPU."""
        if math.isinf(self._together(row, device, seen).occupancy_s):
            return [_UNKNOWN_THERE]
        there = self._lookup.before(device, seen)
        found = [one.name for one in self._bound_checks(row, (device,), seen) if not one.holds]
        refusal = self._criteria.refuse(row, device, there)
        found += [refusal] if refusal else []
        return found if self._criteria.allowed(row, there) else [*found, _OWNERS]

    def _together(self, row: int, device: int, seen: int) -> GpuLoad:
        """Summed load of a device with the job; in the order of arrival, as the policy adds it."""
        total = NO_LOAD
        for one in (*self._lookup.before(device, seen), row):
            total = total.plus(self._criteria.own(one))
        return total

    def _bound_checks(self, row: int, devices: Sequence[int], seen: int) -> tuple[BoundCheck, ...]:
        """On the worst of those devices that others use."""
        model = self._criteria.speedup_model
        here = {device: self._lookup.before(device, seen) for device in devices}
        shared = [device for device, rows in here.items() if rows]
        if not shared:
            return ()
        loads = [self._together(row, device, seen) for device in shared]
        limit = model.most_occupancy_s if isinstance(model, OccupancyThreshold) else None
        found = [
            BoundCheck("jobs on a GPU", max(len(here[device]) + 1 for device in shared), self._criteria.jobs_per_gpu),
            BoundCheck("summed occupancy (C)", max(load.occupancy_s for load in loads), limit),
            BoundCheck("summed bandwidth (M)", max(load.bandwidth_s for load in loads)),
        ]
        if isinstance(model, LinearSpeedup) and math.isfinite(found[1].value):
            found.append(
                BoundCheck("speed-up predicted from C and M (delta)", min(map(model.predicted, loads)), 1.0, least=True)
            )
        found.append(BoundCheck("speed-up by slowdowns (delta)", min(self._delta([*here[at], row]) for at in shared)))
        jobs = self._lookup.snapshot.sharing
        for one in sorted({row, *(one for device in shared for one in here[device])}):
            if math.isfinite(jobs.max_slowdown[one]):
                there = [[*here[at], row] for at in shared if one in (*here[at], row)]
                worst = max(self._criteria.worst(one, [other for other in rows if other != one]) for rows in there)
                bound = float(jobs.max_slowdown[one])
                found.append(BoundCheck("slowdown (owner's bound)", worst, bound, job_id=self._lookup.job_id(one)))
        return tuple(found)

    def _delta(self, rows: Sequence[int]) -> float:
        """For equal work: as many as there are, over the largest slowdown (Equation 4.1); NaN: nobody knows."""
        worst = max(
            self._lookup.interference_view.slowdown(one, [other for other in rows if other != one]) for one in rows
        )
        return len(rows) / worst if math.isfinite(worst) else math.nan
