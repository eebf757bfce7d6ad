"""Samples of a job's GPU utilisation, and the measurement that they make."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import groupby

from slurm_soda.policies.cpu_fit.measurement import IDLE_RATIO, Measurement

LEAST_BREAK_SAMPLES = 5
BREAK_RATIO = 0.1
"""Idle for a tenth of a step on end, and for at least five samples: the job saves or evaluates. Our choice."""


@dataclass(slots=True)
class UtilisationWindow:
    """Samples since one moment."""

    since_s: float
    samples: list[float] = field(default_factory=list)
    """Mean utilisation of the job's GPUs, 0 to 1 each."""

    def measurement(self, cores: int) -> Measurement:
        """Of at least one sample."""
        mean = math.fsum(self.samples) / len(self.samples)
        variance = math.fsum((one - mean) ** 2 for one in self.samples) / max(len(self.samples) - 1, 1)
        return Measurement(cores, min(max(mean, 0.0), 1.0), math.sqrt(variance), len(self.samples))

    @property
    def idle(self) -> bool:
        """The GPUs did nothing at all."""
        return all(one < IDLE_RATIO for one in self.samples)

    @property
    def broken(self) -> bool:
        """The job paused for a while in between, so that the mean says little about its cores."""
        longest = max((len(list(run)) for idle, run in groupby(self.samples, _is_idle) if idle), default=0)
        return longest >= max(LEAST_BREAK_SAMPLES, BREAK_RATIO * len(self.samples))


def _is_idle(ratio: float) -> bool:
    return ratio < IDLE_RATIO
