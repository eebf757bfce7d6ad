"""Slurm's word on single waiting jobs: each costs two calls, for request and script (three on Slurm 26.05), so there are
a few a cycle, for half a second in all, and none of a job again too soon.

A Slurm that does not answer makes a call last as long as its time limit. So the first such call of a cycle is its last, and
after one that ran out of time there are none for a while. A job about which there is no answer is asked about again after a
pause that doubles, so that those behind it get their turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from slurm_soda.daemon.logs import log
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import JobRequest

PAUSE_AFTER_TIMEOUT_S = 60.0
"""Pause for all jobs after a call that ran out of time."""

MAX_PAUSE_S = 3600.0

MOST_S_PER_CYCLE = 0.5
"""No call is begun so long after :meth:`RequestDetailReader.begin`: the cycle of all waits for it."""


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    again_s: float
    unreadable: str
    """What cannot be read in the answer; empty: there was none."""


@dataclass(slots=True)
class RequestDetailReader:
    """Requests of waiting jobs as Slurm has them now. Call :meth:`begin` in every cycle, with the steady clock."""

    client: SlurmClient
    most: int
    """Calls in one cycle."""
    first_pause_s: float = 60.0
    most_s: float = MOST_S_PER_CYCLE
    elapsed_s: Callable[[], float] = time.monotonic
    """For :attr:`most_s`."""
    _until_s: float = 0.0
    _left: int = 0
    _steady_s: float = 0.0
    _quiet_until_s: float = float("-inf")
    _failures: dict[int, _Failure] = field(default_factory=dict)

    def begin(self, steady_s: float) -> None:
        """A new cycle."""
        self._steady_s, self._left = steady_s, 0 if self.quiet(steady_s) else self.most
        self._until_s = self.elapsed_s() + self.most_s

    def quiet(self, steady_s: float) -> bool:
        """Slurm let a call run out of time lately: it is better not asked at all."""
        return steady_s < self._quiet_until_s

    def ask(self, job_id: int) -> JobRequest | None:
        """One job's request; ``None``: not in this cycle.

        Raises:
            SlurmReplyError: Slurm's answer about this job cannot be read; until it is asked again, the same without asking.
        """
        known = self._failures.get(job_id)
        if known is not None and self._steady_s < known.again_s:
            if known.unreadable:
                raise SlurmReplyError(known.unreadable)
            return None
        if self._left <= 0 or self.elapsed_s() >= self._until_s:
            return None
        self._left -= 1
        try:
            request = self.client.request(job_id)
        except SlurmReplyError as error:
            self._note(job_id, known, str(error))
            log(logging.WARNING, "request-not-readable", job=job_id, error=error)
            raise
        except SlurmError as error:
            self._note(job_id, known, "")
            self.unanswered(error)
            log(logging.INFO, "request-not-read", job=job_id, error=error)
            return None
        self._failures.pop(job_id, None)
        return request

    def unanswered(self, error: SlurmError) -> None:
        """A call, of whatever kind, got no answer."""
        self._left = 0
        if isinstance(error, SlurmCommandError) and error.status is None:
            self._quiet_until_s = self._steady_s + PAUSE_AFTER_TIMEOUT_S

    def keep(self, job_ids: Collection[int]) -> None:
        """Forget about all other jobs."""
        self._failures = {job_id: failure for job_id, failure in self._failures.items() if job_id in job_ids}

    def _note(self, job_id: int, before: _Failure | None, unreadable: str) -> None:
        times = 1 if before is None else before.times + 1
        pause_s = min(self.first_pause_s * 2.0 ** min(times - 1, 30), MAX_PAUSE_S)
        self._failures[job_id] = _Failure(times, self._steady_s + pause_s, unreadable)
