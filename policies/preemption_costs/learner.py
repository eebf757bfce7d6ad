"""Learns from preemptions what it costs to preempt a job now.

**The cost.** To preempt a job now costs, on each of its GPUs, the time without progress around it (its state is saved, it is
loaded again), and the work that it does again. What it does again depends on the job: one that saves its state when it is
asked to loses nothing; one that only saves now and then loses what it did since. So of an owner's jobs of a kind three
numbers are kept: o, the time without progress; q, the part of the preemptions after which work was done again; L, how much
that was. A job that saves its state every c, and is stopped at any time, has last saved it c / 2 ago in the mean, so c is
2 L. With u since the job last saved its state:

    cost(u) = o + q min(u, 2 L).

Where nobody knows when it last did, u is L, or the time since its start if that is less: nobody loses more in a run.

**From whom.** A kind is a model; jobs that name none are of a kind by their name without its numbers, for their owner alone.
o and L are medians of the newest preemptions. What others' jobs of the kind show is the median over owners
(:mod:`slurm_soda.policies.run_times.owners`), of three others at least. With the policy's own number p, n preemptions of the
owner's jobs, m of others' (of each owner :data:`PRIOR_PREEMPTIONS` at most), and K = :data:`PRIOR_PREEMPTIONS`:

    price = (n own + K (m others + K p) / (m + K)) / (n + K), at most max(p, B).

**The bound.** Whoever wants never to be preempted might tell progress that makes his preemptions seem dear: begin to tell
late, or tell more iterations than he did. B is what preempting the jobs of a quarter of the other owners, two at least,
costs at the most, cost(2 L): with this kind if three others have shown that, else with any kind, and 0 if there are no
three. So what an owner's jobs show lowers his price freely, and raises it above the policy's number only as far as it does
for others. Who does not save his state at all, and says that he can be preempted, pays for what is beyond that himself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.preemption_costs.learned_costs import LearnedCosts
from slurm_soda.policies.preemption_costs.observed_preemption import MOST_S, PreemptionCost
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.owners import MIN_OWNERS, median_over_owners
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.policies.tiresias.model_skews import normalise_model_name

NEWEST = 64
"""Preemptions of an owner's jobs of a kind that count: as many as jobs of a kind profile."""
PRIOR_PREEMPTIONS = 5
"""K: what is more general counts as so many preemptions, as with run times."""
MAX_GROUPS = 20_000
"""Owners' kinds at most; then the one that was heard of longest ago is forgotten."""
DEAR_PART, DEAR_OWNERS = 0.25, 2
"""The part of the other owners, and the number of them, whose jobs must be as dear as somebody else's count at the most."""


class OwnersKind(NamedTuple):
    """Jobs of one owner that are alike."""

    owner: str
    model: str = ""
    family: str = ""
    """The name without its numbers, of jobs that name no model."""


class CostSummary(NamedTuple):
    """What some preemptions show."""

    preemptions: int
    overhead_s: float
    """o."""
    lost_ratio: float
    """q."""
    lost_s: float
    """L."""

    @property
    def most_s(self) -> float:
        """The most that a preemption costs: the job was about to save its state."""
        return self.overhead_s + 2.0 * self.lost_ratio * self.lost_s


NOTHING = CostSummary(0, 0.0, 0.0, 0.0)


class KnownCosts(NamedTuple):
    """What is known of an owner's kind."""

    own: CostSummary
    others: CostSummary
    """Medians over other owners; of no preemption where they are too few."""
    most_s: float
    """B."""

    @property
    def may_lose(self) -> bool:
        """Whether such a job may lose work, so that it matters when it last saved its state."""
        return self.own.lost_ratio > 0 or self.others.lost_ratio > 0


def summarise(seen: Collection[PreemptionCost]) -> CostSummary:
    """What these preemptions show."""
    if not seen:
        return NOTHING
    lost = [one.lost_s for one in seen if one.lost_s > 0]
    overhead_s, lost_s = median(one.overhead_s for one in seen), median(lost) if lost else 0.0
    return CostSummary(len(seen), overhead_s, len(lost) / len(seen), lost_s)


def kind_of(traits: SubmissionTraits) -> OwnersKind:
    """Whose jobs show what preempting this one costs."""
    model = normalise_model_name(traits.model)
    return OwnersKind(traits.owner, model, "" if model else traits.family)


