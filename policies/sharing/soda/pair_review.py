"""What the places of guests are worth is weighed again, by what is known of them by now: some had better leave.

A pair was made by what was known of it, perhaps only to find out (:mod:`.place_worth`). A guest that can be preempted leaves
once all jobs together would end earlier if it waited, by more than the preemption costs. While nobody has seen how much the
two slow each other, they have twice the minute that this takes; then what is assumed of them counts.

To be preempted saves a guest's state, to be revoked as its host ends does not. So what it has done since it last saved it is
at stake: the more, the longer it stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest
from slurm_soda.policies.sharing.soda.guest_places import describe_guest
from slurm_soda.policies.sharing.soda.place_worth import (
    GuestInQueue,
    Hosts,
    SeatedGuest,
    gain_a_second,
    leaving_cost_s,
    weigh_places,
)
from slurm_soda.policies.sharing.soda.queue_outlook import QueueOutlook
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import FloatColumn

_ROUNDING = 1e-6
"""Of the wait: gains below that are none."""
_ALIKE = 0.99
"""What is known is no less than this part of what is seen: then it says the same."""


class LeavingGuest(NamedTuple):
    """A guest that had better wait."""

    row: int
    gain_s: float
    """All jobs together end so much earlier."""
    apart: tuple[int, ...]
    """Rows that it must not meet again, as nothing else would remember how it went."""


class _Slowdown(NamedTuple):
    """Of a job beside another one, as far as it is known by now."""

    xi: float
    assumed: bool
    """Nobody has seen or predicted it."""
    kept: bool
    """Those who decide later know it as well, of any two jobs of these kinds."""


class _Seat(NamedTuple):
    """A guest beside its hosts, by what is known of them by now."""

    guest: int
    hosts: tuple[int, ...]
    together_s: float
    xi: float
    """The guest's slowdown, without that of its sub-batch."""
    its_xi: float
    """That of its hosts; 1 where it is not sure that they would be faster without it."""
    assumed: bool
    """Nobody has seen or predicted one of the slowdowns."""
    kept: bool
    """Those who decide later know as much."""
    first: Hosts
    """The host that is expected to end first, without the guest among those that wait."""
    left_s: float
    """How long that takes."""
    behind: float
    """Of the queue if the guest waited, as in :class:`.GuestInQueue`; so is ``ahead``."""
    ahead: float


