"""Completes ended jobs from Slurm's accounting, beside the cycle: slurmdbd may be slow or down."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from slurm_soda.daemon.logline import log
from slurm_soda.daemon.store.book import JobBook, give_up
from slurm_soda.daemon.store.memory import RememberedJob, RememberedRun
from slurm_soda.slurm_ext.accounting import AccountedJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.states import ENDED

Ask = Callable[[Sequence[int]], Iterable[AccountedJob]]
"""Asks accounting about jobs by id; bounded in time.

Raises:
    SodaError: it did not answer.
"""

SETTLING_S = 2.0
"""slurmctld tells slurmdbd of an end within about this time."""

PATIENCE_S = 3600.0
"""A job that accounting does not know this long after its end stays without its figures."""

MOST_JOBS = 200
"""Jobs per question."""


@dataclass(slots=True)
class Completion:
    """Asks in one thread, at most one question at a time; answers are taken in by the cycle's thread."""

    ask: Ask | None
    """``None``: the site has no accounting."""
    interval_s: float
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "accounting"))
    _asked: Future[list[AccountedJob]] | None = None
    _next_s: float = float("-inf")
    _failing: bool = False

    def step(self, book: JobBook, listed: set[int], now_s: float) -> None:
        """Take in an answer that has come, and ask the next question."""
        if self.ask is None:
            return
        if self._asked is not None:
            if not self._asked.done():
                return
            self._take_in(book, self._asked, now_s)
            self._asked = None
        due = [job for job in book.unaccounted(listed) if job.end_s is None or now_s - job.end_s >= SETTLING_S]
        if not due or now_s < self._next_s:
            return
        self._next_s = now_s + self.interval_s
        due.sort(key=lambda job: job.end_s or now_s)
        self._asked = self._pool.submit(_list, self.ask, [job.job_id for job in due[:MOST_JOBS]])
        for job in due:
            if job.end_s is not None and now_s - job.end_s > PATIENCE_S and not self._failing:
                give_up(job, now_s)

    def close(self) -> None:
        """Stop; a question under way is left to its time-out."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take_in(self, book: JobBook, asked: Future[list[AccountedJob]], now_s: float) -> None:
        try:
            answers = asked.result()
        except SodaError as error:
            if not self._failing:
                log(logging.WARNING, "accounting-unavailable", error=error)
            self._failing, self._next_s = True, now_s + 6 * self.interval_s
            return
        self._failing = False
        for answer in answers:
            job = book.jobs.get(answer.job_id)
            if job is not None and not job.accounted and _is_final(answer, job):
                complete(job, answer)


def complete(job: RememberedJob, answer: AccountedJob) -> None:
    """Take in what accounting says of an ended job."""
    job.accounted, job.dirty = True, True
    job.cpu_s = _total(run.cpu_s for run in answer.runs)
    job.memory_peak_mib = max(
        (r.memory_peak_mib for r in answer.runs if not math.isnan(r.memory_peak_mib)), default=None
    )
    if answer.submit_s < job.submit_s - 1.0:
        job.moved_from_s, job.submit_s = job.submit_s, answer.submit_s
    started = [run for run in answer.runs if not math.isnan(run.start_s)]
    for restart, run in enumerate(started):
        known = job.runs.get(restart)
        if known is None and restart <= job.restart:
            end_s = run.start_s if math.isnan(run.end_s) else run.end_s
            job.add_run(RememberedRun(restart, run.start_s, end_s, run.node_names, run.gpus))
        elif known is not None and known.end_s is None:
            known.end_s, known.dirty = max(known.start_s, run.end_s), True
    if job.end_s is None:
        job.state, job.exit_code = answer.state, answer.exit_code
        job.end_s = max((run.end_s for run in answer.runs if not math.isnan(run.end_s)), default=job.submit_s)
        job.waited_since_s = None


def _is_final(answer: AccountedJob, job: RememberedJob) -> bool:
    """The answer is about this job, and about its end."""
    ends = [run.end_s for run in answer.runs if not math.isnan(run.end_s)]
    if answer.state not in ENDED or answer.submit_s > job.submit_s + 1.0:
        return False
    return job.end_s is None or not ends or abs(max(ends) - job.end_s) < 5.0


def _total(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else None


def _list(ask: Ask, job_ids: Sequence[int]) -> list[AccountedJob]:
    return list(ask(job_ids))
