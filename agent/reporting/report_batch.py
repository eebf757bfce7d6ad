"""What one report tells of the runs of a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.wire.gpu_use import RunGpuUse
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, ReportedProgress


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """News for one report, and which revisions they are."""

    opened: tuple[JobOpened, ...] = ()
    closed: tuple[JobClosed, ...] = ()
    usage: tuple[JobUsage, ...] = ()
    progress: tuple[ReportedProgress, ...] = ()
    gpu_uses: tuple[RunGpuUse, ...] = ()
    revisions: dict[RunKey, int] = field(default_factory=dict)
    events: frozenset[tuple[RunKey, str]] = frozenset()
    """Which openings and closings are among the news."""
