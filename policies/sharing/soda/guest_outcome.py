"""What becomes of a guest and of its host, over all that is likely of their remaining work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms, guest_completions_s, kept_s
from slurm_soda.policies.snapshot import FloatColumn


class WaitingGuest(NamedTuple):
    """A job that may join hosts."""

    work_s: FloatColumn
    """Equally likely values of its work alone; shape (values,)."""
    terms: GuestTerms
    """On which it would sit."""
    wait_s: float
    """Until it would have GPUs of its own; who loses its place waits for them until then."""
    move_s: float
    """What it costs to preempt it, on each of its GPUs; infinite: it cannot be."""
    unsaved_s: float = 0.0
    """Work that it has done since it last saved its state, lost if its place is revoked."""

    @property
    def gives_way(self) -> bool:
        """Whether it can be preempted."""
        return self.move_s < math.inf


class GuestOutcome(NamedTuple):
    """By host, expected."""

    sooner_s: FloatColumn
    """How much earlier the guest ends than if it waited."""
    later_s: FloatColumn
    """How much later the host ends than alone."""
    guest_work_s: FloatColumn
    """Work of the guest, as alone, that needs no GPUs of its own, less what it costs to move."""
    out_of_turn_s: FloatColumn
    """How long the guest keeps GPUs that its host left, before it would have had some."""


def expect_outcomes(
    guest: WaitingGuest, host_left_s: FloatColumn, guest_xi: FloatColumn, host_xi: FloatColumn, work_ratio: FloatColumn
) -> list[GuestOutcome]:
    """A job joins one host now, instead of waiting: what follows if it stays until one of the two has ended, and, where it
    can be preempted, if it moves to GPUs of its own when it would have had some without its host.

    Args:
        guest: the job.
        host_left_s: of each host, equally likely values of what is left; shape (hosts, values).
        guest_xi: the job's slowdown beside each host; shape (hosts,).
        host_xi: that of the hosts.
        work_ratio: the job's work with the sub-batch that it would have beside each host, over that with its whole batch.

    Complexity: O(hosts x values squared).
    """
    terms, work_s, left_s = guest.terms, guest.work_s[None, :, None], host_left_s[:, None, :]
    ratio = work_ratio[:, None, None]
    xi, its = np.maximum(guest_xi, 1.0)[:, None, None], np.maximum(host_xi, 1.0)[:, None, None]
    needs_s = work_s * ratio
    new_end_s, host_end_s = guest_completions_s(needs_s, left_s, xi, its, terms)
    # Who waits for the end of this very host comes off it no sooner.
    moves = guest.wait_s < np.minimum(new_end_s, left_s)
    outlives = new_end_s > host_end_s
    done_s = np.maximum(host_end_s - terms.start_s, 0.0) / xi
    early_s = np.where(outlives, np.maximum(guest.wait_s - host_end_s, 0.0), 0.0)
    if terms.revokes:
        done_s = kept_s(done_s, np.asarray(terms.saves_every_s))
    out_of_turn_s = np.minimum(early_s, np.maximum(new_end_s - host_end_s, 0.0))
    if terms.revokes or guest.gives_way:
        new_end_s, out_of_turn_s = new_end_s + early_s, np.zeros_like(early_s)
    guest_work_s = np.where(outlives, np.minimum(done_s, needs_s), needs_s) / ratio
    if terms.revokes and guest.unsaved_s:
        lost_s = np.where(outlives, guest.unsaved_s, 0.0)
        new_end_s, guest_work_s = new_end_s + lost_s, guest_work_s - lost_s
    stays = (guest.wait_s + work_s - new_end_s, host_end_s - left_s, guest_work_s, out_of_turn_s)
    if not (guest.gives_way and moves.any()):
        return [_mean(stays)]
    together_s = max(guest.wait_s - terms.start_s, 0.0)
    before_s = together_s / xi / ratio - guest.move_s
    moved = (before_s, together_s * (1.0 - 1.0 / its), before_s, np.zeros(1))
    return [_mean(stays), _mean([np.where(moves, one, other) for one, other in zip(moved, stays, strict=True)])]


def _mean(outcome: Sequence[FloatColumn]) -> GuestOutcome:
    """Of all that is likely."""
    return GuestOutcome(*(each.mean(axis=(1, 2)) for each in outcome))
