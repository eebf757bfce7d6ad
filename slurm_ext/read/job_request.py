"""What a waiting job asks for, in the detail that a change of its CPUs needs, and what a partition allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One waiting job's request, as Slurm has it now."""

    job_id: int
    nodes: int
    most_nodes: int
    """0: Slurm may take more than :attr:`nodes`."""
    tasks: int
    tasks_per_node: int
    """0: not said."""
    cpus: int
    """Over all nodes."""
    cpus_per_task: int
    least_cpus_per_node: int
    """``--mincpus``, or what Slurm made of the tasks; it stays when the CPUs of a job are changed alone."""
    memory_per_cpu_mib: int = 0
    """By ``--mem-per-cpu`` or the site's default; 0: the request is by node or by GPU."""
    memory_per_node_mib: int = 0
    peculiar: str = ""
    """Why its CPUs must not be changed, in Slurm's words; empty: they may."""
    unshareable: str = ""
    """What ties it to GPUs of its own, in Slurm's words, or takes the place of a guest's record; empty: nothing."""

    @property
    def even_tasks_per_node(self) -> int:
        """Tasks on each node, 0 where nobody can say before the job starts."""
        fixed = self.most_nodes == self.nodes or self.tasks == 1
        if self.tasks_per_node and self.tasks_per_node * self.nodes == self.tasks:
            return self.tasks_per_node if fixed else 0
        return self.tasks // self.nodes if fixed and self.tasks in (self.nodes, self.nodes * self.tasks) else 0


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What bounds the CPUs of a job in one partition; 0: nothing does."""

    name: str
    most_cpus_per_node: int = 0
    """MaxCPUsPerNode: a job that asks for more waits for ever."""
    most_memory_per_cpu_mib: int = 0
    """MaxMemPerCPU, the partition's or else the cluster's: Slurm gives a job with more memory more CPUs."""
