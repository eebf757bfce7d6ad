"""Learning run times from jobs that ended, one at a time, and from those that run: a decaying histogram for each group, the
general ones behind the special ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.run_times.histograms import PRIOR_JOBS, UNIFORM_PRIOR_JOBS, Histogram, OwnersMean
from slurm_soda.policies.run_times.job_groups import JobGroup, SubmissionTraits, list_groups
from slurm_soda.policies.run_times.owners import MIN_OWNERS
from slurm_soda.policies.run_times.remaining_time_curve import BINS, RemainingTimeCurve, find_bins
from slurm_soda.policies.run_times.spreads import Spreads
from slurm_soda.policies.snapshot import FloatColumn

MAX_GROUPS = 20_000
"""Of more groups of one owner each, the owner who has the most loses the one in which no job of his ended for longest; so
many names of one owner's jobs make nobody else's past forgotten. Each takes 2 KiB."""
_STALE_ENTRIES = 1000
"""So many, beside as many as there are owners, are kept before they are cleared."""
SPREADS = Spreads()
_OWNER_HALF_LIFE = 1000.0
"""Jobs of an owner after which one counts half; people change what they do."""
_SHAPE_HALF_LIFE = 100.0
"""Jobs of an owner and one shape after which one counts half."""
_CLOSEST_HALF_LIFE = 50.0
"""Jobs of an owner, one shape and one name, model or time limit after which one counts half."""


@dataclass(frozen=True, slots=True)
class LearnedRunTime:
    """What is known of a kind of job.

    Attributes:
        curve: its run times.
        probability: of each bin of them.
        group: the closest group that has seen any job.
        jobs: how many that group has seen.
    """

    curve: RemainingTimeCurve
    probability: FloatColumn
    group: JobGroup
    jobs: int


class RunTimeLearner:
    """Learns from each ended job in O(groups of a job x bins); the same jobs in the same order teach the same.

    A group's distribution is its own histogram, with that of the next more general group as :data:`PRIOR_JOBS` jobs
    beside it: a chain of Dirichlet priors. At its end stands a distribution without a typical time, even in the
    logarithm, so that no run time is ever impossible. How far each job of a group spreads over bins is learned from how
    its own jobs were foreseen (:class:`.Spreads`); a new group begins with what its owner's more general one learned.

    A group of several owners is the mean of their own distributions, in which each counts as :data:`OWNER_JOBS` jobs,
    however many he ran; with fewer than :data:`.MIN_OWNERS` owners beside the one who is asked about, it is passed over.

    **What one owner can do to another.** Let every group that speaks have at least ``n`` owners, the liar among them. A
    group of ``k`` owners with ``c`` jobs each says ``W`` without him and ``W + c (L - W) / (c k + p)`` with him, where ``L``
    is what his jobs say and ``p`` the weight of the prior behind: a move of at most ``c / (c k + p)``, to which
    ``p / (c k + p)`` of the prior's own move is added. If that one is at most ``1 / n``, so is the sum, as ``n <= k``; the
    last prior does not move at all. So it holds for any number of groups of several owners behind each other. The groups of
    the other owner alone only shrink the move. That a job counts in several bins changes nothing: all that is asked of
    ``L`` and ``W`` is that they add up to 1, and that ``W`` is the same whatever the liar runs. So each owner's widths are
    learned from his own jobs alone, by what his own groups said of each with the distribution of nobody behind them.
    So **no range of run times becomes more or less likely by more than 1 / n**,
    and the median predicted from it stays between the quantiles ``1/2 - 1/n`` and ``1/2 + 1/n`` of what it was.

    Jobs that run do not change that. In a group of several owners ``L`` and ``W`` are what owners' own jobs say, ended or
    running, and owners count there once a job of theirs ended. In a group of one owner his running jobs move what is
    no longer possible to them to where his own jobs say, which is a Markov kernel (:func:`.outlive`): it shrinks each
    move of what is behind or leaves it as it is.

    He also chooses which models and time limits his jobs have, and so in which groups he is. One that speaks only because
    he is the last owner that was missing tells what the others in it ran: that may be far from what the group behind
    says, but his own part of it is again at most ``1 / k``.
    """

    def __init__(self, spreads: Spreads = SPREADS) -> None:
        """``spreads``: how a job that ended makes bins likely."""
        self._spreads = spreads
        self._groups: dict[str, OrderedDict[JobGroup, Histogram]] = {}
        """Of one owner each, by owner; the group in which no job of his ended for longest comes first."""
        self._count = 0
        """Groups of one owner each."""
        self._turns = 0
        self._last_turn: dict[str, int] = {}
        """Of each owner, counted: when his last job ended or began."""
        self._most: list[tuple[int, int, str]] = []
        """A heap of minus the number of an owner's groups, that turn, and his name; stale where these are others by now."""
        self._common: dict[JobGroup, OwnersMean] = {}
        """Of several owners, made of those."""
        self.learnt = 0
        """Jobs so far."""

    def learn(self, traits: SubmissionTraits, run_s: float) -> None:
        """Take in an ended job's whole run time, over all its runs, in seconds.

        Raises:
            PolicyError: it is negative or no finite number.
        """
        if not 0.0 <= run_s < float("inf"):
            raise PolicyError(f"a run time must be 0 s or more and finite, not {run_s!r}")
        owner, at = traits.owner, int(find_bins(np.array([run_s]))[0])
        groups = list_groups(traits)
        prior, foreseen = UNIFORM_PRIOR_JOBS, np.full(len(self._spreads.prior), 1.0 / BINS)
        for group, histogram in self._of_owner(owner, groups):
            foreseen = histogram.foresee(at, foreseen, prior, self._spreads)
            prior = PRIOR_JOBS if histogram.jobs else prior
            histogram.add(at, foreseen, self._spreads)
            if (common := group._replace(owner=None)) in groups:
                histogram.heard_by = self._common.setdefault(common, OwnersMean())
                histogram.heard_by.update(owner, histogram)
        self._bound_groups()
        self.learnt += 1

    def begin(self, traits: SubmissionTraits) -> list[tuple[Histogram, int]]:
        """Where a job that begins to run will count, and how many jobs have ended there: for :meth:`move`."""
        found = self._of_owner(traits.owner, list_groups(traits))
        self._bound_groups()
        return [(histogram, histogram.jobs) for _, histogram in found]

    def move(self, owner: str, counts: Iterable[tuple[Histogram, int]], before: int, now: int) -> None:
        """A job of this owner that had reached one bin has reached another, and has not ended; 0 for none."""
        for histogram, since in counts:
            histogram.move(before, now, since)
            if histogram.heard_by is not None:
                histogram.heard_by.note_change(owner)

    def _of_owner(self, owner: str, groups: Sequence[JobGroup]) -> list[tuple[JobGroup, Histogram]]:
        """The groups of one owner, the last ones to be forgotten from now on."""
        own = self._groups.setdefault(owner, OrderedDict())
        self._count -= len(own)
        widths = self._spreads.prior
        for group in groups:
            if group.owner is not None:
                histogram = own.setdefault(group, Histogram(0.5 ** (1.0 / _half_life(group)), widths))
                own.move_to_end(group)
                widths = histogram.widths
        self._count += len(own)
        self._turns += 1
        self._last_turn[owner] = self._turns
        self._rank(owner)
        return [(group, own[group]) for group in groups if group.owner is not None]

    def known(self, traits: SubmissionTraits) -> LearnedRunTime:
        """What jobs of these traits may be expected to run for; also where nothing was learned yet."""
        probability, closest, jobs = self.distribution(traits)
        return LearnedRunTime(RemainingTimeCurve.of(probability), probability, closest, jobs)

    def distribution(self, traits: SubmissionTraits) -> tuple[FloatColumn, JobGroup, int]:
        """Probability of each bin of run times, the closest group that has seen any job, and how many it has seen."""
        probability = np.full(BINS, 1.0 / BINS)
        closest, jobs, prior = JobGroup(), 0, UNIFORM_PRIOR_JOBS
        own: Mapping[JobGroup, Histogram] = self._groups.get(traits.owner, {})
        for group in list_groups(traits):
            said = own.get(group) if group.owner is not None else self._others(group, traits.owner)
            if said is None:
                continue
            probability = said.with_prior(prior, probability, self._spreads)
            ended = said.jobs
            if ended:
                closest, jobs = group, ended
            if ended or (isinstance(said, Histogram) and said.running):
                prior = PRIOR_JOBS
        return probability, closest, jobs

    def _others(self, group: JobGroup, owner: str) -> OwnersMean | None:
        """A group of several owners, where enough of them are not this one."""
        common = self._common.get(group)
        return None if common is None or len(common.owners) - (owner in common.owners) < MIN_OWNERS else common

    def _rank(self, owner: str) -> None:
        heappush(self._most, (-len(self._groups[owner]), self._last_turn[owner], owner))
        if len(self._most) > 2 * len(self._groups) + _STALE_ENTRIES:
            self._most = [(-len(own), self._last_turn[each], each) for each, own in self._groups.items()]
            heapify(self._most)

    def _owner_of_most(self) -> str:
        """Who has the most groups; of several the one whose last job ended longest ago."""
        while True:
            groups, turn, owner = heappop(self._most)
            if self._last_turn.get(owner) == turn and len(self._groups[owner]) == -groups:
                return owner

    def _bound_groups(self) -> None:
        while self._count > MAX_GROUPS:
            owner = self._owner_of_most()
            group, histogram = self._groups[owner].popitem(last=False)
            self._count -= 1
            if self._groups[owner]:
                self._rank(owner)
            else:
                del self._groups[owner], self._last_turn[owner]
            if histogram.heard_by is not None:
                histogram.heard_by.remove(owner)
                if not histogram.heard_by.owners:
                    del self._common[group._replace(owner=None)]
                histogram.heard_by = None


def _half_life(group: JobGroup) -> float:
    if group.model is not None or group.family is not None or group.limit_s is not None:
        return _CLOSEST_HALF_LIFE
    return _OWNER_HALF_LIFE if group.gpus is None else _SHAPE_HALF_LIFE
