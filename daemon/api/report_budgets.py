"""How much each user may have sodad read: reports of routers are anybody's, and reading one takes sodad's time.

What a user's reports cost shrinks steadily with time. Beyond a bound his next ones are refused unread; others are served.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

BYTES_PER_S = 256 * 1024
"""Of one user: 20 services of some dozens of instances, reported once a second, have a third of it."""
BURST_BYTES = 4 * 1024 * 1024
LEAST_BYTES = 8 * 1024
"""Any report counts as so long: its credential and that of its answer are processes of MUNGE's."""
REFUSED_BYTES = 1024 * 1024
"""So much more counts one that is refused: what is wrong may have taken long to find."""
MOST_USERS = 10_000


@dataclass(slots=True)
class ReportBudgets:
    """Bytes that count against each user."""

    _spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By user id: bytes, and when they were counted (seconds of a steady clock); who came last is the last."""

    def wait_s(self, uid: int, now_s: float) -> float:
        """Until a report of this user is read again; 0: now."""
        return max(self._left(uid, now_s) - BURST_BYTES, 0.0) / BYTES_PER_S

    def count(self, uid: int, length: int, now_s: float, *, refused: bool = False) -> None:
        """Count a report of so many bytes that was read, or that it was refused for what it says."""
        spent = REFUSED_BYTES if refused else max(length, LEAST_BYTES)
        left = self._left(uid, now_s)
        self._spent.pop(uid, None)
        self._spent[uid] = left + spent, now_s
        if len(self._spent) > MOST_USERS:
            del self._spent[next(iter(self._spent))]

    def _left(self, uid: int, now_s: float) -> float:
        spent, at_s = self._spent.get(uid, (0.0, -math.inf))
        return max(spent - (now_s - at_s) * BYTES_PER_S, 0.0)
