"""Whether jobs keep their word on how much they have left: whoever says without end that he is nearly done is found out."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_soda.daemon.sharing.observed_pairs import LATE_S

KEPT_WITHIN = 2.0
"""A job may take so many times what it had left by its word; our choice. Others beside it may slow it, or later iterations
take longer."""


class ReportingRun(NamedTuple):
    """A run that tells its progress; ids are given out again after a reset of Slurm, and then ``first_s`` differs."""

    job_id: int
    restart: int
    first_s: float


@dataclass(slots=True)
class KeptWords:
    """Until when each run may go on by what it said so far.

    A run that had ``left_s`` left when it had run for ``ran_s`` should end by ``ran_s + 2 (left_s + 10 s)``: a reading is up
    to :data:`.LATE_S` old. Each time that it is asked about is a word, and the earliest of these ends counts. Whoever runs
    on beyond it is not believed any more, in that run and until the next one begins. So **a run that says it has r left is
    believed for 2 r + 20 s more at most**, whatever it tells by then.
    """

    _until_s: dict[ReportingRun, float] = field(default_factory=dict)
    """Run time."""
    _broken: set[ReportingRun] = field(default_factory=set)

    def is_kept(self, run: ReportingRun, ran_s: float, left_s: float) -> bool:
        """Whether a running job is believed that says now that so much is left."""
        until_s = min(self._until_s.get(run, math.inf), ran_s + KEPT_WITHIN * (left_s + LATE_S))
        self._until_s[run] = until_s
        if ran_s > until_s:
            self._broken.add(run)
        return run not in self._broken

    def was_kept(self, run: ReportingRun) -> bool:
        """Whether a run that is over was believed to its end."""
        return run not in self._broken

    def forget(self, listed: Collection[int]) -> None:
        """Of jobs that are gone, now and then."""
        if len(self._until_s) > 2 * len(listed) + 1000:
            self._until_s = {run: until_s for run, until_s in self._until_s.items() if run.job_id in listed}
            self._broken &= self._until_s.keys()
