"""The small Slurm with job arrays, as far as services need them: waiting tasks are one record until one of them is changed,
or starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_soda.slurm_ext.client import JobUpdate, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from tests.daemon.fake_slurm import FakeJob, FakeSlurm

ARRAY_LIMIT, ACCOUNT_LIMIT = "JobArrayTaskLimit", "AssocGrpCpuLimit"


@dataclass
class FakeTask(FakeJob):
    """One task, which is a job of its own once it is apart."""

    array: int = 0
    task: int = 0
    apart: bool = False


class ArraySlurm(FakeSlurm):
    """Each task is a job from the beginning; those that are not apart are shown, and changed, as one."""

    refused = ""
    """What Slurm says to every update."""
    refusals = 0
    array_limits: Mapping[int, int] = {}
    """How many tasks of an array may run at a time (``--array=0-7%2``)."""
    account_limits: Mapping[int, int] = {}
    """How many of them accounting lets run."""

    def submit_array(
        self, array: int, tasks: int, *, service: str | None = "answers", gpus: int = 0, user: str = "alice",
        begin_s: float = 0.0,
    ) -> list[FakeTask]:  # fmt: skip
        """Tasks 0 to ``tasks`` - 1, with ids from ``array`` on, which may start ``begin_s`` from now."""
        now_s, made = self.clock.now_s(), []
        for task in range(tasks):
            job = FakeTask(
                array + task, gpus, 1e9, now_s, first_submit_s=now_s, eligible_s=now_s + begin_s, cpus=1, user=user,
                hints=Hints(service=service), checkpoint=None, array=array, task=task, priority=100 - array - task,
                reason="BeginTime" if begin_s else "Priority",
            )  # fmt: skip
            self.all[job.job_id] = job
            made.append(job)
        return made

    def _all_tasks(self) -> list[FakeTask]:
        return [job for job in self.all.values() if isinstance(job, FakeTask)]

    def tasks(self, array: int) -> list[FakeTask]:
        return [job for job in self._all_tasks() if job.array == array]

    def running(self, array: int) -> list[int]:
        return [job.task for job in self.tasks(array) if job.state == "RUNNING"]

    def _schedule(self) -> None:
        held = [job for job in self.all.values() if job.reason == "JobHeldUser"]
        limits = ((self.array_limits, ARRAY_LIMIT), (self.account_limits, ACCOUNT_LIMIT))
        limited = [
            (job, reason)
            for mosts, reason in limits
            for array, most in mosts.items()
            for job in self._beyond(array, most)
        ]
        for job, _ in limited:
            job.never_starts = True
        super()._schedule()
        for job, reason in limited:
            job.never_starts, job.reason = False, reason
        for job in held:
            job.reason = "JobHeldUser"
        for job in self.all.values():
            if isinstance(job, FakeTask) and job.state != "PENDING":
                job.apart = True

    def _beyond(self, array: int, most: int) -> list[FakeTask]:
        """Tasks that would start, were it not for the limit of their array."""
        now_s = self.clock.now_s()
        due = [job for job in self.tasks(array) if job.state == "PENDING" and job.eligible_s <= now_s]
        return [job for job in due if not job.never_starts][max(most - len(self.running(array)), 0) :]

    def _rests(self) -> Iterator[list[FakeTask]]:
        for array in {job.array for job in self.all.values() if isinstance(job, FakeTask)}:
            if rest := [job for job in self.tasks(array) if not job.apart]:
                yield rest

    def jobs(self) -> list[SlurmJob]:
        """The tasks of a rest are all shown alike."""
        return list({job.job_id: job for job in super().jobs()}.values())

    def _record(self, job: FakeJob) -> SlurmJob:
        record = super()._record(job)
        if not isinstance(job, FakeTask):
            return record
        if job.reason == ARRAY_LIMIT:
            record = replace(record, eligible_s=math.nan)
        if job.apart:
            return replace(record, array_job_id=job.array, array_task=str(job.task), job_id=self._shown_id(job))
        rest = [one.task for one in self.tasks(job.array) if not one.apart]
        text = f"{rest[0]}-{rest[-1]}" if len(rest) > 1 else str(rest[0])
        return replace(record, array_job_id=job.array, array_task=text, job_id=job.array)

    def _shown_id(self, job: FakeTask) -> int:
        """A task that is apart has an id of its own; the array's belongs to the rest."""
        return job.job_id + 1000

    def find(self, job_id: int, task: str = "") -> list[FakeJob]:
        """The jobs that an address names."""
        if task:
            (found,) = [one for one in self.tasks(job_id) if one.task == int(task)]
            found.apart = True
            return [found]
        rest = next((rest for rest in self._rests() if rest[0].array == job_id), None)
        if rest:
            return list(rest)
        return [self.all[job_id - 1000 if job_id >= 1000 and job_id not in self.all else job_id]]

    def _update(self, update: JobUpdate) -> str:
        if self.refused:
            self.refusals += 1
            return self.refused
        self.updates += 1
        said = ""
        for job in self.find(update.job_id, update.array_task):
            for name, value in update.fields:
                if job.state != "PENDING":
                    said = "Job is no longer pending execution"
                elif name == "SiteFactor":
                    job.site_factor = int(value)
                elif name == "StartTime":
                    ahead = re.fullmatch("uts([0-9]+)", value)
                    job.eligible_s = float(ahead[1]) if ahead else self.clock.now_s()
                    job.reason = "BeginTime" if ahead else "None"
        return said

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        """By the ids that are shown."""
        shown = {job.job_id: self._shown_id(job) if job.apart else job.array for job in self._all_tasks()}
        found = super().waiting_jobs()
        return {shown.get(one, one): replace(told, job_id=shown.get(one, one)) for one, told in found.items()}

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        """Of an array without a rest Slurm tells none."""
        self._answer("array_throttles")
        whole = {rest[0].array for rest in self._rests()}
        unknown = SlurmReplyError("no task of it waits")
        return {array: self.array_limits.get(array, 0) if array in whole else unknown for array in arrays}

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        (job,) = self.find(job_id)
        super().requeue(job.job_id, ended=ended)
