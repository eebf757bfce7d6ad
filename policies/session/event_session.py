"""A policy that keeps its whole state from event to event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from slurm_soda.policies.engine.demand import Demand, RequestColumns
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.policies.snapshot import NodeTable


class EventSession(Protocol):
    """Decides as the policy's ``decide`` does, of the events alone.

    The caller reports what happens, asks :meth:`decide`, brings the records of jobs up to date, and confirms each stop and
    then each start. What :meth:`decide` answers is taken to be done at that instant.
    """

    def submit(self, job: SessionJob) -> None:
        """A job arrives; its ``user`` and ``shape`` are known."""
        ...

    def end(self, job: SessionJob) -> None:
        """A running job ended."""
        ...

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        """Jobs to preempt, and then jobs to start, in the order of the decision."""
        ...

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """Somebody else decided: as if :meth:`decide` had answered this."""
        ...

    def stopped(self, job: SessionJob) -> None:
        """A job that was preempted waits again."""
        ...

    def started(self, job: SessionJob) -> None:
        """A job that :meth:`decide` started runs."""
        ...

    def changed(self, job: SessionJob, before: Sequence[NodeAllocation]) -> None:
        """A running job has other CPUs than ``before`` on the same nodes, or another speed."""
        ...

    def next_event_s(self) -> float:
        """When the next decision may differ without any event."""
        ...


@runtime_checkable
class EventPolicy(Protocol):
    """A policy that can be run so."""

    def session(self, jobs: RequestColumns, demand: Demand, nodes: NodeTable) -> EventSession:
        """A session on idle nodes; ``demand`` has every shape that one of ``jobs`` will ever ask for."""
        ...
