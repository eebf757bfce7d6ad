"""Tasks of services as Slurm shows them: which run, which wait, and whose word keeps a waiting one from starting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.start_limits import StartLimits, array_of
from slurm_soda.policies.services.service import Device
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.start_leases import array_tasks, is_lease, is_wait_of_slurm

RUNNING_STATES = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING"})

Standing = Literal["free", "leased", "requeued", "owners"]
"""A waiting record may start (``free``), waits with our lease (``leased``) or by Slurm's wait after a requeue
(``requeued``), or waits or starts by the owner's word (``owners``): then it is left alone."""

TaskKey = tuple[int, int]
"""Array and task; job and -1 for one without an array."""


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """One waiting job, or the waiting rest of an array."""

    job: SlurmJob
    tasks: tuple[int, ...]
    """Numbers of the tasks that it stands for; none for a job without an array."""
    standing: Standing

    @property
    def count(self) -> int:
        """How many instances may start from it."""
        return max(len(self.tasks), 1)

    @property
    def may_start(self) -> bool:
        """Its owner has let it start: Slurm may start it at any time."""
        return self.standing == "owners" and self.job.reason != "BeginTime" and not _is_kept_back(self.job)


@dataclass(slots=True)
class ServiceTasks:
    """Tasks of one service."""

    running: list[SlurmJob] = field(default_factory=list)
    """By job id."""
    waiting: dict[Device, list[WaitingRecord]] = field(default_factory=lambda: {device: [] for device in Device})
    partitions: dict[Device, set[str]] = field(default_factory=lambda: {device: set() for device in Device})
    """Of all tasks that run, or that nobody holds back."""
    accounts: set[str] = field(default_factory=set)
    admitted: dict[int, int] = field(default_factory=dict)
    """How many more tasks of an array can start, where something else than places keeps the others."""

    def partition_names(self, device: Device) -> str:
        """All of its tasks' for a device, separated by commas."""
        return ",".join(sorted(self.partitions[device] - {""}))

    def count_staying(self, device: Device, draining: Collection[int]) -> int:
        """Instances that run on a device and do not leave."""
        return sum(device_of(job) is device and job.job_id not in draining for job in self.running)

    def count_waiting(self, device: Device) -> int:
        """Tasks that sodad may let start, or that start by themselves, as far as their limits admit them."""
        counts = Counter[int]()
        for one in self.waiting[device]:
            if one.standing != "owners" or one.may_start:
                counts[array_of(one.job)] += one.count
        return sum(min(count, self.admitted.get(array, count)) for array, count in counts.items())

    def count_by_owner(self, device: Device) -> int:
        """Those of them that start by themselves, by their owner's word."""
        own = sum(one.count for one in self.waiting[device] if one.may_start)
        return min(own, self.count_waiting(device))


NO_TASKS = ServiceTasks()


@dataclass(slots=True)
class TaskHistory:
    """What was seen of waiting tasks, by which an owner's own word is known from sodad's."""

    _leased: dict[TaskKey, float] = field(default_factory=dict)
    """End of the lease with which each was seen last."""
    _let: set[TaskKey] = field(default_factory=set)
    """Those that sodad let start, and that wait still."""
    _owners: set[TaskKey] = field(default_factory=set)
    """Those whose lease somebody else ended: they start when Slurm likes."""
    limits: StartLimits = field(default_factory=StartLimits)

    def tasks(self, jobs: Iterable[SlurmJob], now_s: float) -> dict[ServiceKey, ServiceTasks]:
        """The tasks of all services; to be called once for each reading of Slurm."""
        found: dict[ServiceKey, ServiceTasks] = {}
        present: set[TaskKey] = set()
        for job in jobs:
            if job.hints.service is None:
                continue
            tasks = found.setdefault(ServiceKey(job.user, job.hints.service), ServiceTasks())
            device = device_of(job)
            if job.state in RUNNING_STATES:
                tasks.running.append(job)
            elif job.state == "PENDING":
                numbers = array_tasks(job.array_task)
                keys = list(_keys(job, numbers))
                present.update(keys)
                tasks.waiting[device].append(WaitingRecord(job, numbers, self._standing(job, keys, now_s)))
            else:
                continue
            if job.state != "PENDING" or not _is_kept_back(job):
                tasks.partitions[device].update(job.partition.split(","))
            tasks.accounts.add(job.account)
        self._forget_others(present)
        for tasks in found.values():
            self._find_admitted(tasks, now_s)
        waiting = [one.job for tasks in found.values() for device in Device for one in tasks.waiting[device]]
        self.limits.forget_others(map(array_of, waiting), (job.job_id for job in waiting))
        return found

    def _find_admitted(self, tasks: ServiceTasks, now_s: float) -> None:
        """How many tasks can start beside what runs."""
        running = Counter(map(array_of, tasks.running))
        records = [one for device in Device for one in tasks.waiting[device]]
        self.limits.observe(((one.job, one.standing == "free" or one.may_start) for one in records), running, now_s)
        tasks.admitted = self.limits.admitted({array_of(one.job) for one in records}, running)

    def note_let(self, job: SlurmJob, task: int | None) -> None:
        """A task, or all of a record, is let start."""
        keys = set(_keys(job, array_tasks(job.array_task) if task is None else (task,)))
        self._let |= keys
        for key in keys:
            self._leased.pop(key, None)

    def note_leased(self, job: SlurmJob) -> None:
        """All tasks of a record get a lease."""
        self._let.difference_update(_keys(job, array_tasks(job.array_task)))

    def _standing(self, job: SlurmJob, keys: list[TaskKey], now_s: float) -> Standing:
        # One that was seen before is one still if somebody has set the clock back.
        if is_lease(job, now_s) or (
            job.eligible_s > now_s and all(self._leased.get(key) == job.eligible_s for key in keys)
        ):
            self._leased |= dict.fromkeys(keys, job.eligible_s)
            self._owners.difference_update(keys)
            return "owners" if _is_kept_back(job) else "leased"
        if job.eligible_s > now_s:
            for key in keys:
                self._leased.pop(key, None)
            return "requeued" if is_wait_of_slurm(job) and not _is_kept_back(job) else "owners"
        untold = math.isnan(job.eligible_s)  # of tasks up against their array's limit
        for key in keys:
            if self._leased.pop(key, 0.0) > now_s + 1.0 and key not in self._let and not untold:
                self._owners.add(key)
        if _is_kept_back(job) or any(key in self._owners for key in keys):
            return "owners"
        return "free"

    def _forget_others(self, present: set[TaskKey]) -> None:
        self._leased = {key: until_s for key, until_s in self._leased.items() if key in present}
        self._let &= present
        self._owners &= present


def device_of(job: SlurmJob) -> Device:
    """On what an instance computes: a GPU, if its job asks for one."""
    return Device.GPU if job.gpus else Device.CPU


def waits_after_requeue(tasks: Mapping[ServiceKey, ServiceTasks]) -> set[int]:
    """Jobs of tasks that wait again after a run, whose nodes may still have to see its end."""
    records = (one for each in tasks.values() for device in Device for one in each.waiting[device])
    return {record.job.job_id for record in records if record.job.restarts}


def _is_kept_back(job: SlurmJob) -> bool:
    """Held, or waiting for other jobs."""
    return job.reason.startswith("JobHeld") or bool(job.dependency)


def _keys(job: SlurmJob, tasks: Iterable[int]) -> Iterator[TaskKey]:
    numbers = tuple(tasks)
    yield from ((job.array_job_id, task) for task in numbers) if numbers else [(job.job_id, -1)]
