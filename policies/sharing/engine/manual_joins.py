"""The stage that adds what an admin wants shared to a plan, whatever policy made it, and says what cannot be."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

import numpy as np

from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision, start_all_the_same
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy, jobs_on_devices
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState

T = TypeVar("T")

BY_HAND = "by hand"
"""Who wanted it, in reasons."""
_REGARDLESS = "starts now: an admin wants it, whether that ends earlier on average or not"


@dataclass(frozen=True, slots=True)
class JoinByHand:
    """Puts the guests of :attr:`.SharingJobs.manual_joins` onto GPUs of their hosts, as a policy that shares would.

    Bounds, memory and consent hold as for any policy; only whether it pays is the admin's own business. What policy and
    admin want of the same job is the policy's where the job starts on GPUs of its own.
    """

    name: str = "join by hand"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with those who can join, and with why others cannot in :attr:`.SharingPlan.refused_joins`."""
        if not isinstance(snapshot, SharingSnapshot) or not snapshot.sharing.manual_joins:
            return plan
        hosts: dict[int, list[int]] = {}
        for guest, host in snapshot.sharing.manual_joins:
            hosts.setdefault(guest, []).append(host)
        seats = _Seats(snapshot, plan)
        found: dict[int, _Seat] = {}
        refused: dict[int, str] = {}
        decisions: dict[int, SharingDecision] = {}
        for guest, beside in hosts.items():
            if seats.is_guest(guest):
                continue
            seat = seats.find(guest, beside)
            if seat.refused:
                refused[guest] = seat.refused
            else:
                found[guest] = seat
            if seat.decision is not None:
                decisions[guest] = seat.decision
        return _with_seats(snapshot, plan, found, refused=refused, decisions=decisions)


class _Seat(NamedTuple):
    """Where a guest goes, or why it cannot, with the arithmetic as far as it can be made."""

    refused: str
    decision: SharingDecision | None = None
    devices: tuple[int, ...] = ()
    pieces: tuple[NodeAllocation, ...] = ()
    sub_batch: int = 0


