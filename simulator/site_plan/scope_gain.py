"""What a policy within a scope brings: to jobs in it, and to the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn
from slurm_soda.simulator.engine.deciders.scoped_decider import STOCK_RESERVATIONS, find_left_out
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.runs.estimates import PREDICTED
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.whatif.answer import WORTHWHILE_RATIO
from slurm_soda.simulator.whatif.candidate_runs import Candidate, CandidateRunner
from slurm_soda.simulator.whatif.candidates import POLICIES_BY_RUN_TIME
from slurm_soda.simulator.whatif.worse_off_jobs import WORSE_RATIO

STOCK = PolicyChoice("multifactor", {"reservations": STOCK_RESERVATIONS})
"""What stands for Slurm without slurm-soda: the same that starts jobs within a scope."""
HARMLESS_RATIO = 1.02
"""By so much the mean completion time of jobs out of scope may differ: backfill has other gaps, either way."""


@dataclass(frozen=True, slots=True)
class GroupGain:
    """Jobs in scope, or all others."""

    jobs: int
    before_s: float
    """Mean JCT without slurm-soda; 0 without jobs."""
    after_s: float
    worse: int
    """How many take more than a tenth longer."""

    @property
    def ratio(self) -> float:
        """So many times better is the mean; 1 without jobs."""
        return self.before_s / self.after_s if self.after_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class ScopeGain:
    """Of one scope."""

    scope: Scope
    inside: GroupGain
    outside: GroupGain
    preemptions: float
    """Mean over the simulated workloads."""
    policy: str = ""

    def document(self) -> dict[str, Any]:
        """As plain data."""

        def group(one: GroupGain) -> dict[str, Any]:
            return asdict(one) | {"ratio": one.ratio}

        return {"in_scope": group(self.inside), "others": group(self.outside), "preemptions": self.preemptions}

    def sentences(self) -> Iterator[str]:
        """For people."""
        inside, outside = self.inside, self.outside
        yield (
            f"expected: {inside.jobs:,} jobs in scope end after {span_text(inside.after_s)} on average instead of"
            f" {span_text(inside.before_s)} ({inside.ratio:.2f} times better; {inside.worse:,} take more than a tenth"
            " longer)"
        )
        if outside.jobs:
            yield (
                f"expected: the {outside.jobs:,} others after {span_text(outside.after_s)} instead of"
                f" {span_text(outside.before_s)} ({outside.worse:,} take more than a tenth longer)"
            )

    @property
    def is_seen(self) -> bool:
        """Jobs in scope gain enough to be worth a change, and the others stay as they are."""
        return self.inside.ratio >= WORTHWHILE_RATIO and self.outside.ratio >= 1.0 / HARMLESS_RATIO


@dataclass(slots=True)
class ScopeGains:
    """Simulates scopes, all against one run of Slurm alone."""

    rig: CandidateRunner
    choice: PolicyChoice
    _before: Candidate | None = None

    @property
    def before(self) -> Candidate:
        """Slurm alone.

        Raises:
            SimulatorError: it cannot run these jobs.
        """
        if self._before is None:
            self._before = self._one(self.rig.run([STOCK], role="slurm", costs=self.rig.slurm()))
        return self._before

    def of(self, scope: Scope) -> ScopeGain:
        """Of one scope; of :class:`.Scope` without names for all jobs.

        Raises:
            SimulatorError: it cannot be simulated.
        """
        told = PREDICTED if self.choice.name in POLICIES_BY_RUN_TIME else "none"
        after = self._one(self.rig.run([self.choice], estimates=told, scope=scope))
        inside = find_left_out(self.rig.workloads[0], scope) == 0
        before_s, after_s = jct_s(self.before), jct_s(after)
        return ScopeGain(
            scope,
            compare_group(inside, before_s, after_s),
            compare_group(~inside, before_s, after_s),
            after.runs.mean("preemptions"),
            self.choice.name,
        )

    def _one(self, found: Sequence[Candidate]) -> Candidate:
        if not found:
            raise SimulatorError(str(self.rig.failed[-1]))
        if not found[0].complete:
            raise SimulatorError("some jobs cannot run on this cluster; describe it with --cluster")
        return found[0]


def jct_s(candidate: Candidate) -> FloatColumn:
    """Mean JCT of each job over the workloads."""
    mean: FloatColumn = np.stack([run.jct_s for run in candidate.runs.runs]).mean(axis=0)
    return mean


def compare_group(member: BoolColumn, before_s: FloatColumn, after_s: FloatColumn) -> GroupGain:
    """Means of a group of jobs."""
    if not member.any():
        return GroupGain(0, 0.0, 0.0, 0)
    worse = int((after_s[member] > WORSE_RATIO * before_s[member]).sum())
    return GroupGain(int(member.sum()), float(before_s[member].mean()), float(after_s[member].mean()), worse)
