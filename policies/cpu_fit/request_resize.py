"""The request that a waiting job should have: N_start, put in terms of its tasks and its memory (SODA, Section V-B)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, FitHistory, NodeCapacity, StartCores, start_from
from slurm_soda.policies.errors import PolicyError


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A waiting job's request, on each of its nodes.

    Raises:
        PolicyError: no task, or no core for each.
    """

    request: CoreRequest
    tasks: int
    cores: int
    """What it asks for now."""

    def __post_init__(self) -> None:
        if not 1 <= self.tasks <= self.cores:
            raise PolicyError(f"a job has at least one task and a core for each, not {self.tasks} and {self.cores}")


@dataclass(frozen=True, slots=True)
class ResizedRequest:
    """What to ask for instead, on each node."""

    cores_per_task: int
    cores: int
    memory_per_core_mib: int
    """With so much for each core the job keeps the memory that it would have had in all, to a MiB a core; 0: the request for
    memory stays as it is."""
    start: StartCores
    """Where the number comes from."""


def resize_request(job: WaitingRequest, history: FitHistory, node: NodeCapacity) -> ResizedRequest:
    """N_start for a waiting job, fewer or more cores than it asks for.

    Cores are equal for all tasks: rounded up, or down where the node or its memory has no more. Memory is right either way:
    with more cores, memory by core grows with them, within the node's; with fewer, the job keeps what it would have had in
    all, and as many cores as the site wants paid for it (MaxMemPerCPU).

    Args:
        job: its request.
        history: of its owner.
        node: the smallest node that it may run on.
    """
    start = start_from(job.request, history, node)
    cores = _round_to_tasks(start.cores, job.tasks, _max_cores(job.request, node))
    if cores >= job.cores or not job.request.memory_per_core_mib:
        return ResizedRequest(cores // job.tasks, cores, 0, start)
    whole = replace(job.request, memory_mib=job.cores * job.request.memory_per_core_mib, memory_per_core_mib=0)
    start = start_from(whole, history, node)
    cores = min(_round_to_tasks(start.cores, job.tasks, node.cores), job.cores)
    # Rounded down: a MiB more might be one that no node has.
    each_mib = whole.memory_mib // cores if cores < job.cores else 0
    return ResizedRequest(cores // job.tasks, cores, each_mib, start)


def _max_cores(request: CoreRequest, node: NodeCapacity) -> int:
    if not request.memory_per_core_mib or not node.memory_mib:
        return node.cores
    return min(node.cores, node.memory_mib // request.memory_per_core_mib)


def _round_to_tasks(cores: int, tasks: int, most: int) -> int:
    """The next multiple of ``tasks`` above, or below where that is too many; one each at least."""
    wanted = -(-cores // tasks) * tasks
    return max(wanted if wanted <= most else most // tasks * tasks, tasks)
