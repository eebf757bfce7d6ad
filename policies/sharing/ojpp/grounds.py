"""Why OJPP put a job where it is, or nowhere, and why OJPAP moved it: the numbers and their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurm_soda.policies.sharing.arithmetic.demand import collision
from slurm_soda.policies.sharing.ojpp.demands import NEVER
from slurm_soda.policies.sharing.ojpp.lodging import Lodging
from slurm_soda.policies.sharing.ojpp.moving import Moved
from slurm_soda.policies.sharing.telling.encounters import Encounters
from slurm_soda.policies.sharing.telling.meeting import Asked, Measure, Meeting, Shift, in_the_way

_STRANGER = "its kind is not known, it accumulates gradients, or it does not share"
_STRANGERS = "a job that shares with nobody"
_UNKNOWN = "a slowdown that nobody knows"
_MEMORY = "memory of which nobody knows that they fit"
_TOGETHER = "too few, out of balance together, or on nodes without CPUs or memory for it"
_THETA = "interference (theta)"


class _Look(NamedTuple):
    """One GPU in use, for a job that did not get it."""

    theta: float
    broken: tuple[str, ...]
    """What stands in the way."""


class LodgingGrounds:
    """Tells of the jobs of one finished decision.

    Numbers are those of the moment when the decision came to the job: :class:`.packing.Packing` computes the same in
    columns.
    """

    def __init__(self, lodging: Lodging, moved: Sequence[Moved]) -> None:
        self._lodging, self._moved = lodging, {one.move.job: one for one in moved}
        self._encounters = Encounters(lodging.snapshot, lodging.company, lodging.packing.residents, lodging.devices)

    def asked(self) -> Asked:
        """Of jobs with GPUs that were placed, refused or moved."""
        rows = [*self._lodging.devices, *self._lodging.refused]
        return Asked({self._encounters.job_id(row): row for row in rows}, self._tell)

    def _tell(self, row: int) -> Meeting:
        """Complexity: O(GPUs x jobs on one) for a job that is refused, else O(its GPUs x jobs on one)."""
        lodging = self._lodging
        devices = lodging.devices.get(row, ())
        seen = lodging.refused[row] if row in lodging.refused else self._encounters.seen(row)
        if row in self._moved:
            return self._moves(row, self._moved[row], seen)
        if self._encounters.met(row, devices, seen):
            where = "it is disturbed least" if lodging.rules.calmest else "the least room is left"
            return self._meeting(row, devices, seen, f"shares: all bounds hold there, and {where}")
        return self._refused(row, devices, seen)

    def _meeting(
        self,
        row: int,
        devices: Sequence[int],
        seen: int,
        reason: str,
        *,
        share: bool = True,
        shift: Shift | None = None,
    ) -> Meeting:
        course = self._encounters.course(row, devices, seen)
        mates = self._encounters.mates(row, self._encounters.met(row, devices, seen))
        # Where it moves to, bounds hold; on GPUs that it keeps they may be exceeded.
        measured = devices if shift is None else (shift.target,)
        measures = self._measures(row, measured, seen) if measured else ()
        return Meeting(
            share, tuple(devices), course.alone_s, mates, course.sequential, course.together, measures, reason, shift
        )

    def _refused(self, row: int, own: Sequence[int], seen: int) -> Meeting:
        """On the GPU in use where fewest bounds are broken, then the calmest; for a job that waits or has its GPUs alone."""
        lodging = self._lodging
        but = "starts on GPUs of its own" if own else "waits"
        if lodging.demands.stranger[row]:
            return self._meeting(row, (), seen, f"{but}: {_STRANGER}", share=False)
        nodes = lodging.nodes_of(int(lodging.walk.demand.code[row]))[lodging.tenancy.node] & ~lodging.tenancy.taken
        used = [device for device in nodes.nonzero()[0].tolist() if self._encounters.before(device, seen)]
        if not used:
            return self._meeting(row, (), seen, f"{but}: others use no GPU that it might have", share=False)
        looks = {device: self._look(row, device, seen) for device in used}
        nearest = min(
            used, key=lambda device: (math.isinf(looks[device].theta), len(looks[device].broken), looks[device].theta)
        )
        way = in_the_way([look.broken for look in looks.values()], _TOGETHER)
        return self._meeting(row, (nearest,), seen, f"{but}: {way}", share=False)

    def _look(self, row: int, device: int, seen: int) -> _Look:
        """Whether one GPU would do."""
        demands, there = self._lodging.demands, self._encounters.before(device, seen)
        if demands.stranger[there].any():
            return _Look(math.inf, (_STRANGERS,))
        measures = self._measures(row, (device,), seen)
        theta = next(one.value for one in measures if one.name == _THETA)
        broken = [] if math.isfinite(theta) else [_UNKNOWN]
        broken += [one.name for one in measures if not one.holds]
        return _Look(theta, tuple(broken if demands.fit(row, there) else [_MEMORY, *broken]))

    def _measures(self, row: int, devices: Sequence[int], seen: int) -> tuple[Measure, ...]:
        """Equations 3 to 8, with the job on these devices; the worst of them."""
        rules, jobs = self._lodging.rules, self._lodging.demands.jobs
        here = {device: [*self._encounters.before(device, seen), row] for device in devices}
        slowed: dict[int, dict[int, float]] = {}
        for device, rows in here.items():
            for one in rows:
                slowed.setdefault(one, {})[device] = self._beside(one, rows)
        theta = max(value for values in slowed.values() for value in values.values())
        tau = max(collision(jobs.probability[rows].tolist()) for rows in here.values())
        peak = max(float(jobs.base[rows].sum() + jobs.extra[rows].max()) for rows in here.values())
        found = [
            Measure("jobs on a GPU", max(map(len, here.values())), rules.most),
            Measure("collision of memory peaks (tau)", tau, rules.collision),
            Measure(_THETA, theta, rules.interference),
        ]
        if peak > 0:
            found.append(Measure("share of memory", peak, 1.0))
        balance = [self._balance(row, one, values, seen) for one, values in slowed.items()] if theta < math.inf else []
        if any(one is not None for one in balance):
            found.append(Measure("balance (theta')", max(one for one in balance if one is not None), rules.balance))
        for one, values in sorted(slowed.items()):
            bound = float(self._lodging.snapshot.sharing.max_slowdown[one])
            if math.isfinite(bound):
                worst = 1 + max(values.values())
                found.append(Measure("slowdown (owner's bound)", worst, bound, job_id=self._encounters.job_id(one)))
        return tuple(map(_unbounded, found))

    def _balance(self, row: int, one: int, grown: Mapping[int, float], seen: int) -> float | None:
        """How much more a job is slowed on these devices than its least slowed worker; None if it has no others."""
        places = self._encounters.devices(one) if one != row or row in self._moved else grown
        if len(places) < 2:
            return None
        others = [self._beside(one, self._encounters.before(place, seen)) for place in places if place not in grown]
        return max(grown.values()) - min([*grown.values(), *others])

    def _beside(self, one: int, there: Sequence[int]) -> float:
        """Slowdowns of pairs, added; infinite: nobody knows."""
        demands = self._lodging.demands
        models = demands.jobs.model
        total = math.fsum(demands.slowdown[models[one], models[other]] for other in there if other != one)
        return total if total < NEVER / 2 else math.inf

    def _moves(self, row: int, moved: Moved, seen: int) -> Meeting:
        there = self._encounters.at_first(moved.move.source)
        theta = max(self._beside(one, there) for one in there)
        shift = Shift(
            moved.move.source, moved.move.target, self._encounters.mates(row, [one for one in there if one != row]),
            theta, moved.average if math.isfinite(theta) else math.inf, self._lodging.rules.interference,
            moved.move.cost, moved.budget_gpu_s,
        )  # fmt: skip
        reason = "moves: of those on a GPU that is disturbed for long it costs least, to where most room is left"
        return self._meeting(row, self._lodging.devices[row], seen, reason, shift=shift)


def _unbounded(measure: Measure) -> Measure:
    """A bound that holds always is none."""
    if measure.bound is not None and math.isinf(measure.bound):
        return Measure(measure.name, measure.value, job_id=measure.job_id)
    return measure
