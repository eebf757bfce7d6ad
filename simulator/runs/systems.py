"""Whole systems by name: a policy, and what agents do on the nodes, as SODA's evaluation compares them."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.errors import no_such
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.services.service_set import PEAK, PLACED


@dataclass(frozen=True, slots=True)
class NamedSystem:
    """One of them (SODA, Section VI-A)."""

    name: str
    policy: str
    rules: NodeRules
    summary: str
    serves: str = PEAK
    """How it serves, where services are simulated besides: one of :data:`.service_set.SERVING_MODES`."""


SYSTEMS: tuple[NamedSystem, ...] = (
    NamedSystem("kelp-fifo", "kelp-fifo", NodeRules("asked", "memory"),
           "first in, first out; jobs keep the cores they ask for; KELP removes contention for memory"),
    NamedSystem("kelp-drf", "kelp-drf", NodeRules("asked", "memory"), "the same, with GPUs shared fairly between users"),
    NamedSystem("coda", "coda", NodeRules("adaptive", "memory"),
           "pools with borrowing, just enough cores for each training job, no contention for memory"),
    NamedSystem("soda", "coda", NodeRules("adaptive", "all"),
           "coda, and no contention for the network either; with --services SODA's placement of inference jobs", PLACED),
)  # fmt: skip


def system_names() -> tuple[str, ...]:
    """Names in the order of the list."""
    return tuple(system.name for system in SYSTEMS)


def find_system(name: str) -> NamedSystem:
    """A system by its name.

    Raises:
        SimulatorError: no such system.
    """
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise SimulatorError(no_such("system", name, system_names()))
