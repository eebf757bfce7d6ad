"""Preemptions that have begun, and that only a sodad finishes."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.daemon.preemption.state_machine import LEAVING_PHASES
from slurm_soda.daemon.store.tables.scheduling import Preemption
from slurm_soda.sodactl import output


def describe_unfinished_preemptions(preemptions: Sequence[Preemption], *, alive: bool) -> str:
    """What nobody finishes while no sodad is alive, and what an admin may do; empty if there is nothing."""
    job_ids = [entry.job_id for entry in preemptions if entry.phase in LEAVING_PHASES]
    if alive or not job_ids:
        return ""
    return (
        f"no sodad finishes the preemption of {output.format_first(job_ids)}: a job that has ended after its "
        "checkpoint needs `scontrol requeue JOB` (or `sodactl release-lifts`, which systemd runs), before Slurm forgets it "
        "(MinJobAge); of an array JOB is ARRAY_TASK, such as 14_2: 14 alone is all its tasks"
    )
