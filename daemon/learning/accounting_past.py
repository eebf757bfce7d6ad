"""What Slurm's accounting knows of the time before sodad: a site that is new to it is not new to its users.

Asked once, beside the cycle, where the store has few ended jobs. Whatever goes wrong is logged, and jobs teach as they end.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from threading import Event

from slurm_soda.daemon.logs import log
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.past_jobs import PastJob

PastJobsQuery = Callable[[int, int], Sequence[PastJob]]
"""Asks accounting for the jobs from so many days ago to so many; bounded in time.

Raises:
    SodaError: it did not answer.
"""


class AccountingPast:
    """One for each run of the daemon."""

    def __init__(self, ask: PastJobsQuery | None = None, days: int = 0) -> None:
        """``ask``: ``None`` where the site has no accounting; ``days``: so far back at most, 0 for nothing at all."""
        self._ask, self._days = ask, days
        self._executor: ThreadPoolExecutor | None = None
        self._answer: Future[Sequence[PastJob]] | None = None
        self._closing = Event()

    def begin(self, before_s: float, most: int, most_per_owner: int) -> None:
        """Ask for the newest jobs that ended before then, so many of all owners and so many of each; once."""
        if self._ask is None or self._executor is not None or min(self._days, most) <= 0:
            return
        self._executor = ThreadPoolExecutor(1, "past")
        self._answer = self._executor.submit(self._collect, self._ask, before_s, most, most_per_owner)

    def take(self) -> Sequence[PastJob]:
        """The jobs, in the order in which they ended, once they are there; and nothing before and after that."""
        if self._answer is None or not self._answer.done():
            return ()
        answer, self._answer = self._answer, None
        return () if answer.cancelled() else answer.result()

    def close(self) -> None:
        """Stop; a question under way is left to its time-out."""
        self._closing.set()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _collect(self, ask: PastJobsQuery, before_s: float, most: int, most_per_owner: int) -> Sequence[PastJob]:
        found: dict[PastJob, None] = {}  # who ran across the bounds of two questions is in both answers
        kept: list[PastJob] = []
        for to_days, from_days in pairwise(_bounds(self._days)):
            if self._closing.is_set() or len(kept) >= most:
                break
            try:
                found |= dict.fromkeys(job for job in ask(from_days, to_days) if job.end_s < before_s)
            except (SodaError, OSError, ValueError) as error:
                log(logging.WARNING, "past-jobs-not-read", days=from_days, error=error)
                break
            kept = _newest(list(found), most, most_per_owner)
        log(logging.INFO, "past-jobs-read", jobs=len(kept))
        return kept


def _bounds(days: int) -> list[int]:
    """Days ago between which accounting is asked: as many again each time, until there are enough jobs."""
    found = [0, 1]
    while found[-1] < days:
        found.append(min(2 * found[-1], days))
    return found


def _newest(jobs: Sequence[PastJob], most: int, most_per_owner: int) -> list[PastJob]:
    """The newest so many of all owners, and so many of each, in the order in which they ended."""
    kept, of_owner = list[PastJob](), Counter[str]()
    for job in sorted(jobs, key=lambda job: -job.end_s):
        of_owner[job.owner] += 1
        if of_owner[job.owner] <= most_per_owner and math.isfinite(job.end_s):
            kept.append(job)
    return kept[:most][::-1]
