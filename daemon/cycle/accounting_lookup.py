"""Completes ended jobs from Slurm's accounting, and asks why runs ended, beside the cycle: slurmdbd may be slow or down."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.jobs.cached_job import CachedJob, CachedRun
from slurm_soda.daemon.store.jobs.job_cache import JobCache, mark_end_unknown
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.sacct import JobAccounting

AccountingQuery = Callable[[Sequence[int]], Iterable[JobAccounting]]
"""Asks accounting about jobs by id; bounded in time.

Raises:
    SodaError: it did not answer.
"""

ExplainRuns = Callable[[Sequence[JobAccounting]], Sequence[int]]
"""Takes in answers about runs that ended, and says about which other jobs to ask now, most urgent first."""

ACCOUNTING_DELAY_S = 2.0
"""slurmctld tells slurmdbd of an end within about this time."""

ACCOUNTING_TIMEOUT_S = 3600.0
"""A job that accounting, when it answers, does not know this long after its end stays without its figures."""

MAX_JOBS_WITHOUT_ANSWER = 20_000
"""While accounting does not answer, so many ended jobs wait for it, about 6 KiB each; older ones stay without figures."""

MAX_JOBS_PER_QUERY = 200
"""Jobs per question."""


@dataclass(slots=True)
class AccountingLookup:
    """Asks in one thread, at most one question at a time; answers are taken in by the cycle's thread."""

    ask: AccountingQuery | None
    """``None``: the site has no accounting."""
    interval_s: float
    executor: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "accounting"))
    _asked: Future[list[JobAccounting]] | None = None
    _asked_ids: Sequence[int] = ()
    _next_s: float = float("-inf")
    _failing: bool = False

    def step(
        self, job_cache: JobCache, listed: set[int], at: Instant, explain: ExplainRuns = lambda _answers: ()
    ) -> None:
        """Take in an answer that has come, and ask the next question.

        Args:
            job_cache: ended jobs in it are completed.
            listed: all jobs that Slurm lists.
            at: now.
            explain: told of the answer, too.
        """
        now_s, answers = at.now_s, list[JobAccounting]()
        if self.ask is None:
            return
        if self._asked is not None:
            if not self._asked.done():
                return
            answers = self._take_in(job_cache, self._asked, at)
            self._asked = None
        unexplained = explain(answers)
        # An end in the future: the clock was set back since.
        due = [
            job
            for job in job_cache.unaccounted(listed)
            if job.end_s is None or not 0 <= now_s - job.end_s < ACCOUNTING_DELAY_S
        ]
        if not (due or unexplained) or at.steady_s < self._next_s:
            return
        self._next_s = at.steady_s + self.interval_s
        due.sort(key=lambda job: job.end_s or now_s)
        for job in due[:-MAX_JOBS_WITHOUT_ANSWER]:
            mark_end_unknown(job, now_s)
        asked = dict.fromkeys(unexplained[: MAX_JOBS_PER_QUERY // 2])
        asked |= dict.fromkeys(job.job_id for job in due[-MAX_JOBS_WITHOUT_ANSWER:])
        self._asked_ids = list(asked)[:MAX_JOBS_PER_QUERY]
        self._asked = self.executor.submit(_list, self.ask, self._asked_ids)

    def close(self) -> None:
        """Stop; a question under way is left to its time-out."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def _take_in(self, job_cache: JobCache, asked: Future[list[JobAccounting]], at: Instant) -> list[JobAccounting]:
        try:
            answers = asked.result()
        except SodaError as error:
            if not self._failing:
                log(logging.WARNING, "accounting-unavailable", error=error)
            self._failing, self._next_s = True, at.steady_s + 6 * self.interval_s
            return []
        self._failing = False
        for answer in answers:
            job = job_cache.jobs.get(answer.job_id)
            if job is not None and not job.accounted and _is_final(answer, job):
                apply_accounting(job, answer)
        for job in filter(None, map(job_cache.jobs.get, self._asked_ids)):
            if not job.accounted and job.end_s is not None and at.now_s - job.end_s > ACCOUNTING_TIMEOUT_S:
                mark_end_unknown(job, at.now_s)
        return answers


def apply_accounting(job: CachedJob, answer: JobAccounting) -> None:
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
            shared = run.shared_gpus > 0
            job.add_run(CachedRun(restart, run.start_s, end_s, run.node_names, run.gpus, shared=shared))
        elif known is not None and known.end_s is None:
            known.end_s, known.dirty = max(known.start_s, run.end_s), True
    if job.end_s is None:
        job.state, job.exit_code = answer.state, answer.exit_code
        job.end_s = max((run.end_s for run in answer.runs if not math.isnan(run.end_s)), default=job.submit_s)
        job.waited_since_s = None


def _is_final(answer: JobAccounting, job: CachedJob) -> bool:
    """The answer is about this job, and about its end."""
    ends = [run.end_s for run in answer.runs if not math.isnan(run.end_s)]
    if answer.state not in ENDED_STATES or answer.submit_s > job.submit_s + 1.0:
        return False
    return job.end_s is None or not ends or abs(max(ends) - job.end_s) < 5.0


def _total(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else None


def _list(ask: AccountingQuery, job_ids: Sequence[int]) -> list[JobAccounting]:
    return list(ask(job_ids))
