"""What an agent tells of its node's memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.wire.run_fields import RunFields

_MOST_GB_S = 1e6


@dataclass(frozen=True, slots=True)
class NodeBandwidth:
    """As it was measured over the last samples, in 10^9 bytes a second."""

    used_gb_s: float
    """Of all processes of the node."""
    contended_gb_s: float
    """From here on CPU jobs are held back for GPU jobs beside them (``[memory]`` of ``agent.toml``)."""

    @property
    def free_gb_s(self) -> float:
        """What is left until then."""
        return max(self.contended_gb_s - self.used_gb_s, 0.0)

    @classmethod
    def from_dict(cls, data: object) -> NodeBandwidth:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("bandwidth", data)
        return cls(read.number("used_gb_s", 0, _MOST_GB_S), read.number("contended_gb_s", 0, _MOST_GB_S))
