"""A site with one partition on two nodes, for tests that make pools of it."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import plan_pool_partitions
from slurm_soda.slurm_ext.pools.partition_settings import pool_partition_settings
from slurm_soda.slurm_ext.pools.pool_installer import PoolInstaller, WantedPools
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME, RoutingRules
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.slurm_ext.write.sending import SendRecorded, apply_changes
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol

A100 = NodeClass("a100", 4, 28)
NAMES = {"gpu_cpu", "gpu_small", "gpu_large", "gpu_cpu_lend", "gpu_small_lend", "gpu_large_lend"}


def unrecorded(queue: QueueOfPartitions) -> SendRecorded:
    """Moves jobs, and records nothing."""
    return lambda changes, _jobs: apply_changes(queue, changes)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scontrol, self.queue = Scontrol(), QueueOfPartitions()
        self.port = ScontrolPartitions(self.scontrol)
        self.arranger = PoolInstaller(self.queue, self.port, folder, lambda: 1000.0, "root", unrecorded(self.queue))

    def wanted(self, cpu_cores: int = 8, large_nodes: int = 1, bases: tuple[str, ...] = ("gpu",)) -> WantedPools:
        """Pools of ``gpu``, and of other partitions with the same nodes, which nobody should have."""
        shares, present = {A100: PoolShare(cpu_cores, large_nodes)}, self.port.partitions()
        table = plan_pool_partitions(bases[0], 1, 0, [("n1", A100), ("n2", A100)], shares)
        for base in bases[1:]:
            table = table.merged(plan_pool_partitions(base, 1, 0, [("n1", A100), ("n2", A100)], shares))
        settings = {part.name: pool_partition_settings(part, present[part.base]) for part in table}
        shown = {base: present[base].fields for base in bases}
        return WantedPools(table, settings, shares, RoutingRules(), shown, self.folder / "soda-pools.conf")

    @property
    def names(self) -> set[str]:
        return set(self.scontrol.partitions) - {"gpu"}

    @property
    def include(self) -> set[str]:
        lines = (self.folder / "soda-pools.conf").read_text().splitlines()
        return {line.split()[0].removeprefix("PartitionName=") for line in lines if not line.startswith("#")}

    @property
    def routed(self) -> bool:
        return (self.folder / ROUTES_NAME).exists()
