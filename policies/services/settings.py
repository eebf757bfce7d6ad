"""What a site may set about the placement of services; everything has a default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Bounds of the placement (docs/policies/services.md)."""

    headroom: float = 0.8
    """Part of an instance's capacity that is counted on, above 0 and at most 1 (paper 004, Section V-D: 80 %)."""
    hysteresis: float = 0.1
    """By what part the load must be lower on the way back than on the way out, from 0 to below 1."""
    cool_down_s: float = 300.0
    """Fewer instances, or cores instead of a GPU, only after they would have done for so long without a break."""
    horizon_s: float = 600.0
    """How far ahead the load is forecast: longer than an instance takes from its start until it is ready."""
    retry_s: float = 30.0
    """A failed instance is replaced so long after it failed; with n failed ones, 2^(n-1) times as long after the last."""
    requeue_failed_s: float = 600.0
    """Where no more may run beside it, a failed instance is requeued after so long."""
    gives_way: bool = True
    """Jobs that can be requeued give way to a service that needs a GPU."""
