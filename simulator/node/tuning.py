"""SODA's adaptive CPU allocation on simulated jobs: requests rewritten at submission, cores searched while jobs run."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace

from slurm_soda.policies.cores.measurement import Measurement
from slurm_soda.policies.cores.search import CoreSearch, Reason, Settle, Try
from slurm_soda.policies.cores.start import CoreRequest, NodeMeans, PastFit, start_cores

STEP_S = 60.0
"""How long utilisation is sampled with one number of cores (Section VI-H)."""
REMEMBERED = 20
"""Best fits kept of each owner, category and model, the newest; our choice."""
_DECIMALS = 3
"""Of a measured utilisation; equal cases then are searched once."""


class History:
    """Best fits that searches found, by owner; what the backend log of SODA is (Section V-A)."""

    def __init__(self) -> None:
        self._fits: dict[str, dict[tuple[str | None, str | None], deque[PastFit]]] = defaultdict(dict)
        self._known: dict[str, dict[tuple[CoreRequest, NodeMeans], int]] = defaultdict(dict)

    def add(self, owner: str, fit: PastFit) -> None:
        """A search has ended."""
        mine = self._fits[owner].setdefault((fit.category, fit.model), deque(maxlen=REMEMBERED))
        if len(mine) == REMEMBERED and all(fit == other for other in mine):
            return
        mine.append(fit)
        self._known[owner].clear()

    def start(self, owner: str, request: CoreRequest, node: NodeMeans) -> int:
        """N_start on each node, from what is known now."""
        known, key = self._known[owner], (request, node)
        if key not in known:
            past = [fit for fits in self._fits[owner].values() for fit in fits]
            known[key] = start_cores(request, past, node).cores
        return known[key]


@dataclass(slots=True)
class Tuned:
    """One running job's search; cores are those of each of its nodes."""

    search: CoreSearch
    cores: int
    """What it works with now."""
    held: int
    """What it has: until the search ends, nothing that it has tried is given away, so that it can go back."""
    bounded: bool = False
    """It could not get what the search wanted, so the end says nothing about the model."""
    settled: bool = False


class Searches:
    """The advice of :class:`CoreSearch`, looked up where the same was measured before (it takes milliseconds)."""

    def __init__(self) -> None:
        self._advice: dict[CoreSearch, Try | Settle] = {}

    def of(self, search: CoreSearch) -> Try | Settle:
        """What to do now."""
        advice = self._advice.get(search)
        if advice is None:
            advice = self._advice[search] = search.advice()
        return advice

    def begin(self, cores: int, limit: int) -> Tuned:
        """A job starts with so many cores on each node."""
        return Tuned(CoreSearch(cores, max(limit, cores)), cores, cores)

    def step(self, job: Tuned, utilisation_ratio: float, reach: int) -> Reason | None:
        """A step is over: note what was measured, and set the cores for the next one, or for good.

        ``reach`` is the most cores that each of the job's nodes can give it now, its own included. Returns why the search
        ended, if it did.
        """
        seen = Measurement(job.cores, round(min(utilisation_ratio, 1.0), _DECIMALS))
        job.search = job.search.after(seen)
        advice = self.of(job.search)
        if advice.cores > reach:
            job.bounded = True
            job.search = replace(job.search, limit=reach)
            advice = self.of(job.search)
        job.cores = advice.cores
        if isinstance(advice, Settle):
            job.held, job.settled = advice.cores, True
            return advice.reason
        job.held = max(job.held, advice.cores)
        return None
