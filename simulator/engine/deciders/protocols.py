"""Whoever decides for the event loop, and which one fits a run."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.session.ranking import JobStart, SessionJob


class Decider(Protocol):
    """A policy at work: hears of every event, says at an instant who stops and who starts.

    The loop brings the records of jobs up to date before it calls :meth:`stopped`, :meth:`leaving` or :meth:`started`.
    """

    def submit(self, job: SessionJob) -> None:
        """A job arrives."""
        ...

    def end(self, job: SessionJob) -> None:
        """A running job ended."""
        ...

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        """Jobs to preempt, and then jobs to start."""
        ...

    def stopped(self, job: SessionJob) -> None:
        """A job gave its resources back and waits again."""
        ...

    def started(self, job: SessionJob) -> None:
        """A job runs."""
        ...

    def next_event_s(self) -> float:
        """When the next decision may differ without any event."""
        ...


@runtime_checkable
class NodeDecider(Decider, Protocol):
    """A decider that knows nodes: jobs may take time to leave them, and nodes may fail."""

    def leaving(self, job: SessionJob) -> None:
        """A preempted job begins to save its state and still holds its resources; :meth:`stopped` follows."""
        ...

    def set_usable(self, node: int, usable: bool) -> None:
        """A node failed or came back; jobs on it have been reported as stopped."""
        ...


@runtime_checkable
class AdjustableDecider(Decider, Protocol):
    """A decider whose jobs may get other cores while they run."""

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        """A running job has other cores than ``before`` on the same nodes, or another speed."""
        ...
