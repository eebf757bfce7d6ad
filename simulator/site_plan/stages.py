"""Which stages are proposed: the smallest partition that gains first, then those that gain too, then all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.scope.scope import Scope, is_plain_name
from slurm_soda.simulator.site_plan.scope_gain import ScopeGain
from slurm_soda.simulator.whatif.answer import WORTHWHILE_RATIO
from slurm_soda.simulator.workload import Workload

MOST_TRIED = 8
"""Partitions that are tried alone, the smallest first."""
_PART_OF_SERVICE = 0.25
"""Where there is one partition alone, users with so much of the GPU time come first."""


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """What a partition's jobs were."""

    name: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class EnforcedStage:
    """A stage in which sodad enforces."""

    gain: ScopeGain
    adds: tuple[str, ...]
    """Partitions or users that the stage before did not have; none: all others."""

    @property
    def scope(self) -> Scope:
        """Whom it concerns."""
        return self.gain.scope


@dataclass(frozen=True, slots=True)
class ProposedStages:
    """What came out."""

    partitions: tuple[PartitionUse, ...]
    """Those with GPU jobs, by GPU time, the smallest first."""
    tried: tuple[tuple[str, ScopeGain], ...]
    """Each that was tried alone, by name."""
    enforced: tuple[EnforcedStage, ...]
    """In order; empty: nothing gains enough."""


def partition_uses(workload: Workload) -> tuple[PartitionUse, ...]:
    """Partitions with GPU jobs, by their GPU time, the smallest first; ties by name."""
    found = []
    for code, name in enumerate(workload.partitions):
        rows = (workload.partition == code) & (workload.gpus > 0)
        if rows.any():
            hours = float((workload.gpus[rows] * workload.run_s[rows]).sum()) / 3600.0
            found.append(PartitionUse(name, int(rows.sum()), hours))
    return tuple(sorted(found, key=lambda use: (use.gpu_hours, use.name)))


def propose_stages(workload: Workload, gain_of: Callable[[Scope], ScopeGain]) -> ProposedStages:
    """Try partitions alone, then together; never one whose name ``[scope]`` would not take.

    Args:
        workload: the site's jobs.
        gain_of: simulates a scope; it is asked for at most ``MOST_TRIED + 2`` different ones.
    """
    uses = partition_uses(workload)
    whole = gain_of(Scope())
    if whole.inside.ratio < WORTHWHILE_RATIO:
        return ProposedStages(uses, (), ())
    if len(uses) == 1:
        return _by_users(uses, workload, gain_of, whole)
    named = [use.name for use in uses if is_plain_name(use.name)][:MOST_TRIED]
    tried = [(name, gain_of(Scope(partitions=frozenset({name})))) for name in named]
    gaining = [(name, gain) for name, gain in tried if gain.is_seen]
    stages: list[EnforcedStage] = []
    if gaining:
        first, gain = gaining[0]
        stages.append(EnforcedStage(gain, (first,)))
        more = tuple(name for name, _ in gaining[1:])
        if more and len(more) + 1 < len(uses):
            stages.append(EnforcedStage(gain_of(Scope(partitions=frozenset({first, *more}))), more))
    return ProposedStages(uses, tuple(tried), (*stages, EnforcedStage(whole, ())))


def _by_users(
    uses: Sequence[PartitionUse], workload: Workload, gain_of: Callable[[Scope], ScopeGain], whole: ScopeGain
) -> ProposedStages:
    users = _largest_users(workload)
    if not users or len(users) == len(workload.users):
        return ProposedStages(tuple(uses), (), (EnforcedStage(whole, ()),))
    gain = gain_of(Scope(users=frozenset(users)))
    tried = ((", ".join(users), gain),)
    first = (EnforcedStage(gain, users),) if gain.is_seen else ()
    return ProposedStages(tuple(uses), tried, (*first, EnforcedStage(whole, ())))


def _largest_users(workload: Workload) -> tuple[str, ...]:
    """The fewest users who together have the part of the GPU time, the largest first."""
    plain = np.array([is_plain_name(name) for name in workload.users], dtype=np.bool_)
    known = workload.user >= 0
    known[known] = plain[workload.user[known]]
    service = np.bincount(
        workload.user[known],
        weights=(workload.gpus * workload.run_s)[known],
        minlength=len(workload.users),
    )
    order = np.argsort(-service, kind="stable")
    reached = np.cumsum(service[order]) >= _PART_OF_SERVICE * service.sum()
    count = int(np.argmax(reached)) + 1 if reached.any() else 0
    return tuple(workload.users[code] for code in order[:count].tolist())
