"""Why OJPP put a job where it is, or nowhere, and why OJPAP moved it: the numbers and their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slurm_soda.policies.sharing.arithmetic.memory_demand import collision_probability
from slurm_soda.policies.sharing.co_runners.lookup import CoRunnersLookup
from slurm_soda.policies.sharing.co_runners.report import (
    BoundCheck,
    CoRunnersReport,
    GpuCheck,
    LazyCoRunnersReports,
    WorkerMoveReport,
    find_nearest_gpu,
)
from slurm_soda.policies.sharing.ojpp.gang_placer import GangPlacer
from slurm_soda.policies.sharing.ojpp.job_demands import NEVER_TOGETHER
from slurm_soda.policies.sharing.ojpp.worker_moves import PlannedMove

_NEVER_SHARES = "its kind is not known, it accumulates gradients, or it does not share"
_UNSHARED_JOB = "a job that never shares"
_UNKNOWN = "an unknown slowdown"
_MEMORY = "memory not known to suffice"
_TOGETHER = "too few, out of balance together, or on nodes without CPUs or memory for it"
_THETA = "interference (theta)"


class GangPlacementReasons:
    """Reports on the jobs of one finished decision.

    Numbers are those of the moment when the decision came to the job: :class:`.packing.Packing` computes the same in
    columns.
    """

    def __init__(self, gang_placer: GangPlacer, moved: Sequence[PlannedMove]) -> None:
        self._gang_placer, self._moved = gang_placer, {one.move.job: one for one in moved}
        self._lookup = CoRunnersLookup(
            gang_placer.snapshot, gang_placer.interference_view, gang_placer.packing.residents, gang_placer.devices
        )

    def reports(self) -> LazyCoRunnersReports:
        """On jobs with GPUs that were placed, refused or moved."""
        return self._lookup.reports([*self._gang_placer.devices, *self._gang_placer.refused], self._report_on)

    def _report_on(self, row: int) -> CoRunnersReport:
        """Complexity: O(GPUs x jobs on one) for a job that is refused, else O(its GPUs x jobs on one)."""
        gang_placer = self._gang_placer
        devices = gang_placer.devices.get(row, ())
        seen = gang_placer.refused[row] if row in gang_placer.refused else self._lookup.seen(row)
        if row in self._moved:
            return self._moves(row, self._moved[row], seen)
        if self._lookup.met(row, devices, seen):
            where = "it is disturbed least" if gang_placer.rules.least_slowdown_first else "the least room is left"
            return self._report(row, devices, seen, f"shares: all bounds hold there, and {where}")
        return self._refused(row, devices, seen)

    def _report(
        self,
        row: int,
        devices: Sequence[int],
        seen: int,
        reason: str,
        *,
        share: bool = True,
        move: WorkerMoveReport | None = None,
    ) -> CoRunnersReport:
        # Where it moves to, bounds hold; on GPUs that it keeps they may be exceeded.
        checked = devices if move is None else (move.target,)
        checks = self._bound_checks(row, checked, seen) if checked else ()
        return self._lookup.report(row, devices, seen, reason, share=share, bound_checks=checks, move=move)

    def _refused(self, row: int, own: Sequence[int], seen: int) -> CoRunnersReport:
        """On the GPU in use where fewest bounds are broken, then the calmest; for a job that waits or has its GPUs alone."""
        gang_placer = self._gang_placer
        but = "starts on GPUs of its own" if own else "waits"
        if gang_placer.demands.never_shares[row]:
            return self._report(row, (), seen, f"{but}: {_NEVER_SHARES}", share=False)
        nodes = (
            gang_placer.nodes_of(int(gang_placer.placing.demand.code[row]))[gang_placer.gpu_occupancy.node]
            & ~gang_placer.gpu_occupancy.taken
        )
        used = [device for device in nodes.nonzero()[0].tolist() if self._lookup.before(device, seen)]
        devices, why = find_nearest_gpu({device: self._check_gpu(row, device, seen) for device in used}, _TOGETHER)
        return self._report(row, devices, seen, f"{but}: {why}", share=False)

    def _check_gpu(self, row: int, device: int, seen: int) -> GpuCheck:
        """Whether one GPU would do."""
        demands, there = self._gang_placer.demands, self._lookup.before(device, seen)
        if demands.never_shares[there].any():
            return GpuCheck(math.inf, (_UNSHARED_JOB,))
        checks = self._bound_checks(row, (device,), seen)
        theta = next(one.value for one in checks if one.name == _THETA)
        broken = [] if math.isfinite(theta) else [_UNKNOWN]
        broken += [one.name for one in checks if not one.holds]
        refusal = self._gang_placer.guest_worth.refuse(row, device, there)
        broken += [refusal] if refusal else []
        return GpuCheck(theta, tuple(broken if demands.fit(row, there) else [_MEMORY, *broken]))

    def _bound_checks(self, row: int, devices: Sequence[int], seen: int) -> tuple[BoundCheck, ...]:
        """Equations 3 to 8, with the job on these devices; the worst of them."""
        rules, jobs = self._gang_placer.rules, self._gang_placer.demands.jobs
        here = {device: [*self._lookup.before(device, seen), row] for device in devices}
        slowed: dict[int, dict[int, float]] = {}
        for device, rows in here.items():
            for one in rows:
                slowed.setdefault(one, {})[device] = self._beside(one, rows)
        theta = max(value for values in slowed.values() for value in values.values())
        tau = max(collision_probability(jobs.probability[rows].tolist()) for rows in here.values())
        peak = max(float(jobs.base[rows].sum() + jobs.extra[rows].max()) for rows in here.values())
        found = [
            BoundCheck("jobs on a GPU", max(map(len, here.values())), rules.most),
            BoundCheck("collision of memory peaks (tau)", tau, rules.collision),
            BoundCheck(_THETA, theta, rules.interference),
        ]
        if peak > 0:
            found.append(BoundCheck("share of memory", peak, 1.0))
        balance = [self._balance(row, one, values, seen) for one, values in slowed.items()] if theta < math.inf else []
        if any(one is not None for one in balance):
            found.append(BoundCheck("balance (theta')", max(one for one in balance if one is not None), rules.balance))
        for one, values in sorted(slowed.items()):
            bound = float(self._gang_placer.snapshot.sharing.max_slowdown[one])
            if math.isfinite(bound):
                worst = 1 + max(values.values())
                found.append(BoundCheck("slowdown (owner's bound)", worst, bound, job_id=self._lookup.job_id(one)))
        return tuple(map(_unbounded, found))

    def _balance(self, row: int, one: int, grown: Mapping[int, float], seen: int) -> float | None:
        """How much more a job is slowed on these devices than its least slowed worker; None if it has no others."""
        places = self._lookup.devices(one) if one != row or row in self._moved else grown
        if len(places) < 2:
            return None
        others = [self._beside(one, self._lookup.before(place, seen)) for place in places if place not in grown]
        return max(grown.values()) - min([*grown.values(), *others])

    def _beside(self, one: int, there: Sequence[int]) -> float:
        """Slowdowns of pairs, added; infinite: nobody knows."""
        demands = self._gang_placer.demands
        models = demands.jobs.model
        total = math.fsum(demands.slowdown[models[one], models[other]] for other in there if other != one)
        return total if total < NEVER_TOGETHER / 2 else math.inf

    def _moves(self, row: int, moved: PlannedMove, seen: int) -> CoRunnersReport:
        there = self._lookup.initially_on(moved.move.source)
        theta = max(self._beside(one, there) for one in there)
        move = WorkerMoveReport(
            moved.move.source,
            moved.move.target,
            self._lookup.co_runners(row, [one for one in there if one != row]),
            theta,
            moved.average if math.isfinite(theta) else math.inf,
            self._gang_placer.rules.interference,
            moved.move.cost,
            moved.budget_gpu_s,
        )
        reason = "moves: of those on a GPU that is disturbed for long it costs least, to where most room is left"
        return self._report(row, self._gang_placer.devices[row], seen, reason, move=move)


def _unbounded(check: BoundCheck) -> BoundCheck:
    """A bound that holds always is none."""
    if check.bound is not None and math.isinf(check.bound):
        return BoundCheck(check.name, check.value, job_id=check.job_id)
    return check
