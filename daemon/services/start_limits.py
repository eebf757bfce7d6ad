"""How many tasks of each array can start: what keeps the others is not places, but a limit of their owner or of his account.

Slurm tells a limit only of tasks that are up against it. Once sodad knows it, the tasks beyond wait with a lease, and Slurm
says of them that they wait for their time. So a limit is remembered, and tried again after a while; the one that the owner
set by himself (``--array=0-7%4``) is asked for instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_states import is_kept_back

ARRAY_LIMIT = "JobArrayTaskLimit"
"""Slurm's reason of tasks that are up against the limit of their array."""
SEEN_FOR_S = 30.0
"""A task that may start, and of which Slurm says for so long that it lacks something else than places, cannot start. Before,
the reason may be older than what it tells of: Slurm looks at a waiting job again within half a minute or so."""
HOLDS_S = 600.0
"""A limit is taken to be as it was seen for so long; then its tasks are let start again, to see."""
ASK_EVERY_S = 15.0
"""Slurm is asked so often whether owners changed the throttles of their arrays."""


class _Limit(NamedTuple):
    most: int
    """Tasks that run at a time."""
    seen_s: float
    by_owner: bool
    """It is the array's own throttle."""


@dataclass(slots=True)
class StartLimits:
    """Limits by array; of a job without one by its own id."""

    _known: dict[int, _Limit] = field(default_factory=dict)
    _kept_since_s: dict[int, float] = field(default_factory=dict)
    """Since when records that may start lack something else than places, by job id."""
    _asked_s: float = float("-inf")

    def observe(self, waiting: Iterable[tuple[SlurmJob, bool]], running: Mapping[int, int], now_s: float) -> None:
        """Take in a reading of Slurm: waiting records of a service, whether each may start, and tasks that run by array."""
        for job, may_start in waiting:
            array = array_of(job)
            if not 0.0 <= now_s - self._seen_s(array) < HOLDS_S:
                self._known.pop(array, None)
            if job.reason == ARRAY_LIMIT:
                known = self._known.get(array)
                # Slurm's reason may be older than the end of a task that ran; this limit is 1 at least.
                if known is None or not known.by_owner or running.get(array, 0) >= known.most:
                    self._known[array] = _Limit(max(running.get(array, 0), 1), now_s, True)
            elif self._is_kept(job, now_s, may_start=may_start):
                self._known[array] = _Limit(running.get(array, 0), now_s, False)

    def admitted(self, arrays: Iterable[int], running: Mapping[int, int]) -> dict[int, int]:
        """How many more tasks can start, for those of the arrays of which a limit is known."""
        return {one: max(self._known[one].most - running.get(one, 0), 0) for one in arrays if one in self._known}

    def forget_others(self, arrays: Iterable[int], job_ids: Iterable[int]) -> None:
        """Forget arrays and waiting records that Slurm does not show any more."""
        arrays, job_ids = set(arrays), set(job_ids)
        self._known = {array: limit for array, limit in self._known.items() if array in arrays}
        self._kept_since_s = {job: since_s for job, since_s in self._kept_since_s.items() if job in job_ids}

    def to_ask(self, steady_s: float) -> list[int]:
        """Arrays whose owners' throttles Slurm is to be asked for now; from then on it counts as asked."""
        asked = sorted(array for array, limit in self._known.items() if limit.by_owner)
        if not asked or steady_s < self._asked_s + ASK_EVERY_S:
            return []
        self._asked_s = steady_s
        return asked

    def take(self, throttles: Mapping[int, int | SlurmReplyError], now_s: float) -> None:
        """Take in Slurm's answer. Of what it does not tell holds what was seen."""
        for array, most in throttles.items():
            if isinstance(most, SlurmReplyError):
                continue
            if most:
                self._known[array] = _Limit(most, now_s, True)
            else:
                self._known.pop(array, None)

    def _seen_s(self, array: int) -> float:
        known = self._known.get(array)
        return float("-inf") if known is None else known.seen_s

    def _is_kept(self, job: SlurmJob, now_s: float, *, may_start: bool) -> bool:
        if not may_start or not is_kept_back(job.state, job.reason):
            self._kept_since_s.pop(job.job_id, None)
            return False
        since_s = min(self._kept_since_s.setdefault(job.job_id, now_s), now_s)  # somebody may have set the clock back
        self._kept_since_s[job.job_id] = since_s
        return now_s - since_s >= SEEN_FOR_S


def array_of(job: SlurmJob) -> int:
    """The array that a job is a task of; its own id, if of none."""
    return job.array_job_id or job.job_id
