"""One decision of ``soda``: places in order, preemption where it pays, and then guests beside who runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_service import ServiceRule
from slurm_soda.policies.sharing.soda.guest_places import GuestPlaces
from slurm_soda.policies.sharing.soda.ordered_places import OrderedPlaces
from slurm_soda.policies.sharing.soda.pair_review import PairReview
from slurm_soda.policies.sharing.soda.queue_outlook import QueueOutlook
from slurm_soda.policies.sharing.soda.slots import SharedSlots
from slurm_soda.policies.snapshot import JobState

MOST_REMATCHED = 32
"""Guests of one decision, those that are slowed most, for whom other hosts are looked for; this only bounds the work."""


class SharingRound:
    """A decision on a snapshot that knows single GPUs."""

    def __init__(self, snapshot: SharingSnapshot, rule: ServiceRule, *, moves: bool) -> None:
        """As for :class:`OrderedPlaces`."""
        self._snapshot = snapshot
        self._places = OrderedPlaces(snapshot, rule, moves=moves)
        self._prices_s, self._service = self._places.prices_s, self._places.service
        self._placing = self._places.placing
        self._gpu_occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        self._slots = SharedSlots(snapshot, self._gpu_occupancy)
        self._devices: dict[int, tuple[int, ...]] = {}

    def run(self, policy: str) -> SharingPlan:
        """Places of their own first, then places beside others."""
        snapshot, placing = self._snapshot, self._placing
        preempts = self._places.place_gpu_jobs(self._slots, hosts_too=snapshot.mechanism.preempts_hosts)
        preempts += self._guests_of(preempts)
        interference_view = InterferenceView(snapshot, self._gpu_occupancy)
        preempts += self._move_guests(interference_view)
        leaving = self._review_guests(interference_view)
        preempts += leaving
        self._name_devices(preempts)
        starts = any(claim.at_once for claim in placing.claims.values())
        guests = GuestPlaces(snapshot, placing, self._gpu_occupancy, interference_view, self._prices_s)
        guests.find(self._queue(interference_view))
        preempts += self._rematch(guests, interference_view)
        self._places.place_cpu_jobs()
        plan = self._places.plan(policy, preempts)
        if leaving or (starts and len(self._places.waiting()) and snapshot.sharing.shares.any()):
            plan = replace(plan, next_event_s=snapshot.now_s)  # hosts can be joined: those that start, or are left
        return make_sharing_plan(
            plan,
            snapshot.jobs.job_id,
            self._devices | guests.devices,
            {"starts_beside_others": float(len(guests.devices))},
            sub_batches=guests.sub_batches,
            decisions=guests.decisions,
        )

    def _guests_of(self, preempts: Sequence[PreemptJob]) -> tuple[PreemptJob, ...]:
        """Who leaves with its host."""
        jobs, found = self._snapshot.jobs, []
        for preempt in preempts:
            for row in self._slots.guests.get(jobs.row(preempt.job_id), ()):
                if self._placing.verdict[row] == JobVerdict.PREEMPT:
                    continue  # with another of its hosts
                self._placing.verdict[row] = JobVerdict.PREEMPT
                reason = f"its host, job {preempt.job_id}, is preempted"
                found.append(PreemptJob(int(jobs.job_id[row]), preempt.for_jobs, reason))
        return tuple(found)

    def _move_guests(self, interference_view: InterferenceView) -> tuple[PreemptJob, ...]:
        """Guests that get GPUs of their own, of those that nobody else takes, where all jobs together end earlier so."""
        found = []
        for row, gain_s in self._slots.find_movers(self._snapshot, interference_view, self._prices_s):
            if self._placing.verdict[row] != JobVerdict.RUN:
                continue
            claim = self._placing.free_capacity.find(self._placing.demand.shapes[int(self._placing.demand.code[row])])
            if claim is None or not claim.at_once:
                continue
            self._placing.verdict[row] = JobVerdict.PREEMPT
            self._placing.claim(row, claim)
            reason = f"it gets GPUs of its own: all jobs together end {gain_s:.0f} s earlier"
            found.append(PreemptJob(int(self._snapshot.jobs.job_id[row]), (), reason))
        return tuple(found)

    def _review_guests(self, interference_view: InterferenceView) -> tuple[PreemptJob, ...]:
        """Guests that had better wait, by what is known of them and their hosts by now."""
        jobs, found = self._snapshot.jobs, []
        review = PairReview(self._snapshot, interference_view, self._prices_s)
        queue = self._queue(interference_view)
        for guest, hosts in self._list_seated():
            left = review.find_leaving(guest, hosts, queue, lone=self._slots.is_lone(hosts))
            if left is not None:
                self._placing.verdict[guest] = JobVerdict.PREEMPT
                names = ", ".join(str(jobs.job_id[host]) for host in hosts)
                reason = f"all jobs together end {left.gain_s:.0f} s earlier if it leaves its host, job {names}"
                apart = tuple(sorted(int(jobs.job_id[row]) for row in left.apart))
                found.append(PreemptJob(int(jobs.job_id[guest]), (), reason, apart))
        return tuple(found)

    def _rematch(self, guests: GuestPlaces, interference_view: InterferenceView) -> tuple[PreemptJob, ...]:
        """Guests that go to other hosts, of places that nobody took who waits; where the mechanism lets them go at once."""
        if not self._snapshot.mechanism.starts_together:
            return ()
        known = np.isfinite(self._snapshot.jobs.remaining_s)
        seated = [(guest, hosts) for guest, hosts in self._list_seated() if known[[guest, *hosts]].all()]
        slowest = sorted(seated, key=lambda one: -interference_view.pace(one[0]))[:MOST_REMATCHED]
        if not slowest or not guests.any_left():
            return ()
        review = PairReview(self._snapshot, interference_view, self._prices_s)
        queue = self._queue(interference_view)
        weighed = [review.weigh_stay(guest, hosts, queue, lone=self._slots.is_lone(hosts)) for guest, hosts in slowest]
        better = {one.row: one for one in weighed if one is not None}
        job_id, found = self._snapshot.jobs.job_id, []
        for row, gain_s in guests.find_better(list(better.values()), queue):
            self._placing.verdict[row] = JobVerdict.PREEMPT
            reason = f"it goes to another host: all jobs together end {gain_s:.0f} s earlier"
            apart = tuple(sorted(job_id[list(better[row].apart)].tolist()))
            found.append(PreemptJob(int(job_id[row]), (), reason, apart))
        return tuple(found)

    def _list_seated(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Guests that can be preempted and stay so far, with their hosts, who stay as well."""
        for guest, hosts in self._slots.seated():
            stay = (self._placing.verdict[[guest, *hosts]] == JobVerdict.RUN).all()
            if stay and self._snapshot.jobs.preemptible[guest]:
                yield guest, hosts

    def _queue(self, interference_view: InterferenceView) -> QueueOutlook:
        return QueueOutlook(
            self._snapshot,
            self._placing,
            self._gpu_occupancy,
            interference_view,
            waiting=self._places.waiting(),
            service=self._service,
        )

    def _name_devices(self, preempts: Sequence[PreemptJob]) -> None:
        """GPUs of those who got places of their own; nobody joins anybody on GPUs that change hands."""
        jobs, occupancy = self._snapshot.jobs, self._gpu_occupancy
        devices = self._snapshot.devices
        state = jobs.state[devices.owner]
        keeping = set(devices.held[(state != JobState.COMPLETING) & (state != JobState.RUNNING)].tolist())
        vacated: dict[int, list[int]] = {}
        for device in np.unique(devices.held[state == JobState.COMPLETING]).tolist():
            if not occupancy.jobs_on[device] and device not in keeping:
                vacated.setdefault(int(occupancy.node[device]), []).append(device)
        for preempt in preempts:
            row = jobs.row(preempt.job_id)
            occupancy.guest_rules.depart(row)
            for device in devices.of(row).tolist():
                occupancy.jobs_on[device].remove(row)
                occupancy.taken[device] = True
                if not occupancy.jobs_on[device]:
                    vacated.setdefault(int(occupancy.node[device]), []).append(device)
        claims, unheld = self._placing.claims, self._placing.unheld
        at_once = {
            row: occupancy.take_empty(claim.pieces)
            for row, claim in claims.items()
            if claim.at_once and row not in unheld
        }
        later = {row: self._take_vacated(claim.pieces, vacated) for row, claim in claims.items() if not claim.at_once}
        at_once |= {row: occupancy.take_empty(claims[row].pieces) for row in self._settle_unheld()}
        self._devices = {row: at_once[row] if claim.at_once else later[row] for row, claim in claims.items()}

    def _settle_unheld(self) -> Iterator[int]:
        """Rows that start in what others left of what is free now; of two with the same places the first one does."""
        placing = self._placing
        for row in [row for row in placing.claims if row in placing.unheld]:
            claim = placing.claims[row]
            if placing.free_capacity.is_free_now(claim.pieces) and self._gpu_occupancy.has_empty(claim.pieces):
                placing.claim(row, claim)
                yield row
            else:
                del placing.claims[row]
                placing.verdict[row] = JobVerdict.WAIT

    def _take_vacated(self, pieces: Sequence[NodeAllocation], vacated: dict[int, list[int]]) -> tuple[int, ...]:
        """GPUs that others leave, and free ones where these are too few."""
        devices: list[int] = []
        for piece in pieces:
            there = vacated.get(piece.node, [])
            mine = [there.pop() for _ in range(min(piece.gpus, len(there)))]
            empty = self._gpu_occupancy.free_on(piece.node)[: piece.gpus - len(mine)]
            devices += mine
            devices += self._gpu_occupancy.take_empty([piece._replace(gpus=len(empty))])
        return tuple(sorted(devices))
