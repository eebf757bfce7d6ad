"""Instances that leave: their router is told, and once they answer nothing more they are requeued.

What to do next about one is a pure function of what the store knows and of what Slurm and the router show now. The run that
leaves is named by its restart count, so that a daemon that died anywhere goes on without doing anything twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_tasks import RUNNING_STATES
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.wire.services.router_report import ReportedInstance

DrainPhase = Literal["asked", "requeued", "over"]

RETRY_AFTER_S = 1.0
"""Pause after Slurm refused a requeue; doubles up to :data:`MAX_RETRY_S`."""
MAX_RETRY_S = 60.0


@dataclass(slots=True)
class Drain:
    """One instance that leaves, as the store keeps it (:class:`slurm_soda.daemon.store.tables.services.ServiceDrainRow`)."""

    job_id: int
    submit_s: float
    restart: int
    key: ServiceKey
    why: str
    asked_s: float
    asked_steady_s: float
    deadline_s: float
    """When it is requeued whatever it still answers; by the steady clock."""
    by_owner: bool = False
    phase: DrainPhase = "asked"
    ended_s: float | None = None
    end: str = ""
    pk: int = 0
    failures: int = 0
    """Refusals in a row, in this daemon epoch."""
    retry_s: float = float("-inf")

    def note_refusal(self, steady_s: float) -> None:
        """Slurm refused the requeue."""
        self.failures += 1
        self.retry_s = steady_s + min(RETRY_AFTER_S * 2.0 ** min(self.failures - 1, 30), MAX_RETRY_S)


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """What Slurm and the router show of it, and what sodad may do."""

    job: SlurmJob | None
    reported: ReportedInstance | None
    """As its router told since it was told to drain it; ``None``: it told nothing of it."""
    others_ready: int
    """Instances of the service that answer, without those that leave."""
    least: int
    """Instances that the service shall have at least."""
    steady_s: float
    acts: bool
    """sodad enforces."""
    replaceable: bool = False
    """Another instance starts, or may."""


@dataclass(frozen=True, slots=True)
class DrainDecision:
    """What to record, and whether it is requeued now."""

    phase: DrainPhase
    end: str = ""
    requeue: bool = False


def decide_drain(drain: Drain, seen: SeenInstance) -> DrainDecision:
    """The next step of one that is not over."""
    job = seen.job
    if job is None or job.submit_s < drain.submit_s or job.restarts != drain.restart:
        return DrainDecision("over", "it left")
    if job.state == "COMPLETING":
        return DrainDecision(drain.phase)
    if job.state not in RUNNING_STATES:
        return DrainDecision("over", "it left" if job.state == "PENDING" else f"its job ended: {job.state}")
    return _running(drain, seen)


def _running(drain: Drain, seen: SeenInstance) -> DrainDecision:
    if not seen.acts:
        return DrainDecision("over", "it stays: sodad does not enforce now")
    state = "" if seen.reported is None else seen.reported.state
    if state in ("", "ready") and seen.others_ready < min(seen.least, 1):  # its router keeps it serving too
        if not drain.by_owner:
            return DrainDecision("over", "it stays: no other instance answers")
        if seen.replaceable:
            return DrainDecision(drain.phase)
    done = seen.reported is not None and (state == "failed" or (state == "draining" and not seen.reported.queries))
    return DrainDecision(drain.phase, requeue=done or seen.steady_s >= drain.deadline_s)
