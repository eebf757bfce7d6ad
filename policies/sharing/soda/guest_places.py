"""Who of those that wait joins whom: where all jobs together end earlier.

A job k that waits, with work w_k left, would wait t_k for GPUs of its own. Beside a host h, with work w_h left, k would end
at e_k and h at e_h (Equations 18 and 19 of SJF-BSBF, with what a guest loses whose host ends first:
:mod:`slurm_soda.policies.sharing.arithmetic.revocation`). With n jobs waiting, b of them behind k, and G GPUs, to join
changes the sum of completion times by the expectation, over what is likely of w_k and w_h, of

- what k gains itself: t_k + w_k - e_k (if its host ends first it waits on, until t_k at the least: its place is revoked,
  or it makes way for those before it);
- what those behind k gain, as so much of its work needs no GPUs of its own: b g_k / G x (work done beside h);
- what h loses, and those who wait for its GPUs: (1 + n g_h / G) (e_h - w_h), as if no others were beside h, since k may
  stay on when they leave;
- what the a jobs before k lose, if k cannot be preempted and keeps the GPUs once its host has ended: a g_k / G x (the
  time that it has them before its turn).

If k can be preempted it need not stay beside h for long: after t_k it can have GPUs of its own as if it had waited, for what
it costs to move. Of both the better one counts. Else a job that waits for minutes would be refused by hosts with hours left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.arithmetic.sharing_decision import BOUND_CAUTION, SharingDecision, start_all_the_same
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.sjf.partner_screening import PartnerScreen
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest
from slurm_soda.policies.sharing.soda.place_worth import (
    GuestInQueue,
    Hosts,
    PlaceWorth,
    SeatedGuest,
    gain_a_second,
    gain_a_second_of_trials,
    leaving_cost_s,
    weigh_places,
    weigh_trials,
)
from slurm_soda.policies.sharing.soda.queue_outlook import QueueOutlook
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

JOBS_PER_GPU = 2
"""A host and a guest."""
_MOST_REFUSALS = 32
"""Jobs that find no host, one after the other, before a decision looks for hosts no more."""
_ROUNDING = 1e-6
"""Of what a place is worth: gains below that are none."""
_AT_ONCE = 4096
"""Pairs of jobs and possible hosts that are weighed before the best of them are made."""


class _Candidate(NamedTuple):
    """A job that looks for hosts, by group of devices."""

    row: int
    gpus: int
    worth: PlaceWorth
    second: PlaceWorth
    """By each second beside them."""

    @classmethod
    def of(cls, row: int, gpus: int, groups: int) -> _Candidate:
        """Without any host yet."""
        return cls(row, gpus, *(PlaceWorth(np.full(groups, -np.inf), np.zeros(groups)) for _ in range(2)))

    def take_best(self, members: IntColumn, worth: PlaceWorth, second: PlaceWorth) -> None:
        """These groups may be its hosts; of several rows of one group the best counts, the first of equal ones."""
        order = np.lexsort((-worth.total_s, members))
        order = order[worth.total_s[order] > -np.inf]
        of_groups, first = np.unique(members[order], return_index=True)
        best = order[first]
        for mine, new in ((self.worth, worth), (self.second, second)):
            mine.gain_s[of_groups], mine.cost_s[of_groups] = new.gain_s[best], new.cost_s[best]

    def density(self, used: IntColumn) -> FloatColumn:
        """What all gain a second by each of its GPUs, with so many of each group; minus infinity where nothing is left or
        gained.

        Of hosts with too few GPUs several are needed, each of which costs.
        """
        found = self.second.gain_s - self.second.cost_s * self.gpus / np.maximum(used, 1)
        return np.where((used > 0) & (self.worth.total_s > 0), found / self.gpus, -np.inf)


class _Place(NamedTuple):
    """Where a job could go, and what Algorithm 2 of SJF-BSBF says of it."""

    devices: list[int]
    pieces: list[NodeAllocation]
    judged: SharingDecision


class GuestPlaces:
    """Places beside running jobs in one decision.

    Attributes:
        devices: by row, of those who join.
        sub_batches: by row, of those who would accumulate gradients.
        decisions: by row, the arithmetic behind joining or waiting.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        placing: PlacementPass,
        gpu_occupancy: GpuOccupancy,
        interference_view: InterferenceView,
        prices_s: FloatColumn,
    ) -> None:
        """``prices_s``: by row, what the preemption of a job costs on each of its GPUs."""
        self._snapshot, self._placing = snapshot, placing
        self._gpu_occupancy, self._interference_view = gpu_occupancy, interference_view
        self._prices_s = prices_s
        self.devices: dict[int, tuple[int, ...]] = {}
        self.sub_batches: dict[int, int] = {}
        self.decisions: dict[int, SharingDecision] = {}
        self._gains_s: dict[int, float] = {}
        self._seated: dict[int, SeatedGuest] = {}
        """By row, guests that look for other places."""
        self._masks: dict[int, BoolColumn] = {}

    def find(self, queue: QueueOutlook) -> None:
        """Places for those that wait and gain by it. Of a few at the head of the queue at a time, those go first by whom all
        gain most a second.

        O(devices) once, then O(hosts) in numpy for each of them; no more are asked once 32 in a row found no host.
        """
        sharing, jobs, waiting = self._snapshot.sharing, self._snapshot.jobs, queue.waiting
        able = np.flatnonzero(sharing.shares[waiting] & np.isfinite(jobs.remaining_s[waiting])).tolist()
        if not able or not self._list_hosts(queue):
            return
        waits_s = queue.waits_s()
        refusals, together = 0, min(max(_AT_ONCE // len(self._screen), 1), _MOST_REFUSALS)
        for first in range(0, len(able), together):
            candidates = []
            for at in able[first : first + together]:
                row = int(waiting[at])
                share = int(jobs.gpus[row]) / queue.total_gpus
                guest = describe_guest(self._snapshot, self._interference_view, row, float(waits_s[at]), self._prices_s)
                candidates.append(self._weigh(row, GuestInQueue(guest, queue.behind(at) * share, at * share)))
            refusals = 0 if self._join_best_first(candidates) else refusals + len(candidates)
            if refusals >= _MOST_REFUSALS:
                return

    def find_better(self, seated: Sequence[SeatedGuest], queue: QueueOutlook) -> list[tuple[int, float]]:
        """Other places for guests where these are worth more than their own and what it costs to leave that: their rows, and
        the gain.

        O(hosts) in numpy for each of them.
        """
        self._list_hosts(queue)
        self._seated = {one.row: one for one in seated}
        self._join_best_first([self._weigh_move(one) for one in seated])
        return [(one.row, self._gains_s[one.row]) for one in seated if one.row in self.devices]

    def any_left(self) -> bool:
        """Whether some host could have another guest."""
        return bool(self._screen.free_capacity(np.ones(len(self._snapshot.nodes), dtype=np.bool_)).any())

    @cached_property
    def _screen(self) -> PartnerScreen:
        return PartnerScreen(self._snapshot, self._gpu_occupancy, self._interference_view, JOBS_PER_GPU, BOUND_CAUTION)

    def _list_hosts(self, queue: QueueOutlook) -> bool:
        """Who may have guests; whether anybody may."""
        rows = np.array([group.rows[0] for group in self._screen.groups], dtype=np.int64)
        self._hosts = Hosts(expect_remaining_s(self._snapshot, rows), queue.weight(self._snapshot.jobs.gpus[rows]))
        self._triable: BoolColumn = self._snapshot.sharing.triable[rows]
        return len(rows) > 0

    def _weigh(self, row: int, queued: GuestInQueue, only_ratio: float | None = None) -> _Candidate:
        """What a job gains by each host, with the best of its sub-batches, or the one that makes its work so much longer."""
        found = _Candidate.of(row, int(self._snapshot.jobs.gpus[row]), len(self._screen))
        partners = self._screen.partners(row)
        if partners is not None and only_ratio is not None:
            partners = partners.only(np.isclose(partners.work_ratio, only_ratio))
        if partners is None or not len(partners.members):
            return found
        members, work_ratio, xi = partners.members, partners.work_ratio, (partners.new_xi, partners.pair_xi)
        hosts = Hosts(*(column[members] for column in self._hosts))
        worth = weigh_places(queued, hosts, *xi, work_ratio)
        second = gain_a_second(queued, hosts, *xi, work_ratio)
        may_try = bool(self._snapshot.sharing.triable[row]) and queued.guest.gives_way
        may_try &= row not in self._seated or not queued.guest.move_s  # it might be put back beside those whom it left
        tried = np.flatnonzero(may_try & partners.assumed & self._triable[members])
        if len(tried):
            few, turns_xi = Hosts(*(column[tried] for column in hosts)), np.maximum(*xi)[tried]
            worth.gain_s[tried], worth.cost_s[tried] = weigh_trials(queued, few, turns_xi, work_ratio[tried])
            trials = gain_a_second_of_trials(queued, few, turns_xi, work_ratio[tried])
            second.gain_s[tried], second.cost_s[tried] = trials
        found.take_best(members, worth, second)
        return found

    def _weigh_move(self, one: SeatedGuest, only_ratio: float | None = None) -> _Candidate:
        """What a guest gains by each other host, over its own place; other arguments are those of :meth:`_weigh`.

        By each second too: hosts are chosen by that, and else it would be put back, once it waits, beside the one it left.
        """
        found = self._weigh(one.row, one.queued, only_ratio)
        found.second.gain_s[:] -= one.gain_a_second
        own = [not {one.row, *one.hosts}.isdisjoint(group.rows) for group in self._screen.groups]
        never = np.array(own, dtype=np.bool_) | (found.second.total_s <= 0)
        found.worth.gain_s[:] -= np.where(never, np.inf, one.worth_s + leaving_cost_s(one.queued))
        return found

    def _join_best_first(self, candidates: Sequence[_Candidate]) -> int:
        """How many of these found hosts."""
        used = [self._used(one) for one in candidates]
        best = np.array([one.density(mine) for one, mine in zip(candidates, used, strict=True)])
        joined = 0
        while (best > -math.inf).any():
            at, host = np.unravel_index(int(best.argmax()), best.shape)
            candidate = candidates[int(at)]
            now = self._used(candidate)
            if now[host] < used[int(at)][host]:  # another one has that by now
                used[int(at)], best[at] = now, candidate.density(now)
                continue
            joined += self._join(candidate, now)
            best[at] = -math.inf
        return joined

    def _used(self, candidate: _Candidate) -> IntColumn:
        """GPUs that a job could have of each group."""
        nodes, _ = self._request(candidate.row)
        return np.minimum(self._screen.free_capacity(nodes), candidate.gpus)

    def _join(self, candidate: _Candidate, used: IntColumn) -> bool:
        """Whether a job found hosts."""
        row, worth, screen = candidate.row, candidate.worth, self._screen
        density = candidate.density(used)
        good = np.flatnonzero(density > -math.inf)
        order = good[np.argsort(-density[good], kind="stable")]
        nodes, shape = self._request(row)
        picked = self._gpu_occupancy.pick(row, shape, self._ranked_devices(order, nodes))
        if picked is None:
            return False
        chosen = [at for at in order.tolist() if not set(screen.groups[at].devices).isdisjoint(picked[0])]
        total_s = worth.with_all_s(chosen)
        if total_s <= 0:
            return False
        place = _Place(*picked, self._interference_view.judge(row, picked[0]))
        return self._move(self._seated[row], place, chosen) if row in self._seated else self._start(row, place, total_s)

    def _request(self, row: int) -> tuple[BoolColumn, RequestShape]:
        code = int(self._placing.demand.code[row])
        shape = self._placing.demand.shapes[code]
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(shape)
        return self._masks[code], shape

    def _ranked_devices(self, order: IntColumn, nodes: BoolColumn) -> Iterator[int]:
        """Shared ones before free ones, as the job waits though these are free."""
        yield from self._screen.devices(order, nodes)
        yield from self._gpu_occupancy.free(nodes)

    def _move(self, one: SeatedGuest, place: _Place, groups: Sequence[int]) -> bool:
        """Whether a guest goes there: it gains with the sub-batch that it would get, and nobody joins it where it leaves."""
        mine = self._snapshot.devices.of(one.row)
        alone = [device for device in mine.tolist() if self._gpu_occupancy.jobs_on[device] == [one.row]]
        decision = start_all_the_same(place.judged, "")
        if not decision.share or decision.chosen is None or self._gpu_occupancy.taken[alone].any():
            return False
        work_ratio = decision.chosen.alone_s / decision.alone_s[0] if decision.alone_s[0] else 1.0
        total_s = self._weigh_move(one, work_ratio).worth.with_all_s(groups)
        if total_s <= _ROUNDING * max(one.worth_s, 1.0) or not self._start(one.row, place, total_s):
            return False
        self._gpu_occupancy.taken[alone] = True
        return True

    def _start(self, row: int, place: _Place, total_s: float) -> bool:
        """Algorithm 2 of SJF-BSBF has the last word: bounds and memory, all co-runners together, and the sub-batch."""
        reason = f"starts now: all jobs together end {total_s:.0f} s earlier than if it waited"
        decision = self.decisions[row] = start_all_the_same(place.judged, reason)
        if not decision.share:
            return False
        self._placing.free_capacity.hold(self._gpu_occupancy.take(place.devices, place.pieces))
        self._placing.record(row, JobPlacement(list(place.pieces), at_once=True))
        self.devices[row], self._gains_s[row] = tuple(place.devices), total_s
        batch = int(self._snapshot.sharing.batch[row])
        if decision.chosen is not None and 0 < decision.chosen.sub_batch < batch and len(decision.trials) > 1:
            self.sub_batches[row] = decision.chosen.sub_batch
        return True


def describe_guest(
    snapshot: SharingSnapshot, interference_view: InterferenceView, row: int, wait_s: float, prices_s: FloatColumn
) -> WaitingGuest:
    """A job that would wait so long for GPUs of its own; ``prices_s``: by row, what a preemption costs on each GPU."""
    return WaitingGuest(
        expect_remaining_s(snapshot, np.array([row]))[0],
        interference_view.guest_terms(row) or GuestTerms(revokes=False),
        wait_s,
        float(prices_s[row]) if snapshot.jobs.preemptible[row] else math.inf,
    )
