"""What Slurm's accounting knows of the time before sodad: a site that is new to it is not new to its users.

Asked once, beside the cycle, where the store has few ended jobs. Whatever goes wrong is logged, and jobs teach as they end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread

from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.section import DAY_S
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.past_jobs import PastJob, PastRun, join_past_runs

PastRunsQuery = Callable[[int, int], Sequence[PastRun]]
"""Asks accounting for the runs from so many days ago to so many; bounded in time.

Raises:
    SodaError: it did not answer.
"""
PAUSES_S = (60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
"""After the first question was not answered it is asked again so much later: slurmdbd may start after sodad."""
MOST_RUNS = 200_000
"""Once so many were read, nothing older is asked for: of a few owners with many jobs only some are wanted."""


class AccountingPast:
    """One for each run of the daemon."""

    def __init__(self, ask: PastRunsQuery | None = None, days: int = 0, pauses_s: Sequence[float] = PAUSES_S) -> None:
        """``ask``: ``None`` where the site has no accounting; ``days``: so far back at most, 0 for nothing at all;
        ``pauses_s``: before the first question is asked again.
        """
        self._ask, self._days, self._pauses_s = ask, days, pauses_s
        self._begun = False
        self._answer: list[PastJob] = []
        self._answered, self._closing = Event(), Event()

    def begin(self, now_s: float, before_s: float, most: int, most_per_owner: int) -> None:
        """Ask for the newest jobs that ended before ``before_s``: so many in all, and of each owner; once."""
        if self._ask is None or self._begun or min(self._days, most) <= 0:
            return
        self._begun = True
        age_days = int(max(now_s - before_s, 0.0) / DAY_S)
        # Nobody waits for it at the end of the process: what it does then is lost, as at any other end.
        asked = (self._ask, age_days, before_s, most, most_per_owner)
        Thread(target=self._collect, args=asked, name="past", daemon=True).start()

    def take(self) -> Sequence[PastJob]:
        """The jobs, in the order in which they ended, once they are there; and nothing before and after that."""
        if not self._answered.is_set():
            return ()
        found, self._answer = self._answer, []
        return found

    def wait(self, timeout_s: float) -> bool:
        """Whether the answer is there, within this time."""
        return self._answered.wait(timeout_s)

    def close(self) -> None:
        """Ask nothing any more; a question under way is left to its time-out."""
        self._closing.set()

    def _collect(self, ask: PastRunsQuery, age_days: int, before_s: float, most: int, most_per_owner: int) -> None:
        runs: dict[tuple[int, float], PastRun] = {}  # who ran across the bounds of two questions is in both answers
        jobs: list[PastJob] = []
        pauses_s = self._pauses_s
        try:
            for to_days, from_days in _spans(age_days, self._days):
                if self._closing.is_set() or len(jobs) >= most or len(runs) >= MOST_RUNS:
                    break
                answer = self._ask_again(ask, from_days, to_days, pauses_s)
                pauses_s = ()  # who has answered once is there: it is the question that is too long
                runs |= {(run.job_id, run.start_s): run for run in answer}
                ended = [job for job in join_past_runs(runs.values()) if job.end_s < before_s]
                jobs = _newest(ended, most, most_per_owner)
        except Exception as error:  # noqa: BLE001 - whatever it is, what came before it is known
            why = str(error) if isinstance(error, SodaError) else f"{type(error).__name__}: {error}"
            log(logging.WARNING, "past-jobs-not-read", error=why)
        log(logging.INFO, "past-jobs-read", jobs=len(jobs))
        self._answer = jobs
        self._answered.set()

    def _ask_again(
        self, ask: PastRunsQuery, from_days: int, to_days: int, pauses_s: Sequence[float]
    ) -> Sequence[PastRun]:
        """The answer to a question that is asked once more after each of these pauses."""
        for pause_s in pauses_s:
            try:
                return ask(from_days, to_days)
            except SodaError as error:
                log(logging.WARNING, "past-jobs-not-read", error=error, again_in_s=pause_s)
            if self._closing.wait(pause_s):
                return []
        return ask(from_days, to_days)


def _spans(first_day: int, days: int) -> Iterator[tuple[int, int]]:
    """Days ago between which accounting is asked: as many again each time."""
    length = 1
    while first_day < days:
        yield first_day, min(first_day + length, days)
        first_day, length = first_day + length, 2 * length


def _newest(jobs: Sequence[PastJob], most: int, most_per_owner: int) -> list[PastJob]:
    """The newest so many of each owner, and of all so many as one owner after the other has; in the order in which they
    ended.
    """
    of_owner, ranked = Counter[str](), list[tuple[int, PastJob]]()
    for job in reversed(jobs):
        of_owner[job.owner] += 1
        if of_owner[job.owner] <= most_per_owner:
            ranked.append((of_owner[job.owner], job))
    ranked.sort(key=lambda one: one[0])
    return sorted((job for _, job in ranked[:most]), key=lambda job: job.end_s)
