"""The one protocol that every policy follows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot


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
