"""For how long a job waited, by the reason that Slurm named: what a report says of waits that are over.

Slurm names one reason at a time and forgets it when the job starts. A reason counts from when it was first seen until
another one was; the first one from the submission, the last one until the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_REASONS = 12
"""Kept apart for one job; further ones count as :data:`OTHER`."""
OTHER = "other"
MAX_REASON_LENGTH = 64


@dataclass(slots=True)
class WaitTimes:
    """The waits of one job."""

    spent_s: dict[str, float] = field(default_factory=dict)
    """Seconds by reason, of those that no longer hold."""
    reason: str = ""
    """The present one; empty: it does not wait."""
    since_s: float = 0.0
    """From when the present one counts."""

    def wait(self, reason: str, began_s: float, now_s: float) -> None:
        """Slurm names a reason now. ``began_s`` is when the wait began, for the first reason of a wait."""
        named = _short(reason)
        if named == self.reason:
            return
        since_s = now_s if self.reason else min(began_s, now_s)
        self.end(now_s)
        self.reason, self.since_s = named, since_s

    def end(self, at_s: float) -> None:
        """It waits no more since then, or not for the same reason."""
        if self.reason:
            key = self.reason if self.reason in self.spent_s or len(self.spent_s) < MAX_REASONS else OTHER
            self.spent_s[key] = round(self.spent_s.get(key, 0.0) + max(at_s - self.since_s, 0.0), 1)
        self.reason = ""

    def until(self, now_s: float) -> dict[str, float]:
        """Seconds by reason, the present one included."""
        so_far = WaitTimes(dict(self.spent_s), self.reason, self.since_s)
        so_far.end(now_s)
        return so_far.spent_s

    def to_json(self) -> dict[str, Any]:
        """As the store has it."""
        return {"spent_s": dict(self.spent_s), "reason": self.reason, "since_s": self.since_s}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> WaitTimes:
        """The inverse; no waits where the store of an earlier version has none."""
        if not data:
            return cls()
        return cls(dict(data.get("spent_s", {})), data.get("reason", ""), data.get("since_s", 0.0))


def _short(reason: str) -> str:
    """The reason without the list of nodes that Slurm may add, as text that every database takes."""
    head = reason.partition(",")[0].strip()[:MAX_REASON_LENGTH]
    return head.encode("ascii", "backslashreplace").decode("ascii").replace("\0", "?") or "None"
