"""What OJPP must know of jobs, from what is known of their kinds: memory, slowdowns, and what their owners allow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Protocol, runtime_checkable

import numpy as np

from slurm_soda.policies.sharing.arithmetic.memory_demand import MemoryDemand
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.ojpp.packing import PackingJobs
from slurm_soda.policies.sharing.snapshot import KindEstimates, SharingSnapshot
from slurm_soda.policies.snapshot import FloatColumn, IntColumn, JobState

NEVER_TOGETHER = 1e6
"""Slowdown of kinds that must not meet: beyond every bound of a job."""
_BOUND = NEVER_TOGETHER / 2


@runtime_checkable
class MemoryDemandSource(Protocol):
    """Somebody who knows how the memory of a kind comes and goes, not only its peak."""

    def demand(self, kind: JobKind, device_mib: float) -> MemoryDemand | None:
        """In shares of a GPU with so much memory; None where nobody knows."""
        ...


class JobDemands:
    """The jobs of a snapshot as :class:`.packing.Packing` takes them, row for row.

    A job that nobody knows, that accumulates gradients, or whose owner does not share, never shares: it has the last
    row of the table of slowdowns, and meets nobody. So do kinds of which nobody can say that they fit into a GPU together:
    there must be a demand or a footprint of both, or somebody who saw that they fit. The share of computing power is 0:
    measured slowdowns say more than utilisation. Memory counts by its peak, since an allocation that does not fit fails on a
    real GPU; ``opportunistic`` counts it as it comes and goes, where somebody knows that.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        interference_view: InterferenceView,
        caution: float = 0.0,
        *,
        opportunistic: bool = False,
    ) -> None:
        """``caution``: slowdowns count as so many of their errors worse than known."""
        self._known, self._interference_view, self._caution = snapshot.known, interference_view, caution
        sharing, jobs = snapshot.sharing, snapshot.jobs
        self.kinds: tuple[JobKind, ...] = sharing.kinds
        memory_mib = float(snapshot.devices.memory_mib.min(initial=np.inf))
        demands = [self._demand(kind, memory_mib, opportunistic) for kind in self.kinds]
        self._sure = np.array([demand is not None for demand in demands] + [False])
        unknown_model = len(self.kinds)
        model = _models(snapshot, unknown_model)
        known = [*(demand or MemoryDemand(0.0) for demand in demands), MemoryDemand(1.0)]
        base, extra, probability = np.array([(one.base, one.extra, one.probability) for one in known])[model].T
        bound = np.minimum(sharing.max_slowdown - 1.0, _BOUND)
        self.jobs = PackingJobs(
            np.maximum(jobs.gpus, 1), np.zeros(len(jobs)), base, extra, probability, model, np.maximum(bound, 0.0)
        )
        self.never_shares = model == unknown_model
        self.slowdown = self._table(model)

    def fit(self, joins: int, there: Sequence[int]) -> bool:
        """Whether a job fits into the memory of a GPU beside these, as far as :class:`.packing.Packing` cannot tell."""
        models = self.jobs.model
        rows = [int(models[joins]), *(int(models[row]) for row in there)]
        if not there:
            return True
        if len(self.kinds) in rows:
            return False
        if all(self._sure[rows]):
            return True
        return self._known.fits([self.kinds[row] for row in rows]) is True

    def _demand(self, kind: JobKind, memory_mib: float, opportunistic: bool) -> MemoryDemand | None:
        if not np.isfinite(memory_mib) or memory_mib <= 0:
            return None
        if opportunistic and isinstance(self._known, MemoryDemandSource):
            demand = self._known.demand(kind, memory_mib)
            if demand is not None:
                return demand
        return _peak(self._known, kind, memory_mib)

    def _table(self, model: IntColumn) -> FloatColumn:
        """Slowdowns of kinds that are there; O(kinds^2)."""
        table = np.full((len(self.kinds) + 1,) * 2, NEVER_TOGETHER)
        there = np.unique(model[~self.never_shares]).tolist()
        for mine, other in product(there, there):
            pair = (self.kinds[mine], self.kinds[other])
            fits = self._known.fits(pair)
            if fits is False or (fits is None and not (self._sure[mine] and self._sure[other])):
                continue
            xi = self._interference_view.xi(pair[0], pair[1:])
            if xi is not None:
                table[mine, other] = min(max(xi.plus_errors(self._caution) - 1.0, 0.0), NEVER_TOGETHER)
        mutual: FloatColumn = np.maximum(table, np.where(table.T == NEVER_TOGETHER, NEVER_TOGETHER, 0.0))
        return mutual


def _models(snapshot: SharingSnapshot, unknown_model: int) -> IntColumn:
    sharing, state = snapshot.sharing, snapshot.jobs.state
    accumulates = (state == JobState.RUNNING) & (sharing.sub_batch > 0) & (sharing.sub_batch != sharing.batch)
    unknown = (sharing.kind < 0) | ~sharing.shares | accumulates
    return np.where(unknown, unknown_model, sharing.kind).astype(np.int64)


def _peak(known: KindEstimates, kind: JobKind, memory_mib: float) -> MemoryDemand | None:
    """The most memory that a kind holds, as a demand that never varies."""
    footprint, profile = known.footprint(kind), known.profile(kind)
    if footprint is not None:
        peak_mib = footprint.mib(kind.batch)
    elif profile is not None and profile.memory_mib is not None:
        peak_mib = profile.memory_mib.value
    else:
        return None
    return MemoryDemand(min(max(peak_mib, 0.0) / memory_mib, 1.0))
