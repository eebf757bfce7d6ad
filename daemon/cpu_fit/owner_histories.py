"""N_start of waiting jobs by their owners' histories, worked out once for all jobs that are alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import newest_fit, past_fits, users_of_fits
from slurm_soda.policies.cpu_fit.request_resize import ResizedRequest, WaitingRequest, resize_request
from slurm_soda.policies.cpu_fit.start_cores import NodeCapacity, PastFit

MAX_KEPT = 20_000


@dataclass(slots=True)
class OwnerHistories:
    """Histories as the store has them, each read again when a fit of its owner has come."""

    _newest_fit: int = -1
    _first_revision: int = -1
    _revisions: dict[str, int] = field(default_factory=dict)
    _past: dict[str, tuple[PastFit, ...]] = field(default_factory=dict)
    _resized: dict[str, dict[tuple[WaitingRequest, NodeCapacity], ResizedRequest]] = field(default_factory=dict)
    _kept: int = 0
    """Entries of :attr:`_resized`."""

    def refresh(self, session: Session) -> None:
        """Forget histories that have grown."""
        newest = newest_fit(session)
        if self._newest_fit < 0 or newest < self._newest_fit:
            # Nothing is known yet, or fits are gone: every history may be another.
            self._first_revision = newest
            self._revisions.clear()
            self._past.clear()
            self._drop_resized()
        elif newest > self._newest_fit:
            for user in users_of_fits(session, after=self._newest_fit):
                self._revisions[user] = newest
                self._past.pop(user, None)
                self._kept -= len(self._resized.pop(user, {}))
        self._newest_fit = newest
        if self._kept > MAX_KEPT:
            self._drop_resized()

    def revision(self, user: str) -> int:
        """A number that changes when a user's history may have changed."""
        return self._revisions.get(user, self._first_revision)

    def past(self, session: Session, user: str) -> tuple[PastFit, ...]:
        """What searches found for a user's earlier jobs."""
        if user not in self._past:
            self._past[user] = tuple(past_fits(session, user))
        return self._past[user]

    def resized(self, session: Session, user: str, job: WaitingRequest, node: NodeCapacity) -> ResizedRequest:
        """What a job of this user should ask for."""
        known, key = self._resized.setdefault(user, {}), (job, node)
        if key not in known:
            known[key] = resize_request(job, self.past(session, user), node)
            self._kept += 1
        return known[key]

    def _drop_resized(self) -> None:
        self._resized.clear()
        self._kept = 0
