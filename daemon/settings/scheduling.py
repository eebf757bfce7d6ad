"""What sodad decides, how often, and how much it may change at a time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from slurm_soda.daemon.settings.section import DAY_S, HOUR_S, Section
from slurm_soda.policies.policy import DEFAULT_POLICY
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S


class PolicySettings(Section):
    """``[policy]``: which policy decides, with its parameters by name."""

    name: str = DEFAULT_POLICY
    parameters: dict[str, Any] = Field(default_factory=dict)
    bands: Literal["off", "qos", "fairshare"] = "off"
    """Classes of Slurm's own priority inside which the policy orders jobs: no job delays one of a better class."""


class CycleSettings(Section):
    """``[cycle]``: how often sodad runs a cycle."""

    interval_s: float = Field(default=10.0, gt=0, le=HOUR_S)
    """Longest time between two cycles when nothing wakes the daemon."""
    busy_interval_s: float = Field(default=0.5, gt=0, le=HOUR_S)
    """Longest time between two cycles while a preemption is on its way."""
    retry_s: float = Field(default=2.0, gt=0, le=HOUR_S)
    """Time to the next attempt after a cycle that failed."""
    debounce_s: float = Field(default=0.1, ge=0, le=10)
    """Events this close together share one cycle. While it lasts sodad gives no sign of life."""
    lease_s: float = Field(default=35.0, ge=5, le=HOUR_S)
    """What sodad lifted is taken back when its heartbeat is so old."""
    order_depth: int = Field(default=1000, ge=1)
    """How many pending jobs of a queue are lifted at most; the others keep Slurm's own order."""
    passing_limit_s: float = Field(default=DEFAULT_PASSING_LIMIT_S, gt=0, allow_inf_nan=True)
    """After so long a wait no later job passes or delays one; inf: never. Simulations have the same limit."""
    skipping_limit_s: float = Field(default=0.0, ge=0, allow_inf_nan=True)
    """The same for one that does not fit and that the policy ranks before the other job, or does not rank at all."""


class ChangeLimitSettings(Section):
    """``[change_limits]``: how much sodad may change, and when it stops by itself."""

    max_changes_per_cycle: int = Field(default=2000, ge=0)
    min_change_interval_s: float = Field(default=1.0, ge=0, le=DAY_S)
    """Least time between two changes of one job."""
    breaker_failures: int = Field(default=5, ge=1)
    """Failing cycles in a row that open the breaker."""
    breaker_slow_s: float = Field(default=15.0, gt=0, allow_inf_nan=True)
    """A read of Slurm slower than this counts as a failure; inf: none does."""
    breaker_pause_s: float = Field(default=60.0, ge=0, le=DAY_S)
    """Time for which an open breaker only observes."""


class PreemptionSettings(Section):
    """``[preemption]``: bounds on taking a job's GPUs for another."""

    default_grace_s: float = Field(default=60.0, ge=0, le=DAY_S)
    """Time to checkpoint for a job that named a signal but no grace; no longer than :attr:`max_grace_s`."""
    max_grace_s: float = Field(default=900.0, ge=0, le=DAY_S)
    """Longest grace that a job may ask for."""
    release_after_s: float = Field(default=30.0, ge=0, le=DAY_S)
    """A requeued job competes again at the latest this long after it left its GPUs, whatever became of its successors."""
    max_per_job: int = Field(default=10, ge=0)
    """A job that was preempted so often keeps its GPUs from then on; 0: no bound."""


class CpuFitSettings(Section):
    """``[cpu_fit]``: just enough CPU cores for training jobs (SODA, Section V-B)."""

    rewrite: Literal["off", "hinted", "all"] = "hinted"
    """Whose requests are changed while they wait: nobody's, those of jobs that name a ``--soda-category``, all GPU jobs'."""
    tolerance_ratio: float = Field(default=0.02, gt=0, lt=0.5)
    """For jobs on several nodes: best is the fewest cores with at most this share less than the best utilisation."""
    free_unneeded: bool = False
    """For jobs on several nodes: also take cores from those that do as well with one."""
