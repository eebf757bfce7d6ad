"""Has the first turn among those that set cores: sees which jobs are here, and keeps what the others set in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.resource_controller import NodeSample


class CoreLimitsController:
    """Gives all cores back at the agent's start and end; whoever wants them limited says so again."""

    def __init__(self, sets: JobCoreLimits) -> None:
        self._sets = sets

    @property
    def interval_s(self) -> float:
        """No hurry: the agent's own pace does."""
        return math.inf

    def recover(self, now_s: float) -> Sequence[str]:
        """Give back what an agent before this one held."""
        return self._sets.recover()

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """See the runs that are here, and correct what strayed."""
        return [*self._sets.observe(sample.runs), *self._sets.reapply_limits()]

    def close(self) -> Sequence[str]:
        """Give everything back."""
        return self._sets.restore_all()

    def counts(self) -> Mapping[str, int]:
        """Jobs that have fewer cores than Slurm gave them, and how many they lack together."""
        return self._sets.counts()
