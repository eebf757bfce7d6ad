"""What starting, stopping and deciding cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_soda.simulator.errors import SimulatorError

MOST_S = 1e11
"""No cost is larger: more than 3,000 years, as for times of traces. Sums and squares of such numbers stay finite."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds by which a real cluster is slower than a perfect one; all 0 in the papers' own simulators but Pollux'.

    Attributes:
        start_s: a job holds its resources so long without progress at its first start.
        restart_s: the same at each later start, besides the workload's own ``restart_s``.
        checkpoint_s: a preempted job holds its resources so long before it leaves.
        round_s: decisions are made at multiples of this time only; 0: whenever something happens.
        checkpoint_every_s: jobs that can save their state do so each time that they have worked for so long; infinite: only
            when they are preempted. It counts where they are stopped without notice: by a node that fails, or as guests.
    """

    start_s: float = 0.0
    restart_s: float = 0.0
    checkpoint_s: float = 0.0
    round_s: float = 0.0
    checkpoint_every_s: float = math.inf

    def __post_init__(self) -> None:
        for name in ("start_s", "restart_s", "checkpoint_s", "round_s"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_S:
                raise SimulatorError(f"{name} = {value!r} is not allowed; use a number of seconds from 0 to {MOST_S:g}")
        if not self.checkpoint_every_s > 0:
            raise SimulatorError(
                f"checkpoint_every_s = {self.checkpoint_every_s!r} is not allowed; use a number of seconds above 0, or inf"
            )
