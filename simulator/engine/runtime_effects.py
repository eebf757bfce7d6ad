"""What the event loop must know of everything around a job that changes its speed while it runs."""

from __future__ import annotations

from typing import Protocol

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.outcome import SimulationOutcome


class RuntimeEffects(Protocol):
    """Hears of every start and end; says how fast each job runs, now and when that changes.

    The loop calls :meth:`started` and :meth:`left`, then gives every job of :meth:`take_affected` its new :meth:`pace`; at
    :meth:`next_s` it calls :meth:`due`, and gives jobs their new pieces and pace. One object serves one run.
    """

    def request(self, row: int) -> int | None:
        """CPUs over all nodes that a job shall ask for from now on, when it begins to wait; None: as it does."""
        ...

    def started(self, row: int, pieces: tuple[NodeAllocation, ...], now_s: float, resumes_s: float) -> None:
        """A job starts, and makes progress from ``resumes_s`` on; :meth:`fails` and :meth:`pace` follow."""
        ...

    def start_delay_s(self, row: int) -> float:
        """By how much longer the job that starts next holds its resources without progress; asked before it starts."""
        ...

    def take_revoked(self) -> list[tuple[int, float]]:
        """Jobs whose seats ended since this was last asked, ascending, and how long each still holds what it has."""
        ...

    def revoked(self, row: int, lost_s: float) -> None:
        """A job is about to leave since its seat ended; so much of its work is lost."""
        ...

    def fails(self, row: int) -> bool:
        """Whether the job that was just started cannot run here: it leaves when it should make its first progress."""
        ...

    def left(self, row: int, now_s: float) -> None:
        """A job gave its resources back."""
        ...

    def pace(self, row: int, now_s: float) -> float:
        """Speed of a running job from now on, relative to its trace; above 0."""
        ...

    def take_affected(self) -> list[int]:
        """Running jobs whose pace may have changed because others came or went, ascending; each is returned once."""
        ...

    def next_s(self) -> float:
        """When something changes by itself next; infinite for never."""
        ...

    def due(self, now_s: float) -> list[tuple[int, tuple[NodeAllocation, ...]]]:
        """That time has come: jobs whose pace changes now, with their pieces."""
        ...

    def record(self, outcome: SimulationOutcome) -> SimulationOutcome:
        """The outcome, with what was seen around the jobs."""
        ...
