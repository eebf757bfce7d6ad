"""Changes of a waiting job's CPUs, in the one form that Slurm follows (measured on 24.11, ``docs/policies/cpu-fit.md``).

``NumCPUs`` alone or ``CPUsPerTask`` alone changes nothing real; both together are followed upwards; downwards only with
``MinCPUsNode``, which otherwise stays at what was submitted and brings the old CPUs back. Memory by CPU would fall with the
CPUs, so a smaller request fixes what the job would have had as ``MinMemoryNode``.
"""

from __future__ import annotations

from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.write.job_changes import JobChange


def cpu_change(request: JobRequest, cpus_per_task: int, memory_mib: int, reason: str) -> JobChange:
    """Give every task of a waiting job so many CPUs.

    Args:
        request: what it asks for now; its tasks must be even (:attr:`.JobRequest.even_tasks`).
        cpus_per_task: the new number.
        memory_mib: memory on each node that shall hold from now on; 0 leaves the request for memory as it is.
        reason: for people.
    """
    per_node = request.even_tasks_per_node
    new = _cpu_fields(cpus_per_task, cpus_per_task * per_node * request.nodes, cpus_per_task * per_node)
    old = _cpu_fields(request.cpus_per_task, request.cpus, request.least_cpus_per_node)
    if memory_mib:
        new["MinMemoryNode"] = str(memory_mib)
        old |= _memory_fields(request)
    return JobChange(request.job_id, "rewrite", new, old, reason)


def _cpu_fields(cpus_per_task: int, cpus: int, per_node: int) -> dict[str, str]:
    return {"CPUsPerTask": str(cpus_per_task), "NumCPUs": str(cpus), "MinCPUsNode": str(per_node)}


def _memory_fields(request: JobRequest) -> dict[str, str]:
    if request.memory_per_cpu_mib:
        return {"MinMemoryCPU": str(request.memory_per_cpu_mib)}
    return {"MinMemoryNode": str(request.memory_per_node_mib)} if request.memory_per_node_mib else {}
