"""What the owners of jobs do, and what is remembered of it."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable

from benchmarks.campaign import load
from benchmarks.campaign.invariants import RoundBook, Violation
from benchmarks.campaign.load import CampaignJob
from benchmarks.campaign.schedule import Event
from slurm_soda.containers.cluster import ContainerCluster

_TIMEOUT_S = 40.0
"""slurmctld may be away for some seconds."""
_REQUEUED = ("train", "long", "gang", "cpu")
_CANCELLED = (*_REQUEUED, "array", "het")
_NEWEST = 12
"""Older jobs have most likely ended."""


class Owners:
    """Submit, release, cancel and requeue, in one round."""

    def __init__(
        self,
        cluster: ContainerCluster,
        book: RoundBook,
        number: int,
        violate: Callable[[Iterable[Violation]], None],
    ) -> None:
        self._cluster, self._book, self._number, self._violate = cluster, book, number, violate
        self._followups: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def act(self, event: Event) -> None:
        """Do what an event of the load says."""
        if load.submits(event):
            self._submit(event)
        else:
            self._change(event.kind, float(event.values["pick"]))

    def follow_up(self, until_s: float) -> bool:
        """Wait for the next thing that is to be done later, if it is due before then, and do it; whether there was one."""
        if not self._followups or self._followups[0][0] > until_s:
            return False
        due_s, _, action = heapq.heappop(self._followups)
        time.sleep(max(0.0, due_s - time.monotonic()))
        action()
        return True

    def release(self, job: CampaignJob) -> None:
        """Release a held job; tried again while slurmctld does not answer.

        A slurmctld that was killed while it released the job may take the hold for an admin's, which only root can end.
        """
        at_s = time.time()
        argv = ("scontrol", "release", str(job.job_id))
        users = (job.user, "root") if self._book.hurt_s else (job.user,)
        if any(self._cluster.exec(user, argv, timeout_s=_TIMEOUT_S).status == 0 for user in users):
            job.held, job.not_before_s = False, at_s - 1
        else:
            self._later(5.0, lambda: self.release(job))

    def _submit(self, event: Event) -> None:
        name = f"r{self._number}-{len(self._book.jobs)}-{event.kind}"
        wanted = load.submission(event, name)
        job = CampaignJob(name, wanted.user, event.kind, time.time(), wanted.records, held=event.kind == "held")
        self._book.jobs[name] = job
        if event.kind == "begin":
            job.not_before_s = int(time.time()) + int(event.values["for_s"])
        if wanted.interactive:
            script = 'setsid "$@" </dev/null >/dev/null 2>&1 &'
            self._cluster.exec(wanted.user, ("sh", "-c", script, "sh", *wanted.argv))
            return
        reply = self._cluster.exec(wanted.user, wanted.argv, input=wanted.script, timeout_s=_TIMEOUT_S)
        words = reply.stdout.split()
        if reply.status == 0 and words and words[-1].isdigit():
            job.job_id = int(words[-1])
        elif not self._book.hurt_s:
            self._violate([Violation("submission refused", f"{name}: {' '.join(reply.stderr.split())[:200]}")])
        if job.held and job.job_id is not None:
            self._later(float(event.values["for_s"]), lambda: self.release(job))

    def _change(self, what: str, pick: float) -> None:
        kinds = _REQUEUED if what == "requeue" else _CANCELLED
        known = [job for job in self._book.jobs.values() if job.job_id and job.kind in kinds and not job.cancelled]
        jobs = known[-_NEWEST:]
        if not jobs:
            return
        job = jobs[int(pick * len(jobs))]
        if what == "cancel":
            job.cancelled = True
            self._cluster.exec(job.user, ("scancel", str(job.job_id)), timeout_s=_TIMEOUT_S)
        elif self._cluster.exec(job.user, ("scontrol", "requeue", str(job.job_id)), timeout_s=_TIMEOUT_S).status == 0:
            job.requeued += 1

    def _later(self, in_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._followups, (time.monotonic() + in_s, next(self._counter), action))
