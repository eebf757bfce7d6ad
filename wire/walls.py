"""What an agent tells of its node's hooks: whether they can keep others off shared GPUs, and which jobs they know."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.wire.run_fields import RunFields

MAX_RECORDED_JOBS = 1024
"""Jobs with GPUs on one node."""
MAX_FAULT_LENGTH = 300


@dataclass(frozen=True, slots=True)
class NodeWalls:
    """The hooks of a node, as far as sharing needs them (docs/design/0013)."""

    fault: str = ""
    """What is wrong, and the remedy; empty: all parts are there and root's."""
    recorded: tuple[int, ...] = ()
    """Jobs with GPUs whose prolog wrote a record: nobody else can be a host."""
    guests: tuple[int, ...] | None = None
    """Guests whose prolog wrote a record; ``None``: an older agent does not tell."""

    @classmethod
    def from_dict(cls, data: object) -> NodeWalls:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("walls", data)
        return cls(
            fault=read.text("fault", MAX_FAULT_LENGTH, ""),
            recorded=read.wholes("recorded", MAX_RECORDED_JOBS, 1, 0xFFFF_FFFF),
            guests=read.wholes("guests", MAX_RECORDED_JOBS, 1, 0xFFFF_FFFF) if _tells_guests(data) else None,
        )


def _tells_guests(data: object) -> bool:
    return isinstance(data, dict) and data.get("guests") is not None
