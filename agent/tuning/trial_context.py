"""What all trials of a node work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from slurm_soda.agent.tuning.search_progress import CoreSearchProgress
from slurm_soda.policies.cpu_fit.core_search import SearchRules


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What all trials of a node share."""

    settings: CoreTuningSettings
    rules: SearchRules
    sets: JobCoreLimits
    core_messages: CoreMessages
    remember: Callable[[CoreSearchProgress], None]
    """Puts a search on record; raises StateFileError where that fails."""
    fault: Callable[[str], None]
    unix_s: Callable[[], float]
    """The time of day of this turn."""
