"""A site with one partition on two nodes, for tests that make arrays of it."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.policies.arrays.kinds import NodeClass, Share
from slurm_soda.policies.arrays.layout import lay_out
from slurm_soda.slurm_ext.arranging import Arranger, Wanted
from slurm_soda.slurm_ext.cli.partitions import CliPartitions
from slurm_soda.slurm_ext.partitions import wanted_settings
from slurm_soda.slurm_ext.routes import ROUTES_NAME, RoutingRules
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol

A100 = NodeClass("a100", 4, 28)
NAMES = {"gpu_cpu", "gpu_small", "gpu_large", "gpu_cpu_lend", "gpu_small_lend", "gpu_large_lend"}


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scontrol, self.queue = Scontrol(), QueueOfPartitions()
        self.port = CliPartitions(self.scontrol)
        self.arranger = Arranger(self.queue, self.port, folder, lambda: 1000.0, "root")

    def wanted(self, cpu_cores: int = 8, large_nodes: int = 1, bases: tuple[str, ...] = ("gpu",)) -> Wanted:
        """Arrays of ``gpu``, and of other partitions with the same nodes, which nobody should have."""
        shares, present = {A100: Share(cpu_cores, large_nodes)}, self.port.partitions()
        table = lay_out(bases[0], 1, 0, [("n1", A100), ("n2", A100)], shares)
        for base in bases[1:]:
            table = table.merged(lay_out(base, 1, 0, [("n1", A100), ("n2", A100)], shares))
        settings = {part.name: wanted_settings(part, present[part.base]) for part in table}
        shown = {base: present[base].fields for base in bases}
        return Wanted(table, settings, shares, RoutingRules(), shown, self.folder / "soda-arrays.conf")

    @property
    def names(self) -> set[str]:
        return set(self.scontrol.partitions) - {"gpu"}

    @property
    def include(self) -> set[str]:
        lines = (self.folder / "soda-arrays.conf").read_text().splitlines()
        return {line.split()[0].removeprefix("PartitionName=") for line in lines if not line.startswith("#")}

    @property
    def routed(self) -> bool:
        return (self.folder / ROUTES_NAME).exists()
