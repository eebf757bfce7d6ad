"""What a site may set about memory bandwidth: the table ``[memory]`` of ``agent.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.agent.contention.resctrl import MOUNT
from slurm_soda.wire.errors import SodaError

_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Thresholds are ratios of the node's bandwidth; durations are seconds.

    Raises:
        SodaError: a value is out of range.
    """

    enabled: bool = False
    """Whether CPU jobs that fill the memory beside GPU jobs are held back (SODA, Section V-E)."""
    resctrl: str = str(MOUNT)
    """Where resctrl is mounted; the agent does not mount it."""
    node_bandwidth_gb: float = 0.0
    """The node's memory bandwidth in 10^9 bytes a second; 0: the highest seen so far."""
    socket_bandwidth_gb: float = 0.0
    """One socket's; 0: only the node's sum counts."""
    over_ratio: float = 0.75
    """Above this a CPU job is held back."""
    release_ratio: float = 0.6
    """Below this it is given more again."""
    watch_utilisation: bool = True
    """Where bandwidth cannot be measured: a fall of a GPU job's utilisation stands for it."""
    sample_s: float = 2.0
    """Between two samples while CPU and GPU jobs share the node. The kernel's counters move about once a second."""

    def __post_init__(self) -> None:
        if not 0 < self.release_ratio < self.over_ratio <= 1:
            raise SodaError(
                f"memory.release_ratio is {self.release_ratio:g} and memory.over_ratio {self.over_ratio:g}; expected"
                " 0 < release_ratio < over_ratio <= 1"
            )
        for name, value in (
            ("node_bandwidth_gb", self.node_bandwidth_gb),
            ("socket_bandwidth_gb", self.socket_bandwidth_gb),
        ):
            if not 0 <= value <= 1e6:
                raise SodaError(f"memory.{name} is {value:g}; expected GB a second from 0 (not known) to 1000000")
        if not self.resctrl.startswith("/"):
            raise SodaError(f"memory.resctrl is {self.resctrl!a}; expected an absolute path such as {MOUNT}")

    @property
    def node_bytes_per_s(self) -> float:
        """The node's bandwidth, 0 where it is not set."""
        return self.node_bandwidth_gb * _GIGA

    @property
    def socket_bytes_per_s(self) -> float:
        """One socket's bandwidth, 0 where it is not set."""
        return self.socket_bandwidth_gb * _GIGA
