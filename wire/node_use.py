"""What an agent tells for the site's monitoring: its GPUs now, what it limits, and what it costs itself.

sodad keeps the newest one of each node in memory and shows it to Prometheus; nothing is decided by it and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.wire.run_fields import MAX_GPUS, RunFields

COUNTS = (
    "jobs_with_fewer_cores",
    "cores_taken",
    "jobs_with_less_memory_bandwidth",
    "jobs_in_network_classes",
    "mps_daemons",
)
"""What is counted on a node. A reader ignores others, which a newer agent may tell; one that is missing is not known."""
MAX_COUNTS = 64
MAX_COUNT = 10_000_000
MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """One GPU that some job holds, as NVML read it last."""

    index: int
    """As Slurm counts it."""
    util_ratio: float
    memory_mib: float

    @classmethod
    def from_dict(cls, data: object) -> HeldGpu:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("GPU", data)
        return cls(read.whole("index", 0, 65_535), read.ratio("util_ratio"), read.number("memory_mib"))


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node at one instant."""

    gpus: tuple[HeldGpu, ...] = ()
    """Those that jobs hold and that could be read."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By a name of :data:`COUNTS`."""
    agent_cpu_s: float = 0.0
    """CPU time of the agent and of what it ran, since it started."""
    agent_memory_bytes: int = 0
    """Memory of the agent (resident)."""

    @classmethod
    def from_dict(cls, data: object) -> NodeUse:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("use of the node", data)
        counts = read.whole_map("counts", MAX_COUNTS, 0, MAX_COUNT)
        return cls(
            gpus=tuple(HeldGpu.from_dict(item) for item in read.objects("gpus", MAX_GPUS)),
            counts={name: count for name, count in counts.items() if name in COUNTS},
            agent_cpu_s=read.number("agent_cpu_s"),
            agent_memory_bytes=read.whole("agent_memory_bytes", 0, MAX_BYTES, 0),
        )
