"""Victims that Slurm did not let go: not chosen again before a pause that doubles, so that others have their turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.client import SlurmJob

FIRST_PAUSE_S = 10.0
MAX_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    restart: int
    """Restart count of the run that was to be preempted."""
    times: int
    until_s: float


@dataclass(slots=True)
class RefusedVictims:
    """Kept in memory; a restarted daemon notes again what its predecessors recorded. All instants are the steady clock's."""

    _by_job: dict[int, _Refusal] = field(default_factory=dict)

    def note(self, job_id: int, restart: int, steady_s: float) -> None:
        """The preemption of a run failed, for whatever reason."""
        known = self._by_job.get(job_id)
        times = known.times + 1 if known is not None and known.restart == restart else 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 30), MAX_PAUSE_S)
        self._by_job[job_id] = _Refusal(restart, times, steady_s + pause_s)

    def standing(self, steady_s: float) -> Collection[int]:
        """Jobs that are not to be chosen now."""
        return [job_id for job_id, refusal in self._by_job.items() if steady_s < refusal.until_s]

    def keep(self, jobs: Mapping[int, SlurmJob]) -> None:
        """Forget all runs but the present ones of these jobs."""
        self._by_job = {
            job_id: known
            for job_id, known in self._by_job.items()
            if job_id in jobs and jobs[job_id].restarts == known.restart
        }
