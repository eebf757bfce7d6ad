"""Pairs by the engine's mechanism: who of two would be the host, whether they may meet, what of the guest's work counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.sharing.arithmetic.revocation import kept_ratios
from slurm_soda.policies.sharing.mechanism.guest_obstacles import find_guest_obstacle
from slurm_soda.policies.sharing.mechanism.guest_rules import GuestRules
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn


class PairRoles:
    """Of two that share already the host stays the host. Else it is who may not be stopped; then who needs longer, since a
    guest that ends first loses nothing, whoever of them runs: the other one moves. So what a pair is worth does not hang on
    who happens to run, and decisions come to rest. Jobs by their number in one matching; the last number is nobody's.

    Attributes:
        host_rank: of two jobs the one of the larger rank is the host.
        guest: those who are guests now.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        guest_rules: GuestRules,
        rows: IntColumn,
        *,
        runs: BoolColumn,
        fixed: BoolColumn,
        co_runner: IntColumn,
    ) -> None:
        """Columns ``runs`` and ``fixed`` by row of the snapshot; ``co_runner`` as in the matching's input."""
        self._mechanism = snapshot.mechanism
        remaining_s = snapshot.jobs.remaining_s[rows]
        guest = np.array([bool(guest_rules.guest_on(row)) for row in rows.tolist()], dtype=np.bool_) & runs[rows]
        long_s = np.where(np.isnan(remaining_s), np.inf, remaining_s)
        order = np.lexsort((-np.arange(len(rows)), long_s, fixed[rows]))
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows))
        self._nobody = len(rows)
        self.host_rank: IntColumn = np.append(rank, -1)
        self.guest: BoolColumn = np.append(guest, False)
        self._runs = np.append(runs[rows], False)
        self._mate = np.append(co_runner, -1)
        self._remaining_s: FloatColumn = np.append(remaining_s, 0.0)
        self._user = np.append(snapshot.jobs.user[rows], -1)
        self._meets_others = np.append(snapshot.sharing.meets_others[rows], False)
        able = np.array([not find_guest_obstacle(snapshot, row) for row in rows.tolist()], dtype=np.bool_)
        if snapshot.mechanism.guests_need_requeue:
            able &= snapshot.sharing.requeueable[rows]
        self._may_be_guest = np.append(able, True)
        self._saves_every_s = np.append(snapshot.sharing.saves_every_s[rows], np.inf)

    def put_host_first(self, one: int, other: int) -> tuple[int, int]:
        """Of two numbers, or one and -1 for nobody."""
        if other >= 0 and bool(self._hosts(np.array(other), np.array(one))):
            return other, one
        return one, other

    def moves(self, job: IntColumn, beside: IntColumn) -> BoolColumn:
        """Whether a running job must leave its GPUs to share with the second one; they broadcast."""
        mates = self._mate[job] == beside
        alone = beside == self._nobody
        leaves: BoolColumn = self._runs[job] & ~mates & (self.guest[job] | (~alone & ~self._hosts(job, beside)))
        return leaves

    def forbid(self, one: IntColumn, other: IntColumn) -> BoolColumn:
        """Which of these pairs the mechanism does not allow; they broadcast."""
        both: BoolColumn = (one != self._nobody) & (other != self._nobody)
        if self._mechanism.jobs_per_gpu < 2:
            return both
        bad = ~self.users_may_meet(one, other)
        bad |= ~np.where(self._hosts(one, other), self._may_be_guest[other], self._may_be_guest[one])
        forbidden: BoolColumn = both & bad
        return forbidden

    def users_may_meet(self, one: IntColumn, other: IntColumn) -> BoolColumn:
        """As far as it is about their users; they broadcast."""
        if self._mechanism.different_users:
            return np.ones(np.broadcast_shapes(one.shape, other.shape), dtype=np.bool_)
        meet: BoolColumn = self._user[one] == self._user[other]
        meet |= self._meets_others[one] & self._meets_others[other]
        return meet

    def keep(
        self, fast: FloatColumn, slow: FloatColumn, one: IntColumn, other: IntColumn
    ) -> tuple[FloatColumn, FloatColumn]:
        """Speeds beside each other with the guest's times its kept ratio, where seats are revoked."""
        if not self._mechanism.revokes:
            return fast, slow
        hosts = self._hosts(one, other)
        both = (one != self._nobody) & (other != self._nobody) & (fast > 0) & (slow > 0)
        with np.errstate(divide="ignore"):
            xi, its = 1.0 / np.where(both, fast, 1.0), 1.0 / np.where(both, slow, 1.0)
        mine_s, its_s = self._remaining_s[one], self._remaining_s[other]
        ratios = kept_ratios(
            np.where(hosts, its_s, mine_s),
            np.where(hosts, mine_s, its_s),
            np.where(hosts, its, xi),
            np.where(hosts, xi, its),
            start_s=self._mechanism.start_s,
            saves_every_s=np.where(hosts, self._saves_every_s[other], self._saves_every_s[one]),
        )
        return np.where(both & ~hosts, fast * ratios, fast), np.where(both & hosts, slow * ratios, slow)

    def _hosts(self, one: IntColumn, other: IntColumn) -> BoolColumn:
        mates = (self._mate[one] == other) & (self.guest[one] != self.guest[other])
        hosts: BoolColumn = np.where(mates, self.guest[other], self.host_rank[one] > self.host_rank[other])
        return hosts


def fix_hosts(guest_rules: GuestRules, fixed: BoolColumn, jobs_on: Sequence[list[int]]) -> BoolColumn:
    """Who may not be stopped, with the hosts whose guests may not be, and those that the mechanism cannot preempt."""
    mechanism = guest_rules.mechanism
    if not mechanism.revokes and mechanism.preempts_hosts:
        return fixed
    found = fixed.copy()
    running = sorted({row for there in jobs_on for row in there})
    guests = {row: guest_rules.guests(row, jobs_on.__getitem__) for row in running}
    if not mechanism.preempts_hosts:
        found[[row for row, mine in guests.items() if mine]] = True
    if mechanism.revokes:
        open_rows = set(running)
        while True:
            more = [row for row in open_rows if not found[row] and found[guests[row]].any()]
            if not more:
                break
            found[more] = True
            open_rows -= set(more)
    return found
