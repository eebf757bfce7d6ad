"""Whether a waiting job might join a running one, told from these jobs alone while no GPU is shared."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.session.ranking import SessionJob
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.policies.sharing.known_order import KnownOrderPolicy, PossibleGuest, PossibleHost
from slurm_soda.policies.sharing.mechanism.mechanism import Mechanism
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.sharing.job_kinds import WorkloadKinds
from slurm_soda.simulator.workload import Workload

Room = Callable[[int], tuple[int, int, int]]
"""GPUs, CPUs and memory that a node has free."""

_MOST_WAITING = 200
"""With more jobs in the queue nothing is told: a policy may follow the first ones only."""


class JoinOutlook:
    """Keeps the waiting jobs that could be guests, the running ones that could be hosts, and when all that run end."""

    def __init__(
        self,
        policy: KnownOrderPolicy,
        workload: Workload,
        kinds: WorkloadKinds,
        *,
        shapes: Sequence[RequestShape],
        gpus: int,
        mechanism: Mechanism,
        saves_every_s: FloatColumn,
        observes: bool,
    ) -> None:
        """``shapes``: by :attr:`.SessionJob.shape`; ``gpus``: of the cluster; ``saves_every_s``: of each job; ``observes``:
        slowdowns that were seen become known.
        """
        self._observes = observes
        self._mechanism, self._saves_every_s = mechanism, saves_every_s
        self._policy, self._kinds, self._shapes, self._gpus = policy, kinds, shapes, gpus
        self._able = (workload.shares & (kinds.code >= 0) & (workload.gpus > 0)).tolist()
        self._preemptible = workload.preemptible.tolist()
        self._user, self._code, self._batch = workload.user.tolist(), kinds.code.tolist(), kinds.batch.tolist()
        self._guests: dict[int, SessionJob] = {}
        self._hosts: dict[int, dict[int, SessionJob]] = {}
        """Running jobs that share, by user."""
        self._ends: list[tuple[float, int, int]] = []
        """When jobs that run end if nothing slows them down, their ids and GPUs."""
        self._end_of: dict[int, tuple[float, int, int]] = {}
        self._slowed: set[int] = set()
        """Running jobs that make progress at another pace than alone on their usual GPUs."""
        self._known: KindEstimates | None = None
        self._xi: dict[tuple[int, int], float | None] = {}

    def submit(self, job: SessionJob) -> None:
        """A job begins to wait for GPUs."""
        if self._able[job.job_id - 1]:
            self._guests[job.job_id] = job

    def started(self, job: SessionJob) -> None:
        """A job runs on GPUs of its own."""
        row, job_id = job.job_id - 1, job.job_id
        self._guests.pop(job_id, None)
        self._end_of[job_id] = end = job.resumes_s + job.remaining_s, job_id, job.gpus
        insort(self._ends, end)
        if job.speed_ratio != 1.0:
            self._slowed.add(job_id)
        if self._able[row]:
            self._hosts.setdefault(self._user[row], {})[job_id] = job

    def ended(self, job: SessionJob) -> None:
        """A job gave its GPUs back."""
        row, job_id = job.job_id - 1, job.job_id
        del self._ends[bisect_left(self._ends, self._end_of.pop(job_id))]
        self._slowed.discard(job_id)
        if self._able[row]:
            del self._hosts[self._user[row]][job_id]

    def may_be_hosted(self, job: SessionJob) -> bool:
        """Whether somebody waits who could be the guest of a job, if that ran."""
        row = job.job_id - 1
        return self._able[row] and any(self._meet(row, one - 1) for one in self._guests if one != job.job_id)

    def guest_shapes(self) -> set[int]:
        """Requests of those who wait and could be guests of somebody who runs."""
        return {job.shape for job in self._guests.values() if any(True for _ in self._hosts_of(job))}

    def may_join(
        self, now_s: float, waiting: Sequence[SessionJob], free_gpus: int, room: Room, known: KindEstimates
    ) -> bool:
        """Whether the policy might let somebody join somebody, on what is known of pairs.

        Args:
            waiting: jobs that go on waiting for GPUs, in the policy's order.
            free_gpus: that none of them takes.
            room: what nodes have free.
        """
        if not any(job.job_id in self._guests for job in waiting):
            return False
        if self._slowed or len(waiting) > _MOST_WAITING:
            return True
        if known is not self._known:
            self._known, self._xi = known, {}
        wanted = 0
        for at, job in enumerate(waiting):
            wanted += job.gpus
            if job.job_id in self._guests and any(True for _ in self._hosts_of(job)):
                wait_s = self._wait_s(wanted - free_gpus, now_s)
                behind, moves = len(waiting) - at - 1, self._preemptible[job.job_id - 1]
                guest = PossibleGuest(job.remaining_s, job.gpus, wait_s, behind, self._terms(job), moves)
                if self._may_find_host(guest, job, now_s, len(waiting), room):
                    return True
        return False

    def _may_find_host(self, guest: PossibleGuest, job: SessionJob, now_s: float, waiting: int, room: Room) -> bool:
        row = job.job_id - 1
        hosts = list(self._hosts_of(job))
        if self._batch[row] < 2 or self._known is None or self._known.throughput(self._kinds[self._code[row]]) is None:
            kinds = {self._code[host.job_id - 1] for host in hosts}
            slowdowns = [xi for kind in kinds if (xi := self._slowdown(self._code[row], kind)) is not None]
            ideal = PossibleHost(math.inf, 1, min(slowdowns, default=math.inf), 1.0)
            if not self._policy.may_gain_by_joining(guest, ideal, self._gpus, waiting):
                return False
            hosts = [host for host in hosts if self._may_gain(guest, job, host, now_s, waiting)]
        # Else it may cut its batch: it is slower by itself then, and slows others less.
        return any(self._has_room(job, host, room) for host in hosts)

    def _may_gain(self, guest: PossibleGuest, job: SessionJob, host: SessionJob, now_s: float, waiting: int) -> bool:
        kinds = self._code[job.job_id - 1], self._code[host.job_id - 1]
        guest_xi, host_xi = self._slowdown(*kinds), self._slowdown(*kinds[::-1])
        if guest_xi is None or host_xi is None:
            return False
        left_s = host.remaining_s - max(now_s - host.resumes_s, 0.0)
        offer = PossibleHost(max(left_s, 0.0), host.gpus, guest_xi, host_xi)
        return self._policy.may_gain_by_joining(guest, offer, self._gpus, waiting)

    def _slowdown(self, slowed: int, other: int) -> float | None:
        """Of kinds, as far as somebody knows; None: they cannot meet."""
        key = slowed, other
        if key not in self._xi:
            kinds = [self._kinds[code] for code in key]
            found = None if self._known is None else self._known.xi(kinds[0], (kinds[1],))
            hoped = self._observes and found is not None and found.source == Source.PRIOR
            self._xi[key] = None if found is None else 1.0 if hoped else found.value  # as a trial may show
        return self._xi[key]

    def _wait_s(self, gpus: int, now_s: float) -> float:
        """Until jobs that run have given so many GPUs back; infinite if they have fewer."""
        for end_s, _, released in self._ends:
            if gpus <= 0:
                return max(end_s - now_s, 0.0)
            gpus -= released
        return math.inf

    def _hosts_of(self, job: SessionJob) -> Iterator[SessionJob]:
        row = job.job_id - 1
        users = self._hosts if self._mechanism.different_users else (self._user[row],)
        return (host for user in users for host in self._hosts.get(user, {}).values())

    def _meet(self, row: int, other: int) -> bool:
        return self._mechanism.different_users or self._user[row] == self._user[other]

    def _has_room(self, job: SessionJob, host: SessionJob, room: Room) -> bool:
        """Whether one node of a host has cores and memory for a part of a request."""
        _, cpus, memory_mib = self._shapes[job.shape].least
        return any(room(piece.node)[1] >= cpus and room(piece.node)[2] >= memory_mib for piece in host.pieces)

    def _terms(self, job: SessionJob) -> GuestTerms:
        mechanism, saves_every_s = self._mechanism, float(self._saves_every_s[job.job_id - 1])
        return GuestTerms(mechanism.start_s, mechanism.readmit_s, saves_every_s, mechanism.revokes)
