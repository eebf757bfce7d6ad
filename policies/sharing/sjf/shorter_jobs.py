"""How many GPUs a long job, which nobody can stop once it runs, had better leave to shorter ones."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

MUCH_LONGER = 2.0
PATIENCE = 2.0
"""A job waits so for at most so many of its run times, if those in want lose all their speed."""
DAYTIME_PATIENCE = 1.0
""":data:`PATIENCE` where work comes by day."""
LEAST_LOSS = 2.0
"""By day a job waits only for those who are together without so many times the speed of a job: twice what it loses itself
meanwhile, as that is sure, and who comes next is not."""

Column = TypeVar("Column", IntColumn, FloatColumn)


class ShorterJobs:
    """GPUs that are wanted by jobs of less than half a job's run time, now and soon.

    Now: by those that wait, or that share theirs. Soon: as many shorter jobs are expected to come as run alone. A gang that
    is larger than they are on average displaces more than one of them, so they count up to the GPUs by which it is larger.

    The less of their speed those in want are without, the shorter it waits: where jobs that share hardly slow each other
    down, next to nothing is won by leaving them GPUs.

    Complexity: O(n log n) once, O(log n) for each question.
    """

    def __init__(
        self,
        run_s: FloatColumn,
        gpus: IntColumn,
        waits_or_shares: BoolColumn,
        lost_speed: FloatColumn,
        runs: BoolColumn,
        *,
        patience: float = PATIENCE,
        least_loss: float = 0.0,
    ) -> None:
        """Columns by job: run time alone, GPUs, whether it waits or shares, what part of its speed it is without, and
        whether it runs. ``least_loss``: what those in want must be without together, in speeds of a job.
        """
        self._patience, self._least_loss = patience, least_loss
        counted = (gpus > 0) & (waits_or_shares | runs) & np.isfinite(run_s)
        order = np.argsort(run_s[counted], kind="stable")
        sizes = gpus[counted][order]
        wants = waits_or_shares[counted][order]
        self._run_s = run_s[counted][order]
        self._wanted = prefix_sums(np.where(wants, sizes, 0))
        lost = np.where(wants, lost_speed[counted][order], 0.0)
        self._lost = prefix_sums(lost)
        self._lacking = prefix_sums(sizes * lost)
        self._held = prefix_sums(np.where(wants, 0, sizes))

    def wanted_gpus(self, run_s: float, gpus: int) -> float:
        """By jobs much shorter than one of this run time and size."""
        shorter = self._shorter(run_s)
        if not shorter:
            return 0.0
        wanted, held = int(self._wanted[shorter]), int(self._held[shorter])
        return wanted + min(held, max(gpus - (wanted + held) / shorter, 0.0))

    def max_wait_s(self, run_s: float) -> float:
        """For how long a job leaves free GPUs to them at most."""
        if not math.isfinite(run_s):
            return 0.0
        shorter = self._shorter(run_s)
        wanted_gpus = int(self._wanted[shorter])
        return self._patience * run_s * (float(self._lacking[shorter]) / wanted_gpus if wanted_gpus else 1.0)

    def should_leave_gpus(self, run_s: float, gpus: int, waited_s: float, free_gpus: int) -> bool:
        """Whether a job leaves free GPUs to them. It waits so for at most :meth:`max_wait_s`."""
        if not waited_s < self.max_wait_s(run_s):
            return False
        shorter = self._shorter(run_s)
        if self._wanted[shorter] and self._lost[shorter] < self._least_loss:
            return False
        wanted = self.wanted_gpus(run_s, gpus)
        return wanted > 0 and free_gpus - gpus < wanted

    def _shorter(self, run_s: float) -> int:
        """How many are much shorter."""
        return int(np.searchsorted(self._run_s, run_s / MUCH_LONGER))


def prefix_sums(column: Column) -> Column:
    """Of the first 0, 1, 2 … entries."""
    sums: Column = np.append(np.zeros(1, dtype=column.dtype), np.cumsum(column))
    return sums
