"""Pairs that did not come about, or fell apart at once, and jobs that cannot be guests: not tried again before a pause that
doubles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slurm_soda.daemon.sharing.share_state import FAILED_ENDS, Share
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

EDITED = "its request was changed while it waited as a guest"


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
        elif share.end in FAILED_ENDS or (share.end == "revoked" and _was_short(share)):
            for host in share.hosts:
                self._lengthen((share.guest, host), steady_s)

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
        if self.is_edited(guest, steady_s):
            return EDITED
        for host in hosts:
            if (min(guest, host), max(guest, host)) in self.apart:
                return f"it was parted from job {host}, and is not put beside it again"
            pause = self._by_pair.get((guest, host))
            if pause is not None and steady_s < pause.until_s:
                times = "once" if pause.times == 1 else f"{pause.times} times"
                return f"it failed to share with job {host} {times}; next attempt in {pause.until_s - steady_s:.0f} s"
        return ""

    def standing(self, steady_s: float) -> list[tuple[int, int]]:
        """Pairs that do not share now, the smaller id first."""
        paused = {(min(pair), max(pair)) for pair, pause in self._by_pair.items() if steady_s < pause.until_s}
        return sorted(pair for pair in paused | self.apart if pair[0] != ANY_HOST)

    def is_edited(self, guest: int, steady_s: float) -> bool:
        """Whether its request was changed while it waited as a guest, a short time ago."""
        own = self._by_pair.get((guest, ANY_HOST))
        return own is not None and steady_s < own.until_s

    def keep(self, job_ids: Collection[int]) -> None:
        """Forget pairs of which one is no longer listed."""
        if not (self._by_pair or self._by_job or self.apart):
            return
        listed = {*job_ids, ANY_HOST}
        self._by_pair = {pair: pause for pair, pause in self._by_pair.items() if listed.issuperset(pair)}
        self._by_job = {job_id: known for job_id, known in self._by_job.items() if job_id in listed}
        self.apart = {pair for pair in self.apart if listed.issuperset(pair)}

    def _lengthen(self, pair: tuple[int, int], steady_s: float) -> None:
        known = self._by_pair.get(pair)
        times = 1 if known is None else known.times + 1
        self._by_pair[pair] = _Pause(times, steady_s + _doubled_s(FIRST_PAUSE_S, times))


def _doubled_s(first_s: float, times: int) -> float:
    return min(first_s * 2.0 ** min(times - 1, 30), MAX_PAUSE_S)


def _was_short(share: Share) -> bool:
    if share.started_s is None or share.ended_s is None:
        return True
    return share.ended_s - share.started_s < SHORT_RUN_S
