"""What all trials of a node work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm_soda.agent.cpusets.sets import CoreSets
from slurm_soda.agent.outbox import Outbox
from slurm_soda.agent.tuning.progress import Progress
from slurm_soda.agent.tuning.settings import CoreSettings
from slurm_soda.policies.cores.search import SearchRules


@dataclass(frozen=True, slots=True)
class Context:
    """What all trials of a node share."""

    settings: CoreSettings
    rules: SearchRules
    sets: CoreSets
    outbox: Outbox
    remember: Callable[[Progress], None]
    """Puts a search on record; raises StateFileError where that fails."""
    fault: Callable[[str], None]
    unix_s: Callable[[], float]
    """The time of day of this turn."""