@dataclass(slots=True)
class PreemptionCostLearner:
    """What preemptions have shown so far."""

    observed: int = 0
    """Preemptions that were learned from."""
    _seen: dict[OwnersKind, deque[PreemptionCost]] = field(default_factory=dict)
    """The kind that was heard of last is the last one."""
    _summaries: dict[tuple[str, str], dict[str, CostSummary]] = field(default_factory=dict)
    """Of these, by model and family, then by owner."""
    _by_owner: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    """The most that each owner's kinds cost."""
    _dearest: dict[str, float] = field(default_factory=dict)
    """The largest of these."""
    _ranked: list[float] = field(default_factory=list)
    """Those of all owners, the largest first; empty until somebody asks after something was learned."""
    _known: dict[tuple[str, str], dict[str, KnownCosts]] = field(default_factory=dict)
    """What was answered since something was learned of a kind, by model and family, then by owner."""

    def learn(self, traits: SubmissionTraits, cost: PreemptionCost) -> None:
        """Learn from one preemption of a job.

        Raises:
            PolicyError: a time is negative, not finite or longer than a month.
        """
        if not (0 <= cost.overhead_s <= MOST_S and 0 <= cost.lost_s <= MOST_S):
            raise PolicyError(f"a preemption cannot cost {cost.overhead_s!r} s and {cost.lost_s!r} s of work")
        kind = kind_of(traits)
        seen = self._seen.pop(kind, None) or deque(maxlen=NEWEST)
        seen.append(cost)
        self._seen[kind] = seen
        summary = self._summaries.setdefault(kind[1:], {})[kind.owner] = summarise(seen)
        mine = self._by_owner.setdefault(kind.owner, {})
        mine[kind[1:]] = summary.most_s
        self._dearest[kind.owner] = max(mine.values())
        self.observed += 1
        if len(self._seen) > MAX_GROUPS:
            self._forget(next(iter(self._seen)))
        self._known.pop(kind[1:], None)
        self._ranked = []

    def known(self, kind: OwnersKind) -> KnownCosts:
        """What is known of an owner's kind; O(owners) once after something was learned of the kind."""
        of_kind = self._known.setdefault(kind[1:], {})
        found = of_kind.get(kind.owner)
        if found is None:
            by_owner = self._summaries.get(kind[1:], {})
            others = [one for owner, one in by_owner.items() if owner != kind.owner and kind.model]
            own = by_owner.get(kind.owner, NOTHING)
            found = of_kind[kind.owner] = KnownCosts(own, _over_owners(others), _bound_of_kind_s(others))
        return found if found.others.preemptions else found._replace(most_s=self._bound_s(kind.owner))

    def costs(
        self, kinds: Sequence[OwnersKind], of_row: IntColumn, since_saved_s: FloatColumn, since_start_s: FloatColumn
    ) -> LearnedCosts:
        """The columns of a snapshot. O(rows), and what :meth:`known` takes for each kind.

        Args:
            kinds: of the jobs.
            of_row: by row, an index into them; -1 for a job of which nothing is to be said.
            since_saved_s: by row, work since the job last saved its state in its present run, by its own word; NaN where it
                tells nothing.
            since_start_s: by row, time since the present run's start; 0 for a job that waits.
        """
        known = [self.known(kind) for kind in kinds]
        own = np.array([*(one.own for one in known), NOTHING], dtype=np.float64)[of_row]
        others = np.array([*(one.others for one in known), NOTHING], dtype=np.float64)[of_row]
        mine, theirs = (_costs_s(part, since_saved_s, since_start_s) for part in (own, others))
        own_part, others_part = (part[:, 0] / (part[:, 0] + PRIOR_PREEMPTIONS) for part in (own, others))
        weight = 1.0 - (1.0 - own_part) * (1.0 - others_part)
        share = np.divide(own_part, weight, out=np.zeros(len(weight)), where=weight > 0)
        # No sum of weighted costs: where both are the same, what comes out is that to the bit.
        mixed = np.where(own_part > 0, np.where(others_part > 0, theirs + share * (mine - theirs), mine), theirs)
        return LearnedCosts(mixed, weight, np.array([*(one.most_s for one in known), 0.0])[of_row])

    def _bound_s(self, owner: str) -> float:
        """B where too few others have shown what preempting jobs of the kind costs."""
        self._ranked = self._ranked or sorted(self._dearest.values(), reverse=True)
        others = len(self._ranked) - (owner in self._dearest)
        if others < MIN_OWNERS:
            return 0.0
        at = _find_place(others)
        # Without the owner's own value, those behind it move up.
        return self._ranked[at + (self._dearest.get(owner, -1.0) >= self._ranked[at])]

    def _forget(self, kind: OwnersKind) -> None:
        del self._seen[kind]
        self._known.pop(kind[1:], None)
        del self._summaries[kind[1:]][kind.owner]
        if not self._summaries[kind[1:]]:
            del self._summaries[kind[1:]]
        mine = self._by_owner[kind.owner]
        del mine[kind[1:]]
        if mine:
            self._dearest[kind.owner] = max(mine.values())
        else:
            del self._by_owner[kind.owner], self._dearest[kind.owner]


def _find_place(others: int) -> int:
    """Of so many values, the largest first, the place of B."""
    return max(math.ceil(DEAR_PART * others), DEAR_OWNERS) - 1


def _bound_of_kind_s(others: Sequence[CostSummary]) -> float:
    """B by other owners' jobs of the kind; 0 of too few."""
    if len(others) < MIN_OWNERS:
        return 0.0
    return sorted((one.most_s for one in others), reverse=True)[_find_place(len(others))]


def _over_owners(others: Sequence[CostSummary]) -> CostSummary:
    """The medians over owners, each number by itself."""
    if len(others) < MIN_OWNERS:
        return NOTHING
    columns = list(zip(*others, strict=True))[1:]
    overhead_s, lost_ratio, lost_s = (median_over_owners(values) or 0.0 for values in columns)
    preemptions = sum(min(one.preemptions, PRIOR_PREEMPTIONS) for one in others)
    return CostSummary(preemptions, overhead_s, lost_ratio, lost_s)


def _costs_s(costs: FloatColumn, since_saved_s: FloatColumn, since_start_s: FloatColumn) -> FloatColumn:
    """cost(u) of each row; ``costs`` has the columns of :class:`CostSummary`."""
    _, overhead_s, lost_ratio, lost_s = costs.T
    unsaved_s = np.where(np.isnan(since_saved_s), lost_s, np.minimum(since_saved_s, 2.0 * lost_s))
    found: FloatColumn = overhead_s + lost_ratio * np.minimum(unsaved_s, since_start_s)
    return found