class _Seats:
    """What is left for guests beside what the plan gives to others."""

    def __init__(self, snapshot: SharingSnapshot, plan: Plan) -> None:
        self._snapshot, self._plan = snapshot, plan
        self._placing = PlacementPass(snapshot)
        self._occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        remaining_s = snapshot.jobs.remaining_s
        self._timed = np.isfinite(remaining_s)
        """Jobs of which somebody knows how long they will run: of others bounds and memory are checked all the same."""
        jobs = snapshot.jobs.with_columns(remaining_s=np.where(self._timed, remaining_s, 1.0))
        self._view = InterferenceView(replace(snapshot, jobs=jobs), self._occupancy)
        self._rows = dict(zip(snapshot.jobs.job_id.tolist(), range(len(snapshot.jobs)), strict=True))
        devices = plan.devices if isinstance(plan, SharingPlan) else {}
        held, wanted = frozenset(snapshot.devices.held.tolist()), {guest for guest, _ in snapshot.sharing.manual_joins}
        joining = {job_id for job_id, given in devices.items() if job_id in wanted and not held.isdisjoint(given)}
        self._starts = frozenset(plan.starts.tolist()) - joining
        """Those of the plan that stay: whose guest a job is, an admin knows better than the policy."""
        for job_id in (one for one in plan.starts.tolist() if one in self._starts):
            pieces = plan.places.get(job_id, ())
            if job_id in devices:
                claim = self._occupancy.take(devices[job_id], pieces)
            else:
                self._occupancy.take_empty(pieces)
                claim = JobPlacement(list(pieces), at_once=True)
            self._placing.free_capacity.hold(claim)

    def is_guest(self, guest: int) -> bool:
        """Whether it has its seat already."""
        row = self._rows.get(guest)
        return row is not None and len(self._snapshot.devices.guest_on(row)) > 0

    def find(self, guest: int, hosts: Sequence[int]) -> _Seat:
        """Its GPUs, which it takes, or why there are none."""
        problem = next(self._problems(guest, hosts), "")
        if problem:
            return _Seat(problem)
        row, host_rows = self._rows[guest], [self._rows[host] for host in hosts]
        shape = self._placing.demand.shapes[int(self._placing.demand.code[row])]
        wanted = [device for host in host_rows for device in self._snapshot.devices.of(host).tolist()]
        picked = self._occupancy.pick(row, shape, wanted)
        if picked is None and len(wanted) < int(self._snapshot.jobs.gpus[row]):
            picked = self._occupancy.pick(
                row, shape, [*wanted, *self._occupancy.free(self._occupancy.classes.mask(shape))]
            )
        if picked is None:
            told = all(math.isfinite(self._view.left_s(one)) for one in jobs_on_devices(self._occupancy, wanted))
            decision = self._view.judge(row, wanted) if told and self._timed[[row, *host_rows]].all() else None
            return _Seat(self._refuse_devices(row, wanted), decision)
        devices, pieces = picked
        decision = start_all_the_same(self._view.judge(row, devices), _REGARDLESS)
        shown = decision if self._timed[[row, *host_rows]].all() else None
        if not decision.share or decision.chosen is None:
            return _Seat(decision.trials[0].refused, shown)
        self._placing.free_capacity.hold(self._occupancy.take(devices, pieces))
        # With one size there was no choice: it is the whole batch, which counts as 1 where little is known of the job.
        size = decision.chosen.sub_batch if len(decision.trials) > 1 else 0
        return _Seat("", shown, tuple(devices), tuple(pieces), size)

    def _problems(self, guest: int, hosts: Sequence[int]) -> Iterator[str]:
        """What is wrong whichever GPUs it would get."""
        jobs, plan = self._snapshot.jobs, self._plan
        row = self._rows.get(guest)
        if row is None or jobs.state[row] != JobState.PENDING or not jobs.gpus[row]:
            yield "it does not wait for GPUs, or something else holds it back"
            return
        if guest in self._starts:
            yield "it starts on GPUs of its own"
        if plan.notes.of(guest).verdict == JobVerdict.WAIT_FOR_PREEMPTION:
            yield "others are preempted for it, so that it starts on GPUs of its own"
        for host in hosts:
            at = self._rows.get(host)
            if at is None or jobs.state[at] != JobState.RUNNING or not len(self._snapshot.devices.of(at)):
                yield f"job {host} does not run on GPUs"
            elif self._view.kind(at) is None:
                yield f"nobody knows the model of job {host}"
            elif not math.isfinite(self._view.left_s(at)):
                yield f"nobody knows how much job {host} is slowed already"
        if self._view.kind(row) is None:
            yield f"nobody knows the model of job {guest}"

    def _refuse_devices(self, row: int, wanted: Sequence[int]) -> str:
        """Why it gets none of these GPUs."""
        rules, jobs_on = self._occupancy.guest_rules, self._occupancy.jobs_on
        left = self._occupancy.open_devices(row, wanted)
        told = (rules.refuse_device(row, device, jobs_on[device]) for device in left)
        first = next(filter(None, told), "") or rules.refuse(row, left, jobs_on.__getitem__)
        return first or "too few GPUs, CPUs or MiB of memory are left for it there"


def _with_seats(
    snapshot: SharingSnapshot,
    plan: Plan,
    found: Mapping[int, _Seat],
    *,
    refused: Mapping[int, str],
    decisions: Mapping[int, SharingDecision],
) -> SharingPlan:
    """The plan in which these start first."""
    base = (
        plan
        if isinstance(plan, SharingPlan)
        else SharingPlan(**{one.name: getattr(plan, one.name) for one in fields(Plan)})
    )
    first = np.array(list(found), dtype=np.int64)
    starts, order = (
        np.concatenate((first, told[~np.isin(told, first)])).astype(np.int64) for told in (plan.starts, plan.order)
    )
    verdict = plan.notes.verdict.copy()
    verdict[np.isin(plan.notes.job_id, first)] = JobVerdict.START
    batch = {guest: int(snapshot.sharing.batch[snapshot.jobs.row(guest)]) for guest in found}
    sizes = {guest: seat.sub_batch for guest, seat in found.items()}
    return replace(
        base,
        starts=starts,
        order=order,
        notes=replace(plan.notes, verdict=verdict),
        places={guest: seat.pieces for guest, seat in found.items()} | _others(plan.places, found),
        devices={guest: seat.devices for guest, seat in found.items()} | _others(base.devices, found),
        sub_batches={**base.sub_batches, **{guest: size for guest, size in sizes.items() if 0 < size < batch[guest]}},
        decisions={**_others(base.decisions, {*found, *refused}), **decisions},
        refused_joins={**base.refused_joins, **refused},
    )


def _others(told: Mapping[int, T], found: Collection[int]) -> dict[int, T]:
    return {job_id: value for job_id, value in told.items() if job_id not in found}
