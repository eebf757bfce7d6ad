"""GPU utilisation of a job with one number of cores, over one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError

LEAST_NOISE_RATIO = 0.01
"""Our choice: no mean of a step is believed to less than 1 % of itself, however calm its samples were: they follow each
other and are not independent."""
IDLE_RATIO = 0.01
"""Our choice: below 1 % of utilisation a job does not train (it loads, or waits), so its cores cannot be judged."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Mean utilisation of all GPUs of a job over one step.

    Attributes:
        cores: cores that the job had, on each of its nodes.
        utilisation_ratio: mean over the step and the job's GPUs, 0 to 1.
        spread_ratio: standard deviation of the samples, in the same unit.
        samples: how many; 60 for a step of 60 s at one a second (Section VI-H).

    Raises:
        PolicyError: a value is out of range.
    """

    cores: int
    utilisation_ratio: float
    spread_ratio: float = 0.0
    samples: int = 60

    def __post_init__(self) -> None:
        if self.cores < 1 or self.samples < 1:
            raise PolicyError(f"a measurement has at least 1 core and 1 sample, not {self.cores} and {self.samples}")
        if not 0.0 <= self.utilisation_ratio <= 1.0:
            raise PolicyError(
                f"utilisation must be from 0 to 1, not {self.utilisation_ratio!r}: divide percents by 100"
            )
        if not 0.0 <= self.spread_ratio < math.inf:
            raise PolicyError(f"the spread of utilisation must be a number from 0, not {self.spread_ratio!r}")

    @property
    def noise_ratio(self) -> float:
        """Standard error of the mean, never 0."""
        least = LEAST_NOISE_RATIO * max(self.utilisation_ratio, IDLE_RATIO)
        return max(self.spread_ratio / math.sqrt(self.samples), least)

    @property
    def idle(self) -> bool:
        """The GPUs hardly worked, so this says nothing about cores."""
        return self.utilisation_ratio < IDLE_RATIO


def combine_nodes(parts: Sequence[tuple[Measurement, int]]) -> Measurement:
    """One measurement of a job on several nodes, from each node's and its number of GPUs.

    The mean is weighted by GPUs. A gang moves in step, so its nodes' samples are not independent: spread and number of
    samples are those of the worst node.

    Raises:
        PolicyError: no node, a node without GPUs, or nodes with different numbers of cores.
    """
    cores = {part.cores for part, _ in parts}
    if len(cores) != 1 or min(gpus for _, gpus in parts) < 1:
        raise PolicyError(
            f"nodes of one job must have GPUs and equally many cores, not {sorted(cores)} cores: set them alike"
        )
    gpus = sum(gpus for _, gpus in parts)
    mean = sum(part.utilisation_ratio * gpus for part, gpus in parts) / gpus
    return Measurement(
        cores.pop(),
        min(mean, 1.0),
        max(part.spread_ratio for part, _ in parts),
        min(part.samples for part, _ in parts),
    )
