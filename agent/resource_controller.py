"""What takes a turn on a node after each sample: tuning of cores, limits on memory bandwidth and on the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.gpus import GpuReading


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The node as the agent saw it at one instant."""

    now_s: float
    """Seconds on a clock that nobody can set: for durations and rates."""
    runs: Sequence[NodeRun]
    """Runs that have begun and not ended, oldest first."""
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)
    """Readings by the GPU's index on this node; without those that could not be read."""
    unix_s: float = field(kw_only=True)
    """The time of day, for what is reported to others; it may jump, forward and back."""

    @property
    def has_left_out(self) -> bool:
        """A job here is not in scope: for such a job nobody else is held back either."""
        return any(run.left_out for run in self.runs)


class ResourceController(Protocol):
    """Keeps one resource of the node; limits that it sets end with the job, also when the agent died in between.

    A controller never raises because of the node's state: what it could not do, it returns as faults for people.
    """

    @property
    def interval_s(self) -> float:
        """Seconds between two turns at most, now; infinite while it has nothing to do."""
        ...

    def recover(self, now_s: float) -> Sequence[str]:
        """Before the first turn: take back what an agent before this one left behind, or take it up again."""
        ...

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """Measure, decide, set; returns faults, one line each."""
        ...

    def close(self) -> Sequence[str]:
        """The agent stops in order: give back what cannot be kept without it."""
        ...

    def counts(self) -> Mapping[str, int]:
        """What it limits now, for the site's monitoring: by a name of :data:`slurm_soda.wire.node_use.COUNTS`."""
        ...
