"""Pairs that did not come about, or fell apart at once, jobs that cannot be guests, and guests that lost their places,
whoever their hosts were: not tried again before a pause that doubles.

A host's owner makes new job ids as he likes, so a pause of the pair alone would bound nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from slurm_soda.daemon.sharing.share_state import FAILED_ENDS, Share
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.shown_request import shown_request

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 3600.0
FIRST_JOB_PAUSE_S = 60.0
"""What a job asks for seldom changes, and while it is planned as a guest it keeps its seats from others."""
SHORT_RUN_S = 60.0
"""A guest that was revoked so soon after its start has done nothing."""

ANY_HOST = 0
"""Stands for all hosts: who edits the request of a guest does not want it to be one."""

ANYBODY = -1
"""Stands for all hosts too: a guest that came to nothing beside some of them."""

EDITED = "its request was changed while it waited as a guest"


_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Pause:
    times: int
    until_s: float


@dataclass(frozen=True, slots=True)
class _JobPause:
    pause: _Pause
    why: str
    asked: Mapping[str, str]
    """What it asked for, as every reading of all jobs shows it."""


@dataclass(slots=True)
class PairPauses:
    """Kept in memory; a restarted daemon notes again what the store has. All instants are the steady clock's."""

    _by_pair: dict[tuple[int, int], _Pause] = field(default_factory=dict)
    _by_owners: dict[tuple[str, str], _Pause] = field(default_factory=dict)
    """By owner of the guest and of the host, where a guest lost its place soon after its start."""
    revoked: Counter[int] = field(default_factory=Counter)
    """How often a guest lost its place, by job id."""
    most_revocations: int = 0
    """A guest that lost its place so often is nobody's any more; 0: no bound."""
    _by_job: dict[int, _JobPause] = field(default_factory=dict)
    """Jobs whose request cannot be that of a guest for a reason that only Slurm's whole picture of it tells."""
    apart: set[tuple[int, int]] = field(default_factory=set)
    """Pairs that an observed slowdown has parted, the smaller id first: never again."""

    def note(self, share: Share, steady_s: float) -> None:
        """A share is over, at an instant."""
        if share.end == "parted":
            self.apart |= {(min(share.guest, host), max(share.guest, host)) for host in share.hosts}
        elif share.end in ("owner", "withdrawn"):
            self._by_pair[share.guest, ANY_HOST] = _Pause(1, steady_s + MAX_PAUSE_S)
        elif share.end in FAILED_ENDS or share.end == "revoked":
            self._note_vain(share, steady_s)

    def _note_vain(self, share: Share, steady_s: float) -> None:
        self.revoked[share.guest] += share.end == "revoked"
        waited_s = (share.ended_s or 0.0) - share.created_s if share.end == "not-started" else 0.0
        _lengthen(self._by_pair, (share.guest, ANYBODY), steady_s, first_s=waited_s)
        if share.end == "revoked" and not _was_short(share):
            return
        for host in share.hosts:
            _lengthen(self._by_pair, (share.guest, host), steady_s)
        if share.end == "revoked":
            for owners in {(share.users[0], other) for other in share.users[1:] if other != share.users[0]}:
                _lengthen(self._by_owners, owners, steady_s)

    def why_no_guest(self, guest: int, steady_s: float) -> str:
        """Why a job is not to be a guest now, whoever its host would be; empty: it may."""
        if self.is_edited(guest, steady_s):
            return EDITED
        if 0 < self.most_revocations <= self.revoked[guest]:
            return (
                f"it lost its place as a guest {self.revoked[guest]} times, and a job is sent away no more than "
                f"{self.most_revocations} times (preemption.max_per_job)"
            )
        pause = self._by_pair.get((guest, ANYBODY))
        if pause is not None and steady_s < pause.until_s:
            return f"it came to nothing as a guest {_told(pause.times)}; the pause after each time is twice as long"
        return ""

    def why_owners_apart(self, guest_user: str, host_user: str, steady_s: float) -> str:
        """Why a user's jobs are not to be guests of another's now; empty: they may."""
        pause = self._by_owners.get((guest_user, host_user))
        if pause is None or steady_s >= pause.until_s:
            return ""
        return (
            f"jobs of {guest_user} lost their places beside {host_user}'s {_told(pause.times)}, soon after they started"
        )

    def owners_apart(self, steady_s: float) -> set[tuple[str, str]]:
        """Owners of guests and hosts that do not share now."""
        return {owners for owners, pause in self._by_owners.items() if steady_s < pause.until_s}

    def note_refused(self, job_id: int, why: str, asked: Mapping[str, str], steady_s: float) -> None:
        """A job cannot be a guest, whoever its host would be, with what it asks for."""
        known = self._by_job.get(job_id)
        times = known.pause.times + 1 if known is not None and known.asked == asked else 1
        pause = _Pause(times, steady_s + _doubled_s(FIRST_JOB_PAUSE_S, times))
        self._by_job[job_id] = _JobPause(pause, why, dict(asked))

    def why_refused(self, job: SlurmJob, steady_s: float) -> str:
        """Why a job that was refused is no guest now; empty: nothing is known, or it is time to ask again."""
        known = self._by_job.get(job.job_id)
        if known is None or steady_s >= known.pause.until_s or known.asked != shown_request(job):
            return ""
        return known.why

    def why_not(self, guest: int, hosts: Collection[int], steady_s: float) -> str:
        """Why these do not share now; empty: they may."""
        if why := self.why_no_guest(guest, steady_s):
            return why
        for host in hosts:
            if (min(guest, host), max(guest, host)) in self.apart:
                return f"it was parted from job {host}, and is not put beside it again"
            pause = self._by_pair.get((guest, host))
            if pause is not None and steady_s < pause.until_s:
                next_s = pause.until_s - steady_s
                return f"it failed to share with job {host} {_told(pause.times)}; next attempt in {next_s:.0f} s"
        return ""

    def standing(self, snapshot: SharingSnapshot, steady_s: float) -> list[tuple[int, int]]:
        """Pairs that do not share now, the smaller id first."""
        paused = {(min(pair), max(pair)) for pair, pause in self._by_pair.items() if steady_s < pause.until_s}
        jobs, shares = snapshot.jobs, snapshot.sharing.shares
        for guest_user, host_user in self.owners_apart(steady_s):
            waiting, running = (
                jobs.job_id[shares & (jobs.state == state) & (np.array(jobs.users)[jobs.user] == user)].tolist()
                for user, state in ((guest_user, JobState.PENDING), (host_user, JobState.RUNNING))
            )
            paused |= {(min(pair), max(pair)) for pair in itertools.product(waiting, running)}
        return sorted(pair for pair in paused | self.apart if pair[0] > 0)

    def is_edited(self, guest: int, steady_s: float) -> bool:
        """Whether its request was changed while it waited as a guest, a short time ago."""
        own = self._by_pair.get((guest, ANY_HOST))
        return own is not None and steady_s < own.until_s

    def keep(self, job_ids: Collection[int]) -> None:
        """Forget pairs of which one is no longer listed."""
        if not (self._by_pair or self._by_job or self.revoked or self.apart):
            return
        listed = {*job_ids, ANY_HOST, ANYBODY}
        self.revoked = Counter({guest: times for guest, times in self.revoked.items() if guest in listed})
        self._by_pair = {pair: pause for pair, pause in self._by_pair.items() if listed.issuperset(pair)}
        self._by_job = {job_id: known for job_id, known in self._by_job.items() if job_id in listed}
        self.apart = {pair for pair in self.apart if listed.issuperset(pair)}


def _lengthen(pauses: dict[_Key, _Pause], key: _Key, steady_s: float, *, first_s: float = FIRST_PAUSE_S) -> None:
    """Pause again, twice as long; what has done well for the longest pause begins anew."""
    known = pauses.get(key)
    times = known.times + 1 if known is not None and steady_s < known.until_s + MAX_PAUSE_S else 1
    pauses[key] = _Pause(times, steady_s + _doubled_s(max(first_s, FIRST_PAUSE_S), times))


def _told(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _doubled_s(first_s: float, times: int) -> float:
    return min(first_s * 2.0 ** min(times - 1, 30), MAX_PAUSE_S)


def _was_short(share: Share) -> bool:
    if share.started_s is None or share.ended_s is None:
        return True
    return share.ended_s - share.started_s < SHORT_RUN_S
