"""What an admin mends after Slurm's own daemons were killed; none of it needs sodad."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_soda.containers.cluster import ContainerCluster

HELD = "launch failed requeued held"


def resume_nodes(cluster: ContainerCluster, drained: Mapping[str, str]) -> list[str]:
    """Resume nodes that Slurm took out of service by itself; what was mended.

    slurmctld forgets what it did in its last 5 s. A job that it started then it may start once more on the same node:
    slurmd refuses, and slurmctld drains the node ("Duplicate jobid") and holds the job.
    """
    mended = []
    for node, reason in drained.items():
        if cluster.exec("root", ("scontrol", "update", f"NodeName={node}", "State=resume")).status == 0:
            mended.append(f"node drained: {reason}")
    return mended


def release_jobs(cluster: ContainerCluster, reasons: Mapping[str, str]) -> list[str]:
    """Release jobs that slurmctld holds because it could not start them; what was mended.

    Args:
        cluster: where.
        reasons: why a job waits, by its id.
    """
    held = [job for job, reason in reasons.items() if reason == HELD]
    return [f"job {HELD}" for job in held if cluster.exec("root", ("scontrol", "release", job)).status == 0]
