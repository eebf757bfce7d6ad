"""When a settled job should be searched anew: its utilisation left the level at which the search ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.policies.cpu_fit.measurement import IDLE_RATIO, Measurement
from slurm_soda.policies.errors import PolicyError


@dataclass(frozen=True, slots=True)
class PhaseWatchRules:
    """What a site may set; both are our choice, as the paper does not watch for later phases.

    Raises:
        PolicyError: a value is out of range.
    """

    samples: int = 10
    """So many samples in a row must agree."""
    departure_ratio: float = 0.1
    """Least change that matters, relative to the stable level."""

    def __post_init__(self) -> None:
        if self.samples < 1 or not 0.0 < self.departure_ratio < math.inf:
            raise PolicyError(
                "a watch needs at least 1 sample and a departure above 0, "
                f"not {self.samples} and {self.departure_ratio!r}"
            )


_NOISE_WIDTHS = 4.0
"""Our choice: a mean of samples differs by noise alone so far once in 16 000 tests."""


def entered_new_phase(stable: Measurement, recent_ratio: Sequence[float], rules: PhaseWatchRules | None = None) -> bool:
    """Whether the job entered another phase, so that its cores should be searched anew.

    The newest ``rules.samples`` samples all lie on one side of the stable level, and their mean is off by
    ``departure_ratio`` of it and by four standard errors. A job whose GPUs are idle (it saves, evaluates or has hung) is
    left alone: its cores could not be judged.

    Args:
        stable: measured with the cores on which the search settled; its ``spread_ratio`` is that of single samples.
        recent_ratio: samples since then, oldest first, each like one sample of ``stable``.
    """
    rules = rules or PhaseWatchRules()
    newest = recent_ratio[-rules.samples :]
    if len(newest) < rules.samples or any(ratio < IDLE_RATIO for ratio in newest):
        return False
    level = stable.utilisation_ratio
    one_sided = all(ratio > level for ratio in newest) or all(ratio < level for ratio in newest)
    noise = math.hypot(stable.noise_ratio, stable.spread_ratio / math.sqrt(rules.samples))
    departure = abs(sum(newest) / rules.samples - level)
    return one_sided and departure > max(rules.departure_ratio * level, _NOISE_WIDTHS * noise)
