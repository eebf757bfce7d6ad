"""What a site may set about the network of its nodes: the table ``[network]`` of ``agent.toml``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_soda.policies.node_limits.link_shares import GPU_PERCENT
from slurm_soda.wire.errors import SodaError

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,14}")
"""What Linux takes for an interface and nft for a plain string: at most 15 characters."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Shares are percentages of the link; durations are seconds.

    Raises:
        SodaError: a value is out of range.
    """

    gpu_interface: str = ""
    """The interface that GPU jobs on several nodes talk over; empty: the network is left alone."""
    cpu_interface: str = ""
    """The interface meant for CPU jobs, where the node has two networks; empty: they share the first one."""
    link_mbit: float = 0.0
    """Speed of ``gpu_interface`` in Mbit a second; 0: as the driver says (``/sys/class/net/IF/speed``)."""
    gpu_percent: float = GPU_PERCENT
    """Kept for GPU jobs while one of several nodes is here (SODA, Section V-E); the rest is the CPU jobs'."""
    cpu_may_borrow: bool = True
    """CPU jobs may use more while the link is not full. False where GPU jobs bypass the kernel (RDMA), unseen by it."""
    limit_received: bool = True
    """Also drop what CPU jobs receive beyond their part, while the link's incoming side is full."""
    refresh_s: float = 2.0
    """Between two searches for new processes of the jobs."""

    def __post_init__(self) -> None:
        for key, name in (("gpu_interface", self.gpu_interface), ("cpu_interface", self.cpu_interface)):
            if name and not _INTERFACE.fullmatch(name):
                raise SodaError(f"network.{key} is {name!a}; expected the name of an interface, such as eth0")
        if self.cpu_interface and not self.gpu_interface:
            raise SodaError(f"network.cpu_interface is {self.cpu_interface!a}, but network.gpu_interface is not set")
        if not 10 <= self.gpu_percent <= 95:
            raise SodaError(f"network.gpu_percent is {self.gpu_percent:g}; expected a number from 10 to 95")
        if self.link_mbit and not 1 <= self.link_mbit <= 10_000_000:
            raise SodaError(
                f"network.link_mbit is {self.link_mbit:g}; expected 0 (as the driver says)"
                " or a number from 1 to 10000000"
            )

    @property
    def enabled(self) -> bool:
        """The network is shared out at all."""
        return bool(self.gpu_interface)

    @property
    def separate(self) -> bool:
        """CPU jobs have an interface of their own."""
        return self.cpu_interface not in ("", self.gpu_interface)
