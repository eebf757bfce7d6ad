"""What a seat is worth that ends with its host: Theorem 1 of SJF-BSBF where the engine revokes seats.

A guest A joins a host B at time 0 and makes progress from d on. Beside each other they are xi_A and xi_B times as slow. B,
with work w_B left, ends at T = d + xi_B (w_B - d) if A is still there then. A, with work w_A, needs until d + xi_A w_A.

- That is at most T: it ends first, and nothing is lost. Both end as in Equations 18 and 19, d later.
- It is more: its seat ends at T. It has done (T - d) / xi_A, of which kept = c floor((T - d) / (xi_A c)) is saved, where c
  is the work between two times that it saves its state (infinite: it does not by itself, and kept = 0). The rest of its
  work, w_A - kept, it does on the GPUs that B left, r after T: T_A = T + r + w_A - kept.

P is the probability that A outlives B. A snapshot has one number for the time that a job has left, so P is 0 or 1 where
both are known. Where one is not, either may end first: P = 1/2. Expected completion is (1 - P) x the first + P x the second.
The *kept ratio* is the part of a guest's work beside its host that counts: 1 - P (done - kept) / done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.sharing.arithmetic.completion_times import CompletionSchedule, OverlappedJob, schedule_at
from slurm_soda.policies.snapshot import FloatColumn

EITHER = 0.5
"""P where nobody knows which of two ends first."""


@dataclass(frozen=True, slots=True)
class GuestTerms:
    """On what terms a guest sits.

    Attributes:
        start_s: d. Its hosts run alone until then.
        readmit_s: r.
        saves_every_s: c, in seconds of its work alone; infinite: never by itself.
        revokes: whether its seat ends with its host.
    """

    start_s: float = 0.0
    readmit_s: float = 0.0
    saves_every_s: float = math.inf
    revokes: bool = True

    def kept_s(self, done_s: float) -> float:
        """Of so much work, what is saved when the seat ends."""
        return float(kept_s(np.asarray(done_s), np.asarray(self.saves_every_s)))


def schedule_as_guest(work_s: float, hosts: Sequence[OverlappedJob], terms: GuestTerms) -> CompletionSchedule:
    """A new job with ``work_s`` of work alone joins hosts now.

    Of several hosts the first that ends ends the seat. Then, as if they ran one after the other, the new job starts anew
    when the last of them has ended.

    Raises:
        PolicyError: as :func:`.schedule_at`.
    """
    start_s = terms.start_s
    if not terms.revokes or not hosts:
        later = schedule_at(work_s, hosts, start_s)
        return CompletionSchedule(0.0, later.new_end_s, later.ends_s)
    slowest = max(max(host.new_xi, 1.0) for host in hosts)
    until_s = min(_end_beside_s(host, start_s) for host in hosts)
    if start_s + slowest * work_s <= until_s:
        ended = schedule_at(work_s, hosts, start_s)
        return CompletionSchedule(0.0, ended.new_end_s, ended.ends_s)
    done_s = max(until_s - start_s, 0.0) / slowest
    beside = schedule_at(done_s, hosts, min(start_s, until_s))
    kept_s = terms.kept_s(done_s)
    new_end_s = max(beside.ends_s) + terms.readmit_s + work_s - kept_s
    return CompletionSchedule(0.0, new_end_s, beside.ends_s, done_s - kept_s)


def _end_beside_s(host: OverlappedJob, start_s: float) -> float:
    """When a host ends if its guest stays until then."""
    if host.work_s <= start_s:
        return host.work_s
    return start_s + max(host.xi, 1.0) * (host.work_s - start_s)


def mean_guest_completions_s(
    new_work_s: FloatColumn, host_work_s: FloatColumn, new_xi: FloatColumn, host_xi: FloatColumn, terms: GuestTerms
) -> FloatColumn:
    """Means of :func:`schedule_as_guest` for one host each, for whole tables at once; the arguments broadcast."""
    new_end_s, host_end_s = guest_completions_s(new_work_s, host_work_s, new_xi, host_xi, terms)
    means: FloatColumn = (new_end_s + host_end_s) / 2
    return means


def guest_completions_s(
    new_work_s: FloatColumn, host_work_s: FloatColumn, new_xi: FloatColumn, host_xi: FloatColumn, terms: GuestTerms
) -> tuple[FloatColumn, FloatColumn]:
    """When the new job ends, and when its host does, each for one host; the arguments broadcast."""
    start_s = np.minimum(terms.start_s, host_work_s)
    xi, its = np.maximum(new_xi, 1.0), np.maximum(host_xi, 1.0)
    until_s = start_s + its * (host_work_s - start_s)
    new_end_s = terms.start_s + xi * new_work_s
    first = new_end_s <= until_s
    after_guest_s = new_end_s + host_work_s - start_s - xi * new_work_s / its
    if terms.revokes:
        done_s = np.maximum(until_s - start_s, 0.0) / xi
        outlived_s = until_s + terms.readmit_s + new_work_s - kept_s(done_s, np.asarray(terms.saves_every_s))
    else:
        outlived_s = np.maximum(until_s, terms.start_s) + new_work_s - np.maximum(until_s - start_s, 0.0) / xi
    return np.where(first, new_end_s, outlived_s), np.where(first, after_guest_s, until_s)


def kept_ratios(
    guest_work_s: FloatColumn,
    host_work_s: FloatColumn,
    guest_xi: FloatColumn,
    host_xi: FloatColumn,
    *,
    start_s: float,
    saves_every_s: FloatColumn,
) -> FloatColumn:
    """The kept ratio of a guest beside one host that revokes its seat; the arguments broadcast, NaN in either work: unknown.

    What is lost where nobody knows is all that was done: nobody knows either when the guest saves its state next.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        beside_s = np.maximum(host_xi, 1.0) * np.maximum(host_work_s - start_s, 0.0)
        done_s = beside_s / np.maximum(guest_xi, 1.0)
        outlives = np.where(done_s > 0, kept_s(done_s, saves_every_s) / done_s, 0.0)
        known = np.isfinite(guest_work_s) & np.isfinite(host_work_s)
        ratios: FloatColumn = np.where(known, np.where(guest_work_s <= done_s, 1.0, outlives), 1.0 - EITHER)
    return ratios


def kept_s(done_s: FloatColumn, every_s: FloatColumn) -> FloatColumn:
    """Of so much work alone, what is saved when a seat ends; ``every_s``: c."""
    with np.errstate(invalid="ignore"):
        saved_s: FloatColumn = np.where(np.isfinite(every_s), np.floor(done_s / every_s) * every_s, 0.0)
    return saved_s
