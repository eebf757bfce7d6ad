"""Which preemptions were in vain, remembered until a job of that kind starts; the rules are the policies'."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurm_soda.daemon.preemption.state_machine import SLURM_TICK_S, ActivePreemption
from slurm_soda.daemon.preemption.successors import can_take_places, request_of
from slurm_soda.policies.engine.vain_preemptions import MAX_PAUSE_S, GpuRequest, compute_pause_s
from slurm_soda.slurm_ext.client import SlurmJob

FORGOTTEN_AFTER_S = MAX_PAUSE_S
"""A pause that was over for so long makes no later one longer."""
_HAS_STARTED = frozenset({"RUNNING", "SUSPENDED", "COMPLETING"})


@dataclass(frozen=True, slots=True)
class VainAttempts:
    """Vain attempts in a row to make room for one request. Both instants are the steady clock's."""

    request: GpuRequest
    times: int
    job_id: int
    """Of the last one."""
    noted_s: float
    until_s: float
    """No one is preempted for such a job before."""


@dataclass(slots=True)
class VainPreemptions:
    """Kept in memory and in the store."""

    _by_request: dict[GpuRequest, VainAttempts] = field(default_factory=dict)
    changed: bool = False
    """The store does not have it as it is now."""

    def __iter__(self) -> Iterator[VainAttempts]:
        return iter(self._by_request.values())

    def recall(self, attempts: Iterable[VainAttempts]) -> None:
        """What the store has."""
        self._by_request = {each.request: each for each in attempts}

    def note(self, request: GpuRequest, job_id: int, begun_s: float, steady_s: float, wait_s: float) -> None:
        """An attempt to make room for a job came to nothing.

        Args:
            request: what it asked for when others began to leave.
            job_id: the one that did not start.
            begun_s: when the preemption began. One that began before the last vain attempt was noted was part of that one.
            steady_s: now.
            wait_s: how long the job could have started.
        """
        known = self._by_request.get(request)
        if known is not None and begun_s <= known.noted_s:
            return
        times = 1 if known is None else known.times + 1
        until_s = steady_s + compute_pause_s(times, wait_s)
        self._by_request[request] = VainAttempts(request, times, job_id, steady_s, until_s)
        self.changed = True

    def keep(self, jobs: Mapping[int, SlurmJob], now_s: float, steady_s: float) -> None:
        """Forget requests of which a job has started since, and those that are long over.

        Args:
            jobs: as Slurm shows them.
            now_s: now, by the wall clock, as are the starts of jobs.
            steady_s: now.
        """
        if not self._by_request:
            return
        started: dict[GpuRequest, float] = {}
        for job in jobs.values():
            if job.state == "RUNNING" and job.gpus:
                request = request_of(job)
                started[request] = max(started.get(request, 0.0), job.start_s + SLURM_TICK_S)
        kept = {
            request: known
            for request, known in self._by_request.items()
            if steady_s < known.until_s + FORGOTTEN_AFTER_S
            and started.get(request, 0.0) <= now_s - (steady_s - known.noted_s)
        }
        self.changed |= len(kept) < len(self._by_request)
        self._by_request = kept

    def standing(self, steady_s: float) -> Collection[GpuRequest]:
        """Requests for which no one is to be preempted now."""
        return [request for request, known in self._by_request.items() if steady_s < known.until_s]


def find_vain(
    active_preemption: ActivePreemption,
    jobs: Mapping[int, SlurmJob],
    starts: Collection[int],
    *,
    now_s: float,
    waited: bool,
) -> list[int]:
    """Jobs that did not start although others left for them; asked when the preempted job competes again.

    A job that Slurm does not start for another reason than resources, that ended without a run, or whose owner has changed
    it since, does not start here any more. One that waits for resources did so in vain if it had its time, and could have
    started in all of it: then nobody else took its places.

    Args:
        active_preemption: of the job that left.
        jobs: as Slurm shows them.
        starts: jobs that fit into what is free.
        now_s: now, by the wall clock.
        waited: the preempted job has made way for as long as it should.
    """
    found, successors = [], active_preemption.successors
    for job_id in active_preemption.for_jobs:
        job = jobs.get(job_id)
        if job is None:
            in_vain = job_id in successors.cancelled
        elif _has_started(job, active_preemption.created_s):
            in_vain = False
        elif job_id in successors.changed or not can_take_places(job, now_s):
            in_vain = True
        elif job.reason == "BeginTime":
            in_vain = False
        else:
            in_vain = waited and job_id in starts and job_id not in active_preemption.displaced
        if in_vain:
            found.append(job_id)
    return found


def _has_started(job: SlurmJob, since_s: float) -> bool:
    """Whether it runs, or ran since; Slurm moves the submit time of a job that it requeues."""
    if job.state == "PENDING":
        return job.restarts > 0 and job.submit_s >= since_s - SLURM_TICK_S
    return job.state in _HAS_STARTED or bool(job.node_names)
