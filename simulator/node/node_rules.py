"""What is true of the nodes of a simulation, and what agents do on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_soda.simulator.errors import SimulatorError

CORE_ALLOCATIONS = ("asked", "adaptive")
"""``asked``: jobs keep the cores they ask for; ``adaptive``: SODA's allocator rewrites requests and tunes running jobs."""

ELIMINATED_CONTENTION = ("nothing", "memory", "all")
"""Contention that agents remove: none, that for memory bandwidth (as KELP and CODA do), or the network's too (SODA)."""


@dataclass(frozen=True, slots=True)
class NodeRules:
    """How nodes behave; without any, a job runs as its trace says, whatever cores and neighbours it has.

    Raises:
        SimulatorError: a word that means nothing.
    """

    cores: str = "asked"
    """One of :data:`CORE_ALLOCATIONS`."""
    eliminates: str = "nothing"
    """One of :data:`ELIMINATED_CONTENTION`."""
    curves: Path | None = None
    """A site's own curves (:func:`~slurm_soda.simulator.speed.core_speed.load_core_curves`); None: the built-in ones."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("cores", self.cores, CORE_ALLOCATIONS),
            ("eliminates", self.eliminates, ELIMINATED_CONTENTION),
        ):
            if value not in known:
                raise SimulatorError(f"{name} = {value!r} is not allowed; choose one of: {', '.join(known)}")

    @property
    def adaptive(self) -> bool:
        """Whether cores are adapted."""
        return self.cores == "adaptive"

    @property
    def memory_is_safe(self) -> bool:
        """Whether training is shielded from contention for memory bandwidth."""
        return self.eliminates != "nothing"

    @property
    def network_is_safe(self) -> bool:
        """Whether training is shielded from contention for the network."""
        return self.eliminates == "all"
