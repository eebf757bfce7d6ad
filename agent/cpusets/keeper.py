"""Has the first turn among those that set cores: sees which jobs are here, and keeps what the others set in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_soda.agent.cpusets.sets import CoreSets
from slurm_soda.agent.keeper import Sample


class CoreSetsKeeper:
    """Gives all cores back at the agent's start and end; whoever wants them limited says so again."""

    def __init__(self, sets: CoreSets) -> None:
        self._sets = sets

    @property
    def interval_s(self) -> float:
        """No hurry: the agent's own pace does."""
        return math.inf

    def recover(self, now_s: float) -> Sequence[str]:
        """Give back what an agent before this one held."""
        return self._sets.recover()

    def turn(self, sample: Sample) -> Sequence[str]:
        """See the runs that are here, and correct what strayed."""
        return [*self._sets.see(sample.runs), *self._sets.look_after()]

    def close(self) -> Sequence[str]:
        """Give everything back."""
        return self._sets.restore_all()
