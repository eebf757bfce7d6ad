"""Which waiting tasks of services go before other jobs now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_tasks import NO_TASKS, ServiceTasks
from slurm_soda.daemon.services.task_starts import jobs_that_may_start
from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.instance_requests import tasks_that_fit
from slurm_soda.policies.snapshot import ClusterSnapshot

NOT_STARTED_S = 600.0
"""Slurm starts the first in line that has room within a minute or so; one that it does not start for so long is kept by
something that a snapshot does not tell, such as a reservation, and would only keep others waiting."""


@dataclass(slots=True)
class GoingFirst:
    """The tasks that go first, from cycle to cycle."""

    _room_s: dict[int, float] = field(default_factory=dict)
    """How long in all each that waits should have gone first and there was room for it."""
    _seen_s: dict[int, float] = field(default_factory=dict)
    """When that was so last, by the steady clock, of those of which it was in the last cycle."""

    def choose(
        self,
        plan: Plan,
        snapshot: ClusterSnapshot,
        tasks: Mapping[ServiceKey, ServiceTasks],
        *,
        draining: Collection[int],
        left: Collection[int],
        at: Instant,
    ) -> tuple[set[int], set[int]]:
        """Jobs of the tasks that go first, and those of them for which there is room; a second call changes nothing.

        Args:
            plan: says which services shall, and how many of their tasks.
            snapshot: what it was made from.
            tasks: of all services.
            draining: instances that leave.
            left: requeued jobs whose former run has certainly left its nodes.
            at: the present.
        """
        wanted: set[int] = set()
        for one in plan.actions:
            if isinstance(one, ScaleService) and one.first:
                own = tasks.get(ServiceKey(one.owner, one.service), NO_TASKS)
                running = own.count_staying(one.device, draining)
                wanted |= jobs_that_may_start(one, own.waiting[one.device], running, now_s=at.now_s, left=left)
        fitting = tasks_that_fit(snapshot, wanted)
        self._count(fitting, wanted, tasks, at.steady_s)
        late = {job_id for job_id in wanted if self._room_s.get(job_id, 0.0) >= NOT_STARTED_S}
        return wanted - late, fitting - late

    def _count(
        self, fitting: set[int], wanted: set[int], tasks: Mapping[ServiceKey, ServiceTasks], steady_s: float
    ) -> None:
        """Go on counting; from the beginning once there is no room, or it has started. That it is not wanted for a while
        begins nothing anew, for that is its owner's word.
        """
        waits = {record.job.job_id for own in tasks.values() for each in own.waiting.values() for record in each}
        kept = (waits - wanted) | fitting
        self._room_s = {job_id: room_s for job_id, room_s in self._room_s.items() if job_id in kept}
        for job_id in fitting:
            passed_s = steady_s - self._seen_s.get(job_id, steady_s)
            self._room_s[job_id] = self._room_s.get(job_id, 0.0) + passed_s
        self._seen_s = dict.fromkeys(fitting, steady_s)
