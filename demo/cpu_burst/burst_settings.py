"""What a run of the burst is asked to do, and the daemon's configuration that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_soda.demo.cpu_burst.burst_figures import BurstNode

NODES = 2
NODE = BurstNode(cores=28, gpus=4)
CPU_CORES, LARGE_NODES = 8, 0
"""The pools' shares. A GPU job of eleven cores fits beside three smaller ones in the 20 cores that are left on each
node; two nodes are too few to divide them between small and large jobs."""
POLICY = "drf"
"""Decides inside each pool: the paper's choice (Section V-C)."""


@dataclass(frozen=True, slots=True)
class BurstSettings:
    """One invocation of the burst."""

    seed: int = 1
    scale: float = 1.0
    """Part of the jobs, and of the time in which they arrive."""
    out: Path = Path("build/demo")
    keep: bool = False
    """Leave the cluster up afterwards."""
    cluster: str = "demo"
    max_aborts: int = 3


def daemon_configuration(settings: BurstSettings) -> str:
    """The configuration file of sodad. The demo's hours pass in seconds, so its own intervals are shorter than a site's."""
    return "\n".join(
        [
            'mode = "observe"',
            "[policy]",
            f'name = "{POLICY}"',
            "[pools]",
            f"max_aborts = {settings.max_aborts}",
            "[cycle]",
            "interval_s = 1.0",
            "[change_limits]",
            "min_change_interval_s = 0.2",
            "",
        ]
    )
