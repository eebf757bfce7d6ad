"""One cycle as others in the daemon are told of it, once it is over."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.change_limits import CircuitBreaker
from slurm_soda.daemon.cycle.daemon_state import DaemonState
from slurm_soda.daemon.cycle.recorder import CycleReport, CycleResult
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.policies.expected_starts.calibration import IntervalScore


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """A cycle; to be looked at in the thread of the cycles, and not to be kept."""

    at: Instant
    report: CycleReport
    policy: str
    settings: Settings
    breaker: CircuitBreaker
    state: DaemonState
    result: CycleResult | None = None
    """``None``: it failed."""
    start_score: IntervalScore | None = None
    """How right forecasts of starts were lately; ``None``: none was made yet."""
