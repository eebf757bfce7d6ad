"""Pauses of records whose updates Slurm refuses, so that none is sent again in every cycle."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

RETRY_AFTER_S = 1.0
"""Pause after a refusal; doubles up to :data:`MAX_RETRY_S`."""
MAX_RETRY_S = 60.0


@dataclass(slots=True)
class Refusals:
    """Refusals in a row, by job."""

    _retry_s: dict[int, tuple[int, float]] = field(default_factory=dict)
    """How many, and when the next try may be, by the steady clock."""

    def note(self, job_id: int, steady_s: float, *, refused: bool) -> None:
        """Take in what became of an update."""
        if not refused:
            self._retry_s.pop(job_id, None)
            return
        count, retry_s = self._retry_s.get(job_id, (0, steady_s))
        if steady_s < retry_s:  # of the same cycle
            return
        self._retry_s[job_id] = count + 1, steady_s + min(RETRY_AFTER_S * 2.0 ** min(count, 30), MAX_RETRY_S)

    def may_try(self, job_id: int, steady_s: float) -> bool:
        """Whether an update of the job may be sent."""
        return steady_s >= self._retry_s.get(job_id, (0, steady_s))[1]

    def keep(self, job_ids: Container[int]) -> None:
        """Forget all others."""
        self._retry_s = {job_id: tries for job_id, tries in self._retry_s.items() if job_id in job_ids}
