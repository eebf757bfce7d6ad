"""Asks beside the cycle which limits of accounting are enforced: slurmdbd may be slow or down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from slurm_soda.daemon.logs import log
from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.slurm_ext.errors import SlurmError

LimitsQuery = Callable[[], AccountingLimits]
"""Asks Slurm; bounded in time.

Raises:
    SlurmError: it did not answer, or not readably.
"""

ASK_EVERY_S = 60.0
VALID_S = 120.0
"""An answer older than this does not count: nothing is known then."""


@dataclass(slots=True)
class LimitsLookup:
    """Asks in one thread, at most one question at a time; call :meth:`current` from one thread."""

    ask: LimitsQuery
    executor: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "limits"))
    _asked: Future[AccountingLimits] | None = None
    _asked_s: float = float("-inf")
    _known: AccountingLimits | None = None
    _known_s: float = float("-inf")
    _failing: bool = False

    def current(self, steady_s: float) -> AccountingLimits | None:
        """What Slurm said last, at most :data:`VALID_S` ago; ``None``: it is not known now."""
        if self._asked is None and steady_s >= self._asked_s + ASK_EVERY_S:
            self._asked, self._asked_s = self.executor.submit(self.ask), steady_s
        if self._asked is not None and self._asked.done():
            self._take_in(self._asked)
            self._asked = None
        return self._known if steady_s < self._known_s + VALID_S else None

    def close(self) -> None:
        """Stop; a question under way is left to its time-out."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def _take_in(self, asked: Future[AccountingLimits]) -> None:
        try:
            self._known, self._known_s = asked.result(), self._asked_s
        except SlurmError as error:
            if not self._failing:
                log(logging.WARNING, "limits-not-known", error=error)
            self._failing = True
            return
        self._failing = False
