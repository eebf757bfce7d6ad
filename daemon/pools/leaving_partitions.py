"""Jobs that wait in a partition of ours which goes: Slurm requeued them there after its waiting jobs had been moved away.

``sodactl pools apply`` and ``revert`` move what waits. A run that ends later, because its cores or its node are gone, comes
back to the list that it had: partitions that take no more jobs, where it would wait until somebody changes arrays again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurm_soda.daemon.pools.aborted_jobs import can_be_updated_alone, waits_after_slurm_requeue
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord
from slurm_soda.slurm_ext.write.job_changes import MIN_RESTART_GAP_S, JobChange

RemainingPartitions = Mapping[int, str]
"""The list of partitions that is left, by job."""


def jobs_in_leaving_partitions(record: PoolsRecord | None, jobs: Mapping[int, SlurmJob]) -> dict[int, str]:
    """Waiting jobs that list a partition which goes, and what they shall list instead: the others, or else their base.

    None while arrays are being changed: whoever does that moves them.
    """
    if record is None or record.phase == "applying":
        return {}
    leaving, found = frozenset(record.leaving), {}
    known: dict[str, str] = {}
    for job_id, job in jobs.items() if leaving else ():
        if job.state != "PENDING":
            continue
        if job.partition not in known:
            known[job.partition] = _remaining_partitions(job.partition, leaving, record.base_of)
        if known[job.partition] != job.partition and can_be_updated_alone(job):
            found[job_id] = known[job.partition]
    return found


def _remaining_partitions(partitions: str, leaving: frozenset[str], base_of: Mapping[str, str]) -> str:
    names = partitions.split(",")
    going = [name for name in names if name in leaving]
    staying = [name for name in names if name not in leaving]
    if going and not staying:
        staying = list(dict.fromkeys(base for name in going if (base := base_of.get(name))))
    return ",".join(staying) or partitions


def leaving_partition_changes(
    jobs: Mapping[int, SlurmJob], stays: RemainingPartitions, aborts: Callable[[int], int], refused: Callable[[int,
    str], bool],
    now_s: float,
) -> list[JobChange]:  # fmt: skip
    """What moves strays; one that was aborted need not wait out Slurm's two minutes either.

    Args:
        stays: of :func:`jobs_in_leaving_partitions`.
        aborts: how often a job gave back what it had borrowed.
        refused: whether Slurm refused a list for a job lately.
    """
    changes = []
    for job_id, partitions in stays.items():
        job, new = jobs[job_id], {"Partition": partitions}
        if refused(job_id, partitions):
            continue
        if aborts(job_id) and waits_after_slurm_requeue(job, now_s):
            if now_s < job.submit_s + MIN_RESTART_GAP_S:
                continue
            new["StartTime"] = "now"
        reason = "partitions in which it waits are taken back"
        changes.append(JobChange(job_id, "rewrite", new, {"Partition": job.partition}, reason))
    return changes
