"""Learning run times from jobs that ended, one at a time: a decaying histogram for each group, the general ones behind
the special ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.run_times.job_groups import JobGroup, SubmissionTraits, list_groups
from slurm_soda.policies.run_times.remaining_time_curve import BINS, RemainingTimeCurve, find_bins
from slurm_soda.policies.snapshot import FloatColumn

PRIOR_JOBS = 5.0
"""Our choice: a group's own jobs count as much as all that is known more generally once there are so many of them."""
UNIFORM_PRIOR_JOBS = 1.0
"""The same for the distribution of nobody, behind that of everybody."""
MAX_GROUPS = 20_000
"""Groups that no job ended in for longest are forgotten; each takes about a KiB."""
_HALF_LIVES = {0: 5000.0, 1: 1000.0, 2: 100.0}
"""Jobs after which a job counts half, by how much of (owner, shape) a group fixes; people change what they do faster than a
site does."""
_CLOSEST_HALF_LIFE = 50.0
"""The same where name or model are fixed as well."""


@dataclass(slots=True)
class _Histogram:
    weights: FloatColumn = field(default_factory=lambda: np.zeros(BINS))
    total: float = 0.0
    jobs: int = 0

    def add(self, at: int, keep: float) -> None:
        self.weights *= keep
        self.weights[at] += 1.0
        self.total = self.total * keep + 1.0
        self.jobs += 1


@dataclass(frozen=True, slots=True)
class LearnedRunTime:
    """What is known of a kind of job.

    Attributes:
        curve: its run times.
        group: the closest group that has seen any job.
        jobs: how many that group has seen.
    """

    curve: RemainingTimeCurve
    group: JobGroup
    jobs: int


class RunTimeLearner:
    """Learns from each ended job in O(groups of a job x bins); the same jobs in the same order teach the same.

    A group's distribution is its own histogram, with that of the next more general group as :data:`PRIOR_JOBS` jobs
    beside it: a chain of Dirichlet priors. At its end stands a distribution without a typical time, even in the
    logarithm, so that no run time is ever impossible.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[JobGroup, _Histogram] = OrderedDict()
        self.learnt = 0
        """Jobs so far."""

    def learn(self, traits: SubmissionTraits, run_s: float) -> None:
        """Take in an ended job's whole run time, over all its runs, in seconds.

        Raises:
            PolicyError: it is negative or no finite number.
        """
        if not 0.0 <= run_s < float("inf"):
            raise PolicyError(f"a run time must be 0 s or more and finite, not {run_s!r}")
        at = int(find_bins(np.array([run_s]))[0])
        for group in list_groups(traits):
            histogram = self._groups.get(group)
            if histogram is None:
                histogram = self._groups[group] = _Histogram()
            else:
                self._groups.move_to_end(group)
            histogram.add(at, 0.5 ** (1.0 / _half_life(group)))
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)
        self.learnt += 1

    def known(self, traits: SubmissionTraits) -> LearnedRunTime:
        """What jobs of these traits may be expected to run for; also where nothing was learned yet."""
        probability = np.full(BINS, 1.0 / BINS)
        closest, jobs = JobGroup(), 0
        for group in list_groups(traits):
            histogram = self._groups.get(group)
            if histogram is not None:
                prior = PRIOR_JOBS if jobs else UNIFORM_PRIOR_JOBS
                probability = (histogram.weights + prior * probability) / (histogram.total + prior)
                closest, jobs = group, histogram.jobs
        return LearnedRunTime(RemainingTimeCurve.of(probability), closest, jobs)


def _half_life(group: JobGroup) -> float:
    if group.model is not None or group.family is not None:
        return _CLOSEST_HALF_LIFE
    return _HALF_LIVES[(group.owner is not None) + (group.gpus is not None)]
