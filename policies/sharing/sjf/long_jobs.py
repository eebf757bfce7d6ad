"""How many GPUs long jobs, which nobody can stop once they run, may hold while shorter ones come and go."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from slurm_soda.policies.sharing.sjf.shorter_jobs import DAYTIME_PATIENCE, MUCH_LONGER, prefix_sums
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

LONG_S = 7200.0
LONG_SHARE = 1.0 / 3.0
MAX_WAIT_S = 4 * 3600.0
"""Where long jobs are most of the work, leaving GPUs to others for longer costs more than it gains (Philly's weeks)."""
MUCH_SHORTER = 4.0
"""Long jobs wait where somebody is there who needs so many times less. With 2, jobs of three hours wait for those of one
where all are like that, which gains nothing (Gavel's trace)."""
OVERNIGHT_S = 16 * 3600.0
"""From the end of a working day to the beginning of the next one: who waits for longer has missed a quieter hour, or there
was none."""


def expect_quiet_hours(waited_s: FloatColumn, usable_gpus: int) -> bool:
    """Whether waiting for a quieter hour pays. ``waited_s``: of all jobs that wait for GPUs.

    Not where somebody has seen none since yesterday's work began, and not in a queue of more jobs than there are GPUs:
    there a second that sharing saves on one GPU saves them more than a second, whoever gets it (srsf-share's weight).
    """
    return len(waited_s) <= usable_gpus and not bool(np.any(waited_s > OVERNIGHT_S))


class LongJobs:
    """Long jobs in a cluster where others run or wait that need less than a quarter as long.

    :class:`.ShorterJobs` counts the shorter jobs that are there. In a quiet hour that is hardly anybody, and long jobs that
    take the whole cluster then keep those waiting for hours who come later. So they get a part of it.

    Complexity: O(n log n) once, O(log n) for each question.

    Attributes:
        limit_gpus: what long jobs may hold together.
    """

    def __init__(
        self,
        run_s: FloatColumn,
        gpus: IntColumn,
        waits: BoolColumn,
        runs: BoolColumn,
        *,
        limit_gpus: float,
        long_s: float = LONG_S,
    ) -> None:
        """Columns by job: run time alone, GPUs, and whether it waits, or runs. Jobs of unknown run time do not count.

        ``limit_gpus``: what long jobs may hold together; ``long_s``: a job of more run time is long.
        """
        self.limit_gpus, self._long_s = limit_gpus, long_s
        counted = (gpus > 0) & ~np.isnan(run_s)
        self._shortest_s = float(np.min(run_s[counted & (waits | runs)], initial=math.inf))
        holds = counted & runs
        order = np.argsort(run_s[holds], kind="stable")
        self._run_s = run_s[holds][order]
        self._held = prefix_sums(gpus[holds][order])
        self._started_s: list[float] = []
        self._started = [0]

    def start(self, run_s: float, gpus: int) -> None:
        """A job gets GPUs in this decision; call in the order of run times."""
        if run_s > self._long_s / MUCH_LONGER:
            self._started_s.append(run_s)
            self._started.append(self._started[-1] + gpus)

    def held_gpus(self, run_s: float) -> int:
        """By jobs that are not much shorter than one of this run time."""
        least_s = run_s / MUCH_LONGER
        before = int(self._held[-1] - self._held[np.searchsorted(self._run_s, least_s)])
        return before + self._started[-1] - self._started[bisect_left(self._started_s, least_s)]

    def max_wait_s(self, run_s: float) -> float:
        """For how long a job waits at most until fewer of them run: :data:`.DAYTIME_PATIENCE` times its run time."""
        return min(DAYTIME_PATIENCE * run_s, MAX_WAIT_S) if self._long_s < run_s < math.inf else 0.0

    def should_wait(self, run_s: float, gpus: int, waited_s: float) -> bool:
        """Whether a long job had better wait until fewer of them run, or nobody much shorter is there."""
        if not waited_s < self.max_wait_s(run_s):
            return False
        return self._shortest_s < run_s / MUCH_SHORTER and self.held_gpus(run_s) + gpus > self.limit_gpus
