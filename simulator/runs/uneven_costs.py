"""Kinds of jobs that differ in what a preemption costs them, drawn where a person says by how much."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload

_MOST_SPREAD = 1000.0
_ASKED_PART = 0.5
"""Our choice: so many of the kinds save their state when they are preempted."""


@dataclass(frozen=True, slots=True)
class UnevenCosts:
    """Each kind of jobs (a model; of a workload without models, a user) has its own restart time, and its own way to save.

    The restart time of a kind is ``restart_s`` times a factor from 1 / ``spread`` to ``spread``, even in its logarithm. Half
    of the kinds save their state when they are preempted. The others do not: they save it each time that they have worked
    for ``saves_every_s`` times another such factor, and lose what they did since. The same seed and name of a kind give the
    same factors.

    Raises:
        SimulatorError: a number that is not allowed.
    """

    spread: float
    restart_s: float
    saves_every_s: float = math.inf
    """Infinite: all kinds save their state when they are preempted."""

    def __post_init__(self) -> None:
        if not 1.0 <= self.spread <= _MOST_SPREAD:
            raise SimulatorError(
                f"cost_spread = {self.spread!r} is not allowed; use a ratio from 1 to {_MOST_SPREAD:g}"
            )

    def drawn(self, workload: Workload, seed: int) -> Workload:
        """The workload with these costs, besides those of its own. O(jobs + kinds)."""
        by_model = bool(workload.models)
        code, names = (workload.model, workload.models) if by_model else (workload.user, workload.users)
        table = np.array(
            [*(self._of_kind(f"{seed}/{name}") for name in names), (self.restart_s, 0.0)], dtype=np.float64
        )
        restart_s, every_s = table[code].T
        return workload.with_columns(restart_s=workload.restart_s + restart_s, saves_every_s=every_s.copy())

    def _of_kind(self, stream: str) -> tuple[float, float]:
        draws = hashlib.blake2b(stream.encode(errors="surrogateescape"), digest_size=24).digest()
        first, second, third = (int.from_bytes(draws[at : at + 8], "big") / 2.0**64 for at in (0, 8, 16))
        every_s = self.saves_every_s * self._factor(second)
        return self.restart_s * self._factor(first), every_s if third >= _ASKED_PART and math.isfinite(every_s) else 0.0

    def _factor(self, draw: float) -> float:
        return float(self.spread ** (2.0 * draw - 1.0))


def describe_uneven_costs(workload: Workload) -> tuple[str, ...]:
    """What was drawn, in a sentence."""
    restart_s, every_s = workload.restart_s, workload.saves_every_s
    if not len(workload):
        return ()
    saves = (
        f"; {100 * float((every_s > 0).mean()):.0f} % of the jobs lose what they did since they last saved their state"
    )
    times = f"a restart costs {restart_s.min():.0f} to {restart_s.max():.0f} s, by the kind of job (--cost-spread)"
    return (times + (saves if every_s.any() else ""),)
