"""SODA's adaptive CPU allocation on simulated jobs: requests rewritten at submission, cores searched while jobs run."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace

from slurm_soda.policies.cpu_fit.core_search import CoreSearch, SettleCores, SettleReason
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, FitHistory, NodeCapacity, PastFit, start_from

SEARCH_STEP_S = 60.0
"""How long utilisation is sampled with one number of cores (Section VI-H)."""
MOST_FITS_KEPT = 20
"""Best fits kept of each owner, category and model, the newest; our choice."""
_DECIMALS = 3
"""Of a measured utilisation; equal cases then are searched once."""
_LIMIT_ROUNDING_CORES = 4
"""A search that is short of cores is told of a multiple of this: for each limit curves are worked out anew."""


class BestFitHistory:
    """Best fits that searches found, by owner; what the backend log of SODA is (Section V-A)."""

    def __init__(self) -> None:
        self._fits: dict[str, dict[tuple[str | None, str | None], deque[PastFit]]] = defaultdict(dict)
        self._values: dict[str, FitHistory] = {}

    def add(self, owner: str, fit: PastFit) -> None:
        """A search has ended."""
        mine = self._fits[owner].setdefault((fit.category, fit.model), deque(maxlen=MOST_FITS_KEPT))
        if len(mine) == MOST_FITS_KEPT and all(fit == other for other in mine):
            return
        mine.append(fit)
        self._values.pop(owner, None)

    def start(self, owner: str, request: CoreRequest, node: NodeCapacity) -> int:
        """N_start on each node, from what is known now."""
        if owner not in self._values:
            self._values[owner] = FitHistory(tuple(fit for fits in self._fits[owner].values() for fit in fits))
        return start_from(request, self._values[owner], node).cores


@dataclass(slots=True)
class TunedJob:
    """One running job's search; cores are those of each of its nodes."""

    search: CoreSearch
    cores: int
    """What it works with now."""
    held: int
    """What it has: until the search ends, nothing that it has tried is given away, so that it can go back."""
    bounded: bool = False
    """It could not get what the search wanted, so the end says nothing about the model."""

    @classmethod
    def begin(cls, cores: int, limit: int) -> TunedJob:
        """A job starts with so many cores on each node; no node has more than ``limit``."""
        return cls(CoreSearch(cores, max(limit, cores)), cores, cores)

    def step(self, utilisation_ratio: float, reach: int) -> SettleReason | None:
        """A step is over: note what was measured, and set the cores for the next one, or for good.

        ``reach`` is the most cores that each of the job's nodes can give it now, its own included. Returns why the search
        ended, if it did.
        """
        seen = Measurement(self.cores, round(min(utilisation_ratio, 1.0), _DECIMALS))
        self.search = self.search.after(seen)
        advice = self.search.advice()
        if advice.cores > reach:
            self.bounded = True
            self.search = replace(self.search, limit=max(reach - reach % _LIMIT_ROUNDING_CORES, self.held))
            advice = self.search.advice()
        self.cores = advice.cores
        if isinstance(advice, SettleCores):
            self.held = advice.cores
            return advice.reason
        self.held = max(self.held, advice.cores)
        return None
