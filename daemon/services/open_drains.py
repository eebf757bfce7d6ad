"""All instances that leave: who begins to, and who is requeued now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.services.drains import Drain, SeenInstance, decide_drain
from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.service_table import instance_state, reported_instances
from slurm_soda.daemon.services.service_tasks import NO_TASKS, ServiceTasks
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.services.service import Device, InstanceState
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import JobChange, drained_change


@dataclass(frozen=True, slots=True)
class WantedDrain:
    """An instance that shall leave."""

    job_id: int
    key: ServiceKey
    why: str
    by_owner: bool = False


@dataclass(frozen=True, slots=True)
class SeenServices:
    """Services and jobs, as a cycle sees them."""

    known: Mapping[ServiceKey, KnownService]
    tasks: Mapping[ServiceKey, ServiceTasks]
    jobs: Mapping[int, SlurmJob]
    at: Instant


@dataclass(slots=True)
class OpenDrains:
    """Drains that are not over."""

    grace_s: float = 60.0
    by_job: dict[int, Drain] = field(default_factory=dict)
    changed: list[Drain] = field(default_factory=list)
    """Those of which something is not in the store."""
    _told: set[int] = field(default_factory=set)
    """Instances of which the log says that they cannot be drained."""

    def begin(self, wanted: Iterable[WantedDrain], seen: SeenServices, job_cache: JobCache) -> None:
        """Begin those that have not begun, of tasks of these services that run."""
        running = {job.job_id: key for key, own in seen.tasks.items() for job in own.running}
        self._told &= running.keys()
        for one in wanted:
            job = seen.jobs.get(one.job_id)
            if job is None or one.job_id in self.by_job or running.get(one.job_id) != one.key:
                continue
            if not job.requeue or not job.batch:
                if one.job_id not in self._told:  # it is wanted in every cycle
                    self._told.add(one.job_id)
                    why = "Slurm may not requeue it (--no-requeue)"
                    log(logging.WARNING, "instance-not-drained", job=one.job_id, error=why)
                continue
            drain = Drain(
                job_id=one.job_id,
                submit_s=job_cache.submit_s(one.job_id),
                restart=job.restarts,
                key=one.key,
                why=one.why,
                asked_s=seen.at.now_s,
                asked_steady_s=seen.at.steady_s,
                deadline_s=seen.at.steady_s + self.grace_s,
                by_owner=one.by_owner,
            )
            self.by_job[one.job_id] = drain
            self.changed.append(drain)

    def advance(self, seen: SeenServices, *, acts: bool) -> Iterator[tuple[JobChange, Drain]]:
        """One step of each: gives the requeues that are due."""
        for drain in self.by_job.values():
            service, job = seen.known.get(drain.key), seen.jobs.get(drain.job_id)
            told = service is not None and service.reported_steady_s > drain.asked_steady_s
            instance = SeenInstance(
                job=job,
                reported=reported_instances(service).get(drain.job_id) if told and service is not None else None,
                others_ready=self._count_ready(drain.key, seen),
                least=0 if service is None else service.limits.least,
                steady_s=seen.at.steady_s,
                acts=acts,
                replaceable=self._is_replaceable(drain.key, seen),
            )
            decision = decide_drain(drain, instance)
            if decision.phase != drain.phase:
                drain.phase, drain.end, drain.ended_s = decision.phase, decision.end, seen.at.now_s
                self.changed.append(drain)
            if decision.requeue and job is not None and seen.at.steady_s >= drain.retry_s:
                reason = f"instance of {drain.key.name} leaves: {drain.why}"
                yield drained_change(job.job_id, job.restarts, reason, f"drain:{job.job_id}"), drain

    def by_service(self) -> dict[ServiceKey, list[Drain]]:
        """What routers are told, by service."""
        found: dict[ServiceKey, list[Drain]] = {}
        for drain in self.by_job.values():
            if drain.phase != "over":
                found.setdefault(drain.key, []).append(drain)
        return found

    def saved(self) -> None:
        """All that changed is in the store; those that are over are forgotten."""
        self.changed = []
        self.by_job = {job_id: one for job_id, one in self.by_job.items() if one.phase != "over"}

    def recall(self, drains: Sequence[Drain], before: OpenDrains | None) -> None:
        """As the store has them; ``before`` is what this process knew until now."""
        self.by_job = {one.job_id: one for one in drains}
        for job_id, known in ({} if before is None else before.by_job).items():
            read = self.by_job.get(job_id)
            if read is not None and read.pk == known.pk:
                read.deadline_s, read.asked_steady_s = known.deadline_s, known.asked_steady_s
                read.failures, read.retry_s = known.failures, known.retry_s

    def _is_replaceable(self, key: ServiceKey, seen: SeenServices) -> bool:
        own = seen.tasks.get(key, NO_TASKS)
        stays = any(job.job_id not in self.by_job for job in own.running)
        return stays or any(own.count_waiting(device) for device in Device)

    def _count_ready(self, key: ServiceKey, seen: SeenServices) -> int:
        service = seen.known.get(key)
        if service is None:
            return 0
        reported, jobs = reported_instances(service), seen.tasks.get(key, NO_TASKS).running
        states = [instance_state(job, reported.get(job.job_id), self.by_job)[0] for job in jobs]
        return states.count(InstanceState.READY)
