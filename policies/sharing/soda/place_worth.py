"""What a place beside a host is worth to all jobs together: the sum of :mod:`.guest_places`, and that of a trial.

Of two kinds that nobody has seen beside each other, nor predicted, the slowdowns are unknown, but not for long: they are
measured within a minute (:data:`.MEASURED_AFTER_S`), and a guest that can be preempted leaves where it does not pay. So to
join is worth the larger of what it turns out to be worth and of minus what a minute in vain costs, expected over what is
likely: any slowdown between none and that of taking turns, evenly, alike for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest, expect_outcomes
from slurm_soda.policies.snapshot import FloatColumn

_LIKELY: FloatColumn = (np.arange(4) + 0.5) / 4
"""Parts of the way from no slowdown to that of taking turns, equally likely."""


class GuestInQueue(NamedTuple):
    """A job and who waits with it."""

    guest: WaitingGuest
    behind: float
    """Jobs that wait behind it, times its part of all GPUs: b g_k / G."""
    ahead: float
    """The same of those before it: a g_k / G."""


class SeatedGuest(NamedTuple):
    """A guest that might be better off beside other hosts."""

    row: int
    hosts: tuple[int, ...]
    """Rows of those whom it is beside."""
    apart: tuple[int, ...]
    """Those of them whom it must not meet again once it has left, as nothing else would remember how it went."""
    queued: GuestInQueue
    """As if it waited."""
    worth_s: float
    """What its place is worth, in seconds of the sum of all completion times."""
    gain_a_second: float
    """What all gain by each second there."""


class Hosts(NamedTuple):
    """Columns, one row a host."""

    left_s: FloatColumn
    """Equally likely values of what is left of each; shape (hosts, values)."""
    weight: FloatColumn
    """By how much all together end later for each second that it does: 1 + n g_h / G."""


class PlaceWorth(NamedTuple):
    """By host, in seconds of the sum of all completion times, in all or by each second."""

    gain_s: FloatColumn
    cost_s: FloatColumn

    @property
    def total_s(self) -> FloatColumn:
        """Both together."""
        return self.gain_s - self.cost_s

    def with_all_s(self, hosts: Sequence[int]) -> float:
        """Of a place beside all of these hosts; 0 beside none."""
        at = list(hosts)
        return float(self.gain_s[at].min() - self.cost_s[at].sum()) if at else 0.0


def weigh_places(
    queued: GuestInQueue, hosts: Hosts, guest_xi: FloatColumn, host_xi: FloatColumn, work_ratio: FloatColumn
) -> PlaceWorth:
    """A job beside each of these hosts, with slowdowns that are known; for as long as is better, as
    :func:`.expect_outcomes` tells.
    """
    best = PlaceWorth(np.full(len(hosts.weight), -math.inf), np.zeros(len(hosts.weight)))
    for outcome in expect_outcomes(queued.guest, hosts.left_s, guest_xi, host_xi, work_ratio):
        found = PlaceWorth(
            outcome.sooner_s + queued.behind * outcome.guest_work_s,
            hosts.weight * outcome.later_s + queued.ahead * outcome.out_of_turn_s,
        )
        better = found.total_s > best.total_s
        best = PlaceWorth(*(np.where(better, new, old) for new, old in zip(found, best, strict=True)))
    return best


def gain_a_second(
    queued: GuestInQueue, hosts: Hosts, guest_xi: FloatColumn, host_xi: FloatColumn, work_ratio: FloatColumn
) -> PlaceWorth:
    """What all together gain and lose by each second that a job is beside each of these hosts.

    Places are few, and the next job can have one once this one has left: so who gains most a second there goes first.
    """
    pace, its_pace = 1.0 / (np.maximum(guest_xi, 1.0) * work_ratio), 1.0 / np.maximum(host_xi, 1.0)
    return PlaceWorth((1.0 + queued.behind) * pace, hosts.weight * (1.0 - its_pace))


def leaving_cost_s(queued: GuestInQueue) -> float:
    """What it costs all together that a guest is preempted: it ends later by that, and those behind it by their part."""
    return queued.guest.move_s * (1.0 + queued.behind)


def gain_a_second_of_trials(
    queued: GuestInQueue, hosts: Hosts, turns_xi: FloatColumn, work_ratio: FloatColumn
) -> PlaceWorth:
    """The same where nobody knows how much the two slow each other, once it is known and none are beside each other who had
    better not be.
    """
    gain = np.zeros(len(hosts.weight))
    for part in _LIKELY.tolist():
        xi = 1.0 + part * (turns_xi - 1.0)
        found = gain_a_second(queued, hosts, xi, xi, work_ratio).total_s
        gain += np.maximum(found, 0.0) / len(_LIKELY)
    return PlaceWorth(gain, np.zeros(len(gain)))


def weigh_trials(queued: GuestInQueue, hosts: Hosts, turns_xi: FloatColumn, work_ratio: FloatColumn) -> PlaceWorth:
    """The same where nobody knows how much the two slow each other, and the job can be preempted.

    Args:
        queued: the job.
        hosts: whom it may join.
        turns_xi: slowdown of those who take turns, by host.
        work_ratio: as in :func:`.expect_outcomes`.
    """
    queued = queued._replace(guest=queued.guest._replace(work_s=_a_few(queued.guest.work_s)))
    hosts = hosts._replace(left_s=_a_few(hosts.left_s))
    vain_s = MEASURED_AFTER_S * hosts.weight + leaving_cost_s(queued)
    gain_s, cost_s = np.zeros(len(hosts.weight)), np.zeros(len(hosts.weight))
    for part in _LIKELY.tolist():
        xi = 1.0 + part * (turns_xi - 1.0)
        worth_s = weigh_places(queued, hosts, xi, xi, work_ratio).total_s
        gain_s += np.maximum(worth_s, 0.0) / len(_LIKELY)
        cost_s += np.minimum(np.maximum(-worth_s, 0.0), vain_s) / len(_LIKELY)
    return PlaceWorth(gain_s, cost_s)


def _a_few(values: FloatColumn) -> FloatColumn:
    """A third of what is likely of run times, evenly: of slowdowns much less is known."""
    return values[..., 1::3] if values.shape[-1] >= 3 else values