class PairReview:
    """Of one snapshot."""

    def __init__(self, snapshot: SharingSnapshot, interference_view: InterferenceView, prices_s: FloatColumn) -> None:
        """``prices_s``: by row, what the preemption of a job costs on each of its GPUs."""
        self._snapshot, self._view, self._prices_s = snapshot, interference_view, prices_s

    def find_leaving(self, guest: int, hosts: Sequence[int], queue: QueueOutlook, *, lone: bool) -> LeavingGuest | None:
        """The guest, if it had better leave its hosts; ``None``: it stays.

        ``lone``: it is the only guest of its only host. Of several hosts the first to end counts; that any of them would be
        faster without it is sure of a lone one only.
        """
        seat = self._look_at(guest, hosts, queue, lone=lone)
        if seat is None:
            return None
        pace, its_delay = 1.0 / (seat.xi * self._view.accumulation_slowdown(guest)), 1.0 - 1.0 / seat.its_xi
        # Cheap, and enough where nothing is revoked: the host delays the guest's turn by its own delay at the most.
        gains = pace * (1.0 + seat.behind) - its_delay >= float(seat.first.weight[0]) * its_delay
        if gains and not self._snapshot.mechanism.revokes:
            return None
        wait_s = queue.wait_if_left_s(guest, seat.left_s)
        queued = GuestInQueue(self._seated(seat, wait_s), seat.behind, seat.ahead)
        gain_s = -float(weigh_places(queued, seat.first, *self._slowdowns(seat)).total_s[0]) - leaving_cost_s(queued)
        if not _ROUNDING * max(wait_s, 1.0) < gain_s < math.inf:
            return None
        return LeavingGuest(guest, gain_s, () if seat.kept else tuple(hosts))

    def weigh_stay(self, guest: int, hosts: Sequence[int], queue: QueueOutlook, *, lone: bool) -> SeatedGuest | None:
        """What the guest's place is worth; ``None`` where that is not known yet, or nothing could be gained.

        Arguments are those of :meth:`find_leaving`.
        """
        seat = self._look_at(guest, hosts, queue, lone=lone)
        if seat is None or seat.assumed:
            return None
        slowdowns, most = self._slowdowns(seat), 1.0 + seat.behind
        wait_s = queue.wait_if_left_s(guest, seat.left_s)
        staying = GuestInQueue(self._seated(seat, wait_s), seat.behind, seat.ahead)
        second = float(gain_a_second(staying, seat.first, *slowdowns).total_s[0])
        if second >= _ALIKE * most:
            return None
        worth_s = float(weigh_places(staying, seat.first, *slowdowns).total_s[0])
        if not math.isfinite(worth_s):
            return None
        waiting = describe_guest(self._snapshot, self._view, guest, wait_s, self._prices_s)
        apart = () if seat.kept else seat.hosts
        return SeatedGuest(guest, seat.hosts, apart, staying._replace(guest=waiting), worth_s, second)

    def _look_at(self, guest: int, hosts: Sequence[int], queue: QueueOutlook, *, lone: bool) -> _Seat | None:
        """What is known of a guest's place, once there was time to see it."""
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        beside = [(self._slowdown(guest, host), self._slowdown(host, guest)) for host in hosts]
        assumed = any(one.assumed or other.assumed for one, other in beside)
        together_s = snapshot.now_s - float(jobs.start_s[[guest, *hosts]].max())
        if together_s < (2.0 * (MEASURED_AFTER_S + float(self._prices_s[guest])) if assumed else MEASURED_AFTER_S):
            return None
        xi, its_xi = max(one.xi for one, _ in beside), beside[0][1].xi if lone else 1.0
        if not (math.isfinite(xi) and math.isfinite(its_xi)):
            return None
        left_s = expect_remaining_s(snapshot, np.array(hosts))
        first = int(left_s.mean(axis=1).argmin())
        return _Seat(
            guest,
            tuple(hosts),
            together_s,
            xi,
            its_xi,
            assumed,
            all(one.kept and other.kept for one, other in beside),
            Hosts(left_s[[first]], queue.weight(jobs.gpus[[hosts[first]]], guests_gone=1)),
            float(left_s[first].mean()),
            *queue.around(guest),
        )

    def _slowdowns(self, seat: _Seat) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
        """Of the guest and of its host, and the work that its sub-batch makes of its own."""
        ratio = self._view.accumulation_slowdown(seat.guest)
        return np.array([seat.xi]), np.array([seat.its_xi]), np.array([ratio])

    def _seated(self, seat: _Seat, wait_s: float) -> WaitingGuest:
        """A running guest as if it waited, with what it has done there; to stay where it is takes no start."""
        described = describe_guest(self._snapshot, self._view, seat.guest, wait_s, self._prices_s)
        every_s = described.terms.saves_every_s
        # It saved its state at some time within the last interval, half of it ago on average.
        done_s = seat.together_s / (seat.xi * self._view.accumulation_slowdown(seat.guest))
        unsaved_s = min(done_s, every_s / 2.0)
        return described._replace(terms=replace(described.terms, start_s=0.0), unsaved_s=unsaved_s)

    def _slowdown(self, row: int, other: int) -> _Slowdown:
        """What the job shows itself goes before what is known of its kind, once it has shown it for long enough."""
        sharing = self._snapshot.sharing
        kinds = self._view.kind(row), self._view.kind(other)
        found = None if kinds[0] is None or kinds[1] is None else self._view.xi(kinds[0], (kinds[1],))
        known_xi = math.inf if found is None else max(found.value, 1.0)
        assumed = found is None or found.source == Source.PRIOR
        seen, lasted_s = float(sharing.observed_slowdown[row]), float(sharing.together_s[row])
        if not (math.isfinite(seen) and lasted_s >= MEASURED_AFTER_S):
            return _Slowdown(known_xi, assumed, not assumed)
        xi = max(seen / self._view.accumulation_slowdown(row), 1.0)
        return _Slowdown(xi, assumed=False, kept=not assumed and known_xi > _ALIKE * xi)
