"""What becomes of a guest and of its host, over all that is likely of their remaining work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms, guest_completions_s, kept_s
from slurm_soda.policies.snapshot import FloatColumn


class GuestOutcome(NamedTuple):
    """By host, expected."""

    sooner_s: FloatColumn
    """How much earlier the guest ends than if it waited."""
    later_s: FloatColumn
    """How much later the host ends than alone."""
    beside_s: FloatColumn
    """Work of the guest, as alone, that needs no GPUs of its own."""


def expect_outcome(
    work_s: FloatColumn,
    work_ratio: float,
    host_left_s: FloatColumn,
    new_xi: FloatColumn,
    host_xi: FloatColumn,
    terms: GuestTerms,
    wait_s: float,
) -> GuestOutcome:
    """A job joins one host now, instead of waiting for ``wait_s``.

    Args:
        work_s: equally likely values of its work; shape (values,).
        work_ratio: its work with the sub-batch that it would have over that.
        host_left_s: of each host, equally likely values of what is left; shape (hosts, values).
        new_xi: its slowdown beside each host; shape (hosts,).
        host_xi: that of the hosts.
        terms: on which it sits.
        wait_s: until it would have GPUs of its own; who loses a seat waits for them until then.

    Complexity: O(hosts x values squared).
    """
    mine_s, left_s = work_s[None, :, None], host_left_s[:, None, :]
    xi, its = np.maximum(new_xi, 1.0)[:, None, None], np.maximum(host_xi, 1.0)[:, None, None]
    needs_s = mine_s * work_ratio
    new_end_s, host_end_s = guest_completions_s(needs_s, left_s, xi, its, terms)
    outlives = new_end_s > host_end_s
    done_s = np.maximum(host_end_s - terms.start_s, 0.0) / xi
    if terms.revokes:
        done_s = kept_s(done_s, np.asarray(terms.saves_every_s))
        new_end_s = new_end_s + np.where(outlives, np.maximum(wait_s - host_end_s, 0.0), 0.0)
    beside_s = np.where(outlives, np.minimum(done_s, needs_s), needs_s) / work_ratio
    mean = lambda values: np.broadcast_to(values, new_end_s.shape).mean(axis=(1, 2))  # noqa: E731
    return GuestOutcome(mean(wait_s + mine_s - new_end_s), mean(host_end_s - left_s), mean(beside_s))
