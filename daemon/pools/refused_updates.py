"""What Slurm refused of a job's return: not sent again before a pause that doubles."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

PARTITIONS_UNCHANGED = ""
"""Stands for an update that leaves the list of partitions as it is."""

FIRST_PAUSE_S = 60.0
MAX_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    times: int
    until_s: float


@dataclass(slots=True)
class RefusedPoolUpdates:
    """Of one daemon's life: its successor asks once more."""

    _by_job: dict[int, dict[str, _Refusal]] = field(default_factory=dict)

    def note(self, job_id: int, new: Mapping[str, str], now_s: float) -> None:
        """Slurm refused a change of a job; one of its place in the order alone is nothing to remember."""
        if "Partition" not in new and "StartTime" not in new:
            return
        names = new.get("Partition", PARTITIONS_UNCHANGED)
        known = self._by_job.setdefault(job_id, {})
        times = known[names].times + 1 if names in known else 1
        known[names] = _Refusal(times, now_s + min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 30), MAX_PAUSE_S))

    def stand(self, job_id: int, partitions: str, now_s: float) -> bool:
        """Whether an update to this list, or :data:`PARTITIONS_UNCHANGED`, was refused so lately that it is not sent."""
        refusal = self._by_job.get(job_id, {}).get(partitions)
        return refusal is not None and now_s < refusal.until_s

    def keep(self, job_ids: Collection[int]) -> None:
        """Forget about all other jobs."""
        self._by_job = {job_id: known for job_id, known in self._by_job.items() if job_id in job_ids}
