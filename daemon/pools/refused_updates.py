"""What Slurm refused of a job's return: not sent again before a pause that doubles."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slurm_soda.policies.pools.stages.in_force import SAME_LIST

FIRST_PAUSE_S = 60.0
MAX_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    times: int
    until_s: float


@dataclass(slots=True)
class RefusedPoolUpdates:
    """Of one daemon epoch: the next daemon asks once more. All instants are the steady clock's."""

    _by_job: dict[int, dict[str, _Refusal]] = field(default_factory=dict)

    def note(self, job_id: int, new: Mapping[str, str], steady_s: float) -> None:
        """Slurm refused a change of a job; one of its place in the order alone is nothing to remember."""
        if "Partition" not in new and "StartTime" not in new:
            return
        names = new.get("Partition", SAME_LIST)
        known = self._by_job.setdefault(job_id, {})
        times = known[names].times + 1 if names in known else 1
        known[names] = _Refusal(times, steady_s + min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 30), MAX_PAUSE_S))

    def standing(self, job_id: int, steady_s: float) -> tuple[str, ...]:
        """Lists, or :data:`.SAME_LIST`, to which an update was refused so lately that it is not sent."""
        known = self._by_job.get(job_id, {})
        return tuple(sorted(names for names, refusal in known.items() if steady_s < refusal.until_s))

    def keep(self, job_ids: Collection[int]) -> None:
        """Forget about all other jobs."""
        self._by_job = {job_id: known for job_id, known in self._by_job.items() if job_id in job_ids}
