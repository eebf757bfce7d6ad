"""How a policy orders jobs, one job at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from slurm_soda.policies.engine.placement import NodeAllocation

INFINITY = float("inf")

RankKey = tuple[Any, ...]
"""Smaller ranks first; the last part is the job id, so that no two jobs tie."""


class SessionJob:
    """What a session knows of one job; whoever runs the session keeps the times up to date.

    Fields have the meaning of the columns of :class:`~slurm_soda.policies.snapshot.JobTable`, as they stood when the
    job last started or stopped; times that have not happened are infinite.
    """

    __slots__ = (
        "attained_gpu_s",
        "executed_s",
        "first_start_s",
        "frozen",
        "gpus",
        "job_id",
        "pieces",
        "preemptible",
        "preemptions",
        "queue",
        "remaining_s",
        "resumed",
        "resumes_s",
        "shape",
        "speed_ratio",
        "start_s",
        "submit_s",
        "turn",
        "user",
    )

    def __init__(
        self, job_id: int, *, submit_s: float, gpus: int, remaining_s: float, preemptible: bool, shape: int = 0
    ) -> None:
        self.job_id = job_id
        self.submit_s = submit_s
        self.gpus = gpus
        self.preemptible = preemptible
        self.shape = shape
        """Number of its request among all distinct ones; only a session that places jobs on nodes asks for it."""
        self.user = 0
        """Number of its user; only a session that shares between users asks for it."""
        self.remaining_s = remaining_s
        self.first_start_s = self.start_s = INFINITY
        self.resumes_s = INFINITY
        """When a running job makes progress again: its start, later if starting takes time."""
        self.resumed = False
        """Whether that was at once when the job started; from then on owned by the ranking."""
        self.speed_ratio = 1.0
        """Progress of a running job in a second, in seconds on dedicated resources."""
        self.executed_s = self.attained_gpu_s = 0.0
        self.pieces: tuple[NodeAllocation, ...] = ()
        """What a running job holds; empty where nodes play no part."""
        self.queue = 0
        """Owned by the ranking: the queue that the job is in."""
        self.preemptions = 0
        """Owned by a session that counts them."""
        self.turn = 0
        """Owned by the session: odd while the job runs; outdates what was planned for an earlier run."""
        self.frozen: RankKey | None = None
        """Owned by the session: its key among preemptible running jobs, ``None`` where it is not one."""


JobStart = tuple[SessionJob, tuple[NodeAllocation, ...]]
"""A job to start and the places it gets; none where nodes play no part."""


@dataclass(frozen=True, slots=True)
class RankingRules:
    """What a policy does with its order."""

    skip: bool = True
    """Pass a waiting job that does not fit; without it, such a job ends its partition's turn."""
    apart: bool = False
    """Without ``skip``: jobs with and without GPUs stand in lines of their own."""
    preemptive: bool = False
    min_run_s: float = 0.0
    """A job is not preempted before it has run so long."""
    true_run_times: bool = False
    """The order is that of the policy only while every job ends when it is said to end."""
    least_move_price_s: float = INFINITY
    """Preemptible jobs of any rank may move to other places so that a waiting one fits that asks for an even share of its
    nodes (:attr:`.RequestShape.is_even`): what that costs all jobs at the least; infinite: none does. Only with
    ``true_run_times``."""
    volatile: int = 0
    """So many groups, those of the lowest numbers, change their order at any time. Groups then rank as wholes: all jobs
    of a higher number behind all of a lower one."""


class Ranking(Protocol):
    """A policy's order over single jobs; it says the same as the policy's ``decide`` does of a snapshot.

    Running jobs come in groups. Inside a group their order changes only at the times that :meth:`changes_s` tells,
    and no waiting job may come to rank before a running one at any other time, unless the rules call the group volatile.
    """

    @property
    def rules(self) -> RankingRules:
        """What is done with the order."""
        ...

    def waiting(self, job: SessionJob) -> RankKey:
        """Key of a waiting job; it does not change while the job waits."""
        ...

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        """Key of a running job at an instant, to be compared with those of waiting jobs."""
        ...

    def group(self, job: SessionJob) -> int:
        """Group of a running job."""
        ...

    def frozen(self, job: SessionJob) -> RankKey:
        """Key of a running job inside its group."""
        ...

    def changes_s(self, job: SessionJob) -> float:
        """When the keys of a running job change by themselves; infinite for never."""
        ...

    def change(self, job: SessionJob) -> None:
        """That time has come."""
        ...


@runtime_checkable
class VolatileRanking(Ranking, Protocol):
    """An order that has volatile groups."""

    def in_order(self, group: int, jobs: Sequence[SessionJob], now_s: float) -> list[int]:
        """Positions of a volatile group's jobs at an instant, best-ranked first; they come by their frozen keys."""
        ...


@runtime_checkable
class StartsOnlyPolicy(Protocol):
    """A policy that needs whole snapshots, but does nothing except start jobs that fit into what is free.

    While no waiting job fits, it need not be asked.
    """

    @property
    def starts_only(self) -> Literal[True]:
        """Says so."""
        ...


@runtime_checkable
class RankingPolicy(Protocol):
    """A policy that can be run one event at a time."""

    def ranking(self) -> Ranking | None:
        """Its order over single jobs; ``None`` where its present parameters need whole snapshots."""
        ...
