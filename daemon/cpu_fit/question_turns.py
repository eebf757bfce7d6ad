"""Whose waiting jobs Slurm is asked about first, and when one whose owner keeps changing it is asked about again.

A question costs Slurm and every cycle some 10 ms, more with a long script, and there is time for some in a cycle. So owners
take turns, and a job whose request was changed since the last question waits for the next one: not at first, then twice as
long after each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.client import SlurmJob

FIRST_PAUSE_S = 10.0
MAX_PAUSE_S = 3600.0

RequestOfOwner = tuple[object, ...]
"""What every reading shows of a request, as far as its owner may change it."""


@dataclass(frozen=True, slots=True)
class _Question:
    request: RequestOfOwner
    changes: int
    """Questions about this job to which a change of its request led."""
    again_s: float


@dataclass(slots=True)
class QuestionTurns:
    """Belongs to one thread."""

    _asked: dict[int, _Question] = field(default_factory=dict)
    _last_of: dict[str, int] = field(default_factory=dict)
    """Number of the last question of each owner."""
    _count: int = 0

    def order(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """Each owner's first job, the owner who was not asked for longest first, then each one's second, and so on.

        Held jobs come after all others.

        Args:
            jobs: most urgent first.
        """
        turn = Counter[tuple[bool, str]]()
        keys = {}
        for job in jobs:
            whose = (not job.priority, job.user)
            keys[job.job_id] = (whose[0], turn[whose], self._last_of.get(job.user, 0))
            turn[whose] += 1
        return sorted(jobs, key=lambda job: keys[job.job_id])

    def may_ask(self, job_id: int, request: RequestOfOwner, steady_s: float) -> bool:
        """Whether it is time for a question about this job; without a change of its request it always is."""
        last = self._asked.get(job_id)
        return last is None or last.request == request or steady_s >= last.again_s

    def note(self, job: SlurmJob, request: RequestOfOwner, steady_s: float) -> None:
        """A question was asked."""
        self._count += 1
        self._last_of[job.user] = self._count
        last = self._asked.get(job.job_id)
        if last is not None and last.request == request:
            return
        changes = 0 if last is None else last.changes + 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(changes - 1, 30), MAX_PAUSE_S) if changes else 0.0
        self._asked[job.job_id] = _Question(request, changes, steady_s + pause_s)

    def keep(self, job_ids: Collection[int], users: Collection[str]) -> None:
        """Forget about all other jobs and users; a job that is held or changed meanwhile is not forgotten."""
        self._asked = {job_id: asked for job_id, asked in self._asked.items() if job_id in job_ids}
        self._last_of = {user: number for user, number in self._last_of.items() if user in users}
