"""Changes of a waiting job's CPUs, from what Slurm shows of its request."""

from __future__ import annotations

from slurm_soda.policies.actions import RequestedCpus, ResizeRequest
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.write.job_changes import JobChange, resize_change


def cpu_change(request: JobRequest, cpus_per_task: int, memory_mib: int, reason: str) -> JobChange:
    """Give every task of a waiting job so many CPUs.

    Args:
        request: what it asks for now; its tasks must be even (:attr:`.JobRequest.even_tasks`).
        cpus_per_task: the new number.
        memory_mib: memory on each node that shall hold from now on; 0 leaves the request for memory as it is.
        reason: for people.
    """
    per_node = request.even_tasks_per_node
    return resize_change(
        ResizeRequest(
            job_id=request.job_id,
            tasks_per_node=per_node,
            cpus_per_task=cpus_per_task,
            cpus=cpus_per_task * per_node * request.nodes,
            least_cpus_per_node=cpus_per_task * per_node,
            before=RequestedCpus(
                request.cpus,
                request.cpus_per_task,
                request.least_cpus_per_node,
                request.memory_per_cpu_mib,
                request.memory_per_node_mib,
            ),
            reason=reason,
            memory_per_node_mib=memory_mib or None,
        )
    )
