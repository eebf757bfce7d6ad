"""Preemptions that have begun, and that only a sodad finishes."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.daemon.preemption.state_machine import LEAVING_PHASES
from slurm_soda.daemon.store.tables.scheduling import Preemption

_MAX_SHOWN = 5


def describe_unfinished_preemptions(preemptions: Sequence[Preemption], *, alive: bool) -> str:
    """What nobody finishes while no sodad is alive, and what an admin may do; empty if there is nothing."""
    job_ids = [entry.job_id for entry in preemptions if entry.phase in LEAVING_PHASES]
    if alive or not job_ids:
        return ""
    more = f" and {len(job_ids) - _MAX_SHOWN} more" if len(job_ids) > _MAX_SHOWN else ""
    listed = ", ".join(map(str, job_ids[:_MAX_SHOWN])) + more
    return (
        f"no sodad finishes the preemption of {listed}: a job that has ended after its checkpoint needs "
        "`scontrol requeue JOB` (or `sodactl release-lifts`, which systemd runs), before Slurm forgets it (MinJobAge)"
    )
