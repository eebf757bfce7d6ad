"""How long jobs waited before a stage began and since, in scope and out of it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.scope.jobs_in_scope import scope_of
from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.sodactl import output

LEAST_JOBS = 30
"""Of fewer jobs, before or since, a mean says nothing."""
_LONGER_RATIO, _LONGER_S = 1.1, 60.0
"""Longer than a tenth and a minute is longer."""


@dataclass(frozen=True, slots=True)
class ComparedWaits:
    """Mean waits until the first start, in seconds."""

    inside: tuple[float, float] | None
    """Of jobs in scope before and since; ``None``: too few."""
    outside: tuple[float, float]

    @property
    def harmless(self) -> bool:
        """Jobs out of scope wait no longer than before."""
        before_s, since_s = self.outside
        return since_s <= _LONGER_RATIO * before_s + _LONGER_S

    @property
    def text(self) -> str:
        """For people."""
        told = f"mean wait out of scope {_pair(self.outside)}"
        return told if self.inside is None else f"{told}, in scope {_pair(self.inside)}"


def _pair(pair: tuple[float, float]) -> str:
    return f"{output.format_duration(pair[0])} before, {output.format_duration(pair[1])} since"


def compare_waits(session: Session, settings: ScopeSettings, since_s: float, now_s: float) -> ComparedWaits | None:
    """GPU jobs that were submitted since a stage began, against as long a time before; ``None`` where too few started, or
    the scope names QOS, which the store does not know of jobs.
    """
    if settings.qos or since_s >= now_s:
        return None
    scope = scope_of(settings)
    span_s = now_s - since_s
    rows = session.execute(
        select(Job.submit_s, Job.first_start_s, Job.partition, Job.account, Job.user).where(
            Job.gpus > 0, Job.submit_s >= since_s - span_s, Job.first_start_s.is_not(None)
        )
    )
    waits: dict[tuple[bool, bool], list[float]] = {}
    for submit_s, start_s, partition, account, user in rows:
        if start_s is None:
            continue
        outside = bool(scope.leaves_out(partition, account, "", user))
        waits.setdefault((outside, submit_s >= since_s), []).append(max(start_s - submit_s, 0.0))
    outside_pair = _means(waits, outside=True)
    return None if outside_pair is None else ComparedWaits(_means(waits, outside=False), outside_pair)


def _means(waits: dict[tuple[bool, bool], list[float]], *, outside: bool) -> tuple[float, float] | None:
    before, since = waits.get((outside, False), []), waits.get((outside, True), [])
    if min(len(before), len(since)) < LEAST_JOBS:
        return None
    return sum(before) / len(before), sum(since) / len(since)
