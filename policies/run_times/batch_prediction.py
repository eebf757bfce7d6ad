"""Run times left of many jobs at once: one curve a kind of job, renewed as jobs end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import LearnedRunTime, RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import BINS, ROWS_AT_ONCE, find_medians_left_s
from slurm_soda.policies.run_times.running_jobs import RunningJobs
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.policies.snapshot_file.identifiers import JobIdColumn

RENEW_RATIO = 0.1
"""A kind's curve made from n jobs, of its owner or of everybody, is computed anew after this times n + 1 more; and"""
RENEW_JOBS = 10
"""after so many of its owner at the latest."""
MAX_RENEWED = 500
"""Curves renewed at one decision; the others wait for the next one."""
MAX_KINDS = 5000
"""Beyond so many kinds at once, jobs are predicted from those of their owner, shape and model, whatever their name and time
limit."""


@dataclass(frozen=True, slots=True)
class _Kind:
    traits: SubmissionTraits
    learnt: LearnedRunTime
    own: float
    everybody: float


@dataclass(slots=True)
class BatchRunTimePredictor:
    """What :class:`.RunTimeLearner` knows, kept ready for a whole table of jobs.

    A decision costs O(jobs), O(bins) for each of them that has run, and 0.2 ms for each kind whose curve is renewed.
    """

    learner: RunTimeLearner = field(default_factory=RunTimeLearner)
    _kinds: list[_Kind] = field(default_factory=list)
    _numbers: dict[SubmissionTraits, int] = field(default_factory=dict)
    _by_owner: dict[str, float] = field(default_factory=dict)
    """What was learned from each owner's jobs: how many ended, and how many of those that run should have."""
    _by_all: float = 0.0
    _median_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Of jobs that have not run, by kind."""
    _past: FloatColumn = field(default_factory=lambda: np.zeros((0, BINS + 1)))
    _probability: FloatColumn = field(default_factory=lambda: np.zeros((0, BINS)))
    _running: RunningJobs = field(init=False)

    def __post_init__(self) -> None:
        self._running = RunningJobs(self.learner)

    def __len__(self) -> int:
        return len(self._kinds)

    def number(self, traits: SubmissionTraits) -> int:
        """Number of a kind of job; the same for traits that differ in numbers of the name only, until :meth:`forget`."""
        traits = replace(traits, name=traits.family)
        number = self._numbers.get(traits)
        if number is None and len(self._kinds) >= MAX_KINDS and (traits.name or math.isfinite(traits.limit_s)):
            return self.number(replace(traits, name="", limit_s=math.inf))
        if number is None:
            number = self._numbers[traits] = len(self._kinds)
            self._kinds.append(self._look_up(traits))
            if number >= len(self._past):
                more = np.zeros((max(len(self._past), 64), BINS + 1))
                self._median_s = np.append(self._median_s, more[:, 0])
                self._past = np.vstack((self._past, more))
                self._probability = np.vstack((self._probability, more[:, :-1]))
            self._show(number)
        return number

    def forget(self) -> None:
        """Forget all kinds, not what was learned: numbers that were given are void."""
        self._kinds.clear()
        self._numbers.clear()

    def ended(self, traits: SubmissionTraits, run_s: float) -> None:
        """Learn from a job that ended.

        Raises:
            PolicyError: the run time is negative or not finite.
        """
        self.learner.learn(traits, run_s)
        self._note(traits.owner, 1.0)

    def observe(self, job_id: JobIdColumn, numbers: IntColumn, attained_s: FloatColumn) -> None:
        """Learn from what the listed jobs have run for so far, of which none has ended.

        Args:
            job_id: ascending; a job that is not listed any more has ended.
            numbers: of their kinds.
            attained_s: what each has run for; 0 of a job that tells nothing.
        """
        for row, before, now in self._running.observe(job_id, attained_s, lambda row: self._kinds[numbers[row]].traits):
            number = int(numbers[row])
            # By what is expected so many of such jobs should have ended: what this one tells, in jobs.
            expected = self._probability[number, before:]
            self._note(self._kinds[number].traits.owner, float(expected[: now - before].sum() / expected.sum()))

    def _note(self, owner: str, jobs: float) -> None:
        self._by_owner[owner] = self._by_owner.get(owner, 0.0) + jobs
        self._by_all += jobs

    def remaining(self, numbers: IntColumn, attained_s: FloatColumn) -> FloatColumn:
        """Median run time left of jobs, by the numbers of their kinds and what they have run for.

        Before the first job has ended they follow from a distribution without a typical time and from jobs that run.
        """
        stale = (number for number in np.unique(numbers).tolist() if self._is_stale(number))
        for number in list(islice(stale, MAX_RENEWED)):
            self._renew(number)
        left_s: FloatColumn = self._median_s[numbers]
        begun = np.flatnonzero(attained_s > 0)
        for first in range(0, len(begun), ROWS_AT_ONCE):
            rows = begun[first : first + ROWS_AT_ONCE]
            left_s[rows] = find_medians_left_s(self._past[numbers[rows]], attained_s[rows])
        return left_s

    def expected(self, numbers: IntColumn, worked_s: FloatColumn) -> ExpectedRunTimes:
        """The distributions behind :meth:`remaining`, of the same jobs."""
        kinds, kind = np.unique(numbers, return_inverse=True)
        return ExpectedRunTimes(self._probability[kinds], kind.astype(np.int64).ravel(), worked_s)

    def known(self, number: int) -> LearnedRunTime:
        """What is known of a kind."""
        if self._is_stale(number):
            self._renew(number)
        return self._kinds[number].learnt

    def _is_stale(self, number: int) -> bool:
        kind = self._kinds[number]
        more = self._by_owner.get(kind.traits.owner, 0.0) - kind.own
        if more >= min(RENEW_RATIO * (1 + kind.own), RENEW_JOBS):
            return True
        return self._by_all - kind.everybody >= RENEW_RATIO * (1 + kind.everybody)

    def _renew(self, number: int) -> None:
        self._kinds[number] = self._look_up(self._kinds[number].traits)
        self._show(number)

    def _look_up(self, traits: SubmissionTraits) -> _Kind:
        own = self._by_owner.get(traits.owner, 0.0)
        return _Kind(traits, self.learner.known(traits), own, self._by_all)

    def _show(self, number: int) -> None:
        learnt = self._kinds[number].learnt
        self._median_s[number], self._past[number] = learnt.curve.total_s[0], learnt.curve.past
        self._probability[number] = learnt.probability
