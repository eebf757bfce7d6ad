"""Which jobs of a cluster in containers have a lift."""

from __future__ import annotations

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.read.sprio import SPRIO_COMMAND, parse_sprio_lines


def find_lifted_jobs(cluster: ContainerCluster) -> set[int]:
    """Waiting jobs with a SiteFactor, as Slurm shows them.

    Raises:
        ClusterError: sprio failed.
        SlurmReplyError: its answer cannot be read.
    """
    shown = cluster.exec("root", SPRIO_COMMAND).check().stdout
    return {job_id for job_id, factor in parse_sprio_lines(shown).items() if factor}
