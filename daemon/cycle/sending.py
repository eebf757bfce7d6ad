"""Sending changes to Slurm and telling a refusal from an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurm_soda.daemon.preemption.state_machine import waits_for_begin_time
from slurm_soda.daemon.store.audit_log import ChangeOutcome, UnsettledChange
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.slurm_ext.write.sending import send_changes

RecordedChange = tuple[int, JobChange]
"""Key of a recorded change, and the change."""


_NOT_IN_JOB_LIST = frozenset({"MinCPUsNode", "MinMemoryNode", "MinMemoryCPU"})


def send_recorded_changes(
    client: SlurmClient, changes: Sequence[RecordedChange], check: Callable[[], None]
) -> Iterator[ChangeOutcome]:
    """Send recorded changes in order; updates that follow each other share a process, and ``check`` precedes each.

    Never raises for what Slurm refuses. ``sent`` says that Slurm did not answer: the next Slurm state will tell.
    """
    results = send_changes(client, [change for _, change in changes], check)
    for (action_id, _), result in zip(changes, results, strict=True):
        if not result.error:
            yield ChangeOutcome(action_id, "done")
        else:
            yield ChangeOutcome(action_id, "failed" if result.answered else "sent", result.error)


def resolve_outcome(
    open_change: UnsettledChange, job: SlurmJob | None, site_factor: int, now_s: float
) -> ChangeOutcome | None:
    """What became of a change whose outcome nobody recorded, judged by what Slurm shows after it.

    Args:
        open_change: the change.
        job: the job now; ``None`` if Slurm no longer lists it.
        site_factor: the job's SiteFactor now.
        now_s: the instant of the reading.

    Returns:
        ``None`` while it cannot be told, because the job is leaving its nodes.
    """
    if job is None:
        return ChangeOutcome(open_change.action_id, "void", "the job is gone")
    if open_change.change.kind == "requeue" and job.state == "COMPLETING" and not _moved_on(open_change, job):
        return None
    if _took_effect(open_change, job, site_factor, now_s):
        return ChangeOutcome(open_change.action_id, "done")
    return ChangeOutcome(open_change.action_id, "void", "Slurm does not show it; what is still wanted is sent again")


def _took_effect(open_change: UnsettledChange, job: SlurmJob, site_factor: int, now_s: float) -> bool:
    change = open_change.change
    if change.kind == "requeue":
        return _moved_on(open_change, job)
    if change.kind == "signal":
        return _moved_on(open_change, job) or job.state not in ("RUNNING", "SUSPENDED")
    if "StartTime" in change.new:
        return not (job.state == "PENDING" and waits_for_begin_time(job, now_s))
    present = {
        "SiteFactor": str(site_factor),
        "NumCPUs": str(job.cpus),
        "CPUsPerTask": str(job.cpus_per_task),
        "TresPerNode": job.tres_per_node,
        "ReqNodeList": job.req_node_names,
        "Partition": job.partition,
    }
    # A reading of all jobs does not tell of least CPUs and memory a node; they went with the CPUs.
    seen = {name: value for name, value in change.new.items() if name not in _NOT_IN_JOB_LIST}
    return all(present.get(name) == value for name, value in seen.items())


def _moved_on(open_change: UnsettledChange, job: SlurmJob) -> bool:
    """The run that the change was about is over and followed by another."""
    return open_change.restart is not None and job.restarts > open_change.restart
