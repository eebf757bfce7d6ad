"""The fields of a waiting job's request that every reading of all jobs shows, in Slurm's words, to compare with what was
written.
"""

from __future__ import annotations

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts

REQUEST_FIELDS = ("TresPerNode", "TresPerJob", "TresPerTask", "ReqNodeList")


def shown_request(job: SlurmJob) -> dict[str, str]:
    """What GPUs a job asks for, and which nodes."""
    shown = (job.tres_per_node, job.tres_per_job, job.tres_per_task, job.req_node_names)
    return dict(zip(REQUEST_FIELDS, shown, strict=True))


def is_same_value(name: str, wrote: str, shown: str) -> bool:
    """Whether Slurm shows what was written: it writes lists of nodes shorter, and gives resources in another order."""
    if wrote == shown or not (wrote and shown):
        return wrote == shown
    if name == "ReqNodeList":
        try:
            return set(expand_hosts(wrote)) == set(expand_hosts(shown))
        except SlurmReplyError:
            return False
    return name.startswith("TresPer") and sorted(wrote.split(",")) == sorted(shown.split(","))
