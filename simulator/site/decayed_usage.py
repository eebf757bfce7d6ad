"""What each user has used, the past counting less: as Slurm's priority/multifactor accounts for it."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn

_LN_2 = 0.693
"""As priority/multifactor has it."""


class DecayedUsage:
    """Raw usage of users, in billing x seconds.

    Once a period, at its end, what was used decays by ``(1 - 0.693 / half life)`` to the power of the seconds, and each job
    adds the seconds that it ran in the period, decayed by that power themselves. So a job that ended counts on. O(users)
    for each start and end, whatever time has passed: periods without either are a geometric series.
    """

    def __init__(self, users: int, *, period_s: float, half_life_s: float) -> None:
        """Nobody has used anything; a half life of 0 means that usage never decays."""
        self._period_s = period_s
        self._decay = 1.0 - _LN_2 / max(half_life_s, 1.0) if half_life_s else 1.0
        self._periods = 0
        """Whole periods so far."""
        self._used = np.zeros(users)
        """As of the end of the last one."""
        self._rate = np.zeros(users)
        """What jobs are billed that run on at the end of the present period."""
        self._part = np.zeros(users)
        """What the present period adds besides a whole one at that rate."""

    def start(self, user: int, billing: float, now_s: float) -> None:
        """A job of a user starts."""
        self._advance(now_s)
        self._rate[user] += billing
        self._part[user] += billing * (self._decayed(self._period_end_s - now_s) - self._decayed(self._period_s))

    def stop(self, user: int, billing: float, start_s: float, now_s: float) -> None:
        """A job stops that started then; its billing is what it was at its start."""
        self._advance(now_s)
        begin_s = self._period_end_s - self._period_s
        self._rate[user] -= billing
        if start_s > begin_s:  # it never ran on at the end of a period
            self._part[user] -= billing * (self._decayed(self._period_end_s - start_s) - self._decayed(self._period_s))
        self._part[user] += billing * self._decayed(now_s - max(start_s, begin_s))

    def at(self, now_s: float) -> FloatColumn:
        """Usage of each user at the end of the last whole period."""
        self._advance(now_s)
        return np.maximum(self._used, 0.0)

    @property
    def _period_end_s(self) -> float:
        return (self._periods + 1) * self._period_s

    def _decayed(self, seconds: float) -> float:
        return seconds * float(self._decay**seconds)

    def _advance(self, now_s: float) -> None:
        passed = int(now_s // self._period_s) - self._periods
        if passed <= 0:
            return
        kept, whole = self._decay**self._period_s, self._decayed(self._period_s)
        self._used = self._used * kept + self._rate * whole + self._part
        self._part[:] = 0.0
        if more := passed - 1:
            series = (1.0 - kept**more) / (1.0 - kept) if kept < 1.0 else float(more)
            self._used = self._used * kept**more + self._rate * whole * series
        self._periods += passed


def fair_tree_factors(usage: FloatColumn, shares: FloatColumn) -> FloatColumn:
    """Slurm's Fair Tree among users of one account: users by the ratio of their share to their usage, the largest first; the
    factor is the rank over their number, the same for equal ratios.

    O(n log n) in users.
    """
    count = len(usage)
    with np.errstate(divide="ignore"):
        level = shares / usage
    ahead = count - np.searchsorted(np.sort(level), level, side="right")
    return (count - ahead) / count


def classic_factors(usage: FloatColumn, shares: FloatColumn) -> FloatColumn:
    """2^(-usage / share), both as parts of all users' (PriorityFlags=NO_FAIR_TREE); 1 for all where nobody used anything."""
    total = float(usage.sum())
    if total <= 0.0:
        return np.ones(len(usage))
    factors: FloatColumn = np.exp2(-(usage / total) / (shares / shares.sum()))
    return factors
