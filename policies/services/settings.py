"""What a site may set about the placement of services; everything has a default."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import PartitionName


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Bounds of the placement (docs/policies/services.md).

    Raises:
        PolicyError: a value that is not allowed; names it and what is.
    """

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
    start_limit_s: float = 1800.0
    """An instance that starts for so long counts as failed."""
    queued_s: float = 60.0
    """CPU jobs that have waited for so long make a service prefer idle GPUs to cores."""
    min_run_s: float = 60.0
    """A job gives way only once it has run for so long since its last start, or for as long as the policy says."""
    first_in: tuple[PartitionName, ...] = ()
    """Partitions in which tasks of services may go before other jobs, and jobs that can be requeued give way to them. None
    unless the site says so, for any user may report any load of a service of his own."""
    first_everywhere: bool = False
    """That holds in all partitions."""

    def __post_init__(self) -> None:
        rules = (
            ("headroom", 0.0 < self.headroom <= 1.0, "a number above 0 and at most 1"),
            ("hysteresis", 0.0 <= self.hysteresis < 1.0, "a number from 0 to below 1"),
            ("cool_down_s", 0.0 <= self.cool_down_s < math.inf, "seconds, from 0"),
            ("horizon_s", 0.0 < self.horizon_s <= 86_400.0, "seconds, above 0 and at most a day (86400)"),
            ("retry_s", 0.0 < self.retry_s < math.inf, "seconds, above 0"),
            ("start_limit_s", 0.0 < self.start_limit_s < math.inf, "seconds, above 0"),
            ("queued_s", 0.0 <= self.queued_s < math.inf, "seconds, from 0"),
            ("min_run_s", 0.0 <= self.min_run_s < math.inf, "seconds, from 0"),
            ("requeue_failed_s", 0.0 < self.requeue_failed_s < math.inf, "seconds, above 0"),
        )
        for name, holds, allowed in rules:
            if not holds:
                raise PolicyError(f"services: {name} = {getattr(self, name)} is not allowed; allowed are {allowed}")

    def may_go_first(self, partitions: str) -> bool:
        """Whether tasks of these partitions (comma-separated) may go before other jobs: if each of them is named."""
        return self.first_everywhere or (bool(partitions) and set(partitions.split(",")) <= set(self.first_in))
