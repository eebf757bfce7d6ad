"""The one protocol that every policy follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.snapshot import ClusterSnapshot

DEFAULT_POLICY = "soda"
"""What sodad decides by where nobody says, and what commands assume."""


@runtime_checkable
class Policy(Protocol):
    """Decides what should run, from one snapshot alone.

    Implementations are frozen dataclasses whose fields are the policy's parameters; they keep no state between calls.
    """

    @property
    def name(self) -> str:
        """Name as users type it, such as ``tiresias-las``."""
        ...

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """Return the plan for this instant; the same snapshot gives the same plan, to the bit."""
        ...


@runtime_checkable
class DividesNodes(Policy, Protocol):
    """A policy that divides jobs and nodes into pools itself, so that it is asked about the whole cluster at once."""

    def with_shares(self, shares: Mapping[NodeClass, PoolShare]) -> Policy:
        """The policy dividing nodes as Slurm's partitions do, unless its own parameters say how.

        Args:
            shares: of the pools in force; empty without any.
        """
        ...


@runtime_checkable
class PreemptsByRank(Policy, Protocol):
    """A policy by which running jobs that can checkpoint make way for waiting ones that rank before them."""

    @property
    def preempts_by_rank(self) -> bool:
        """Whether it does so with its present parameters."""
        ...


def min_run_s_of(policy: Policy) -> float:
    """For so long since its last start a job is not preempted: the policy's parameter ``min_run_s``; 0 where it has none."""
    return float(getattr(policy, "min_run_s", 0.0))
