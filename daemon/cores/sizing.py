"""N_start of waiting jobs by their owners' histories, worked out once for all jobs that are alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_soda.daemon.store.cores import newest_fit, past_fits
from slurm_soda.policies.cores.resize import Resized, Waiting, resize
from slurm_soda.policies.cores.start import NodeMeans, PastFit
from sqlalchemy.orm import Session

MOST_KEPT = 20_000


@dataclass(slots=True)
class Sizing:
    """Histories as the store has them, read again when a fit has come."""

    _newest_fit: int = -1
    _past: dict[str, tuple[PastFit, ...]] = field(default_factory=dict)
    _resized: dict[tuple[str, Waiting, NodeMeans], Resized] = field(default_factory=dict)

    def refresh(self, session: Session) -> None:
        """Forget histories that may have grown."""
        newest = newest_fit(session)
        if newest != self._newest_fit or len(self._resized) > MOST_KEPT:
            self._newest_fit = newest
            self._past.clear()
            self._resized.clear()

    def past(self, session: Session, user: str) -> tuple[PastFit, ...]:
        """What searches found for a user's earlier jobs."""
        if user not in self._past:
            self._past[user] = tuple(past_fits(session, user))
        return self._past[user]

    def resized(self, session: Session, user: str, job: Waiting, node: NodeMeans) -> Resized:
        """What a job of this user should ask for."""
        key = (user, job, node)
        if key not in self._resized:
            self._resized[key] = resize(job, self.past(session, user), node)
        return self._resized[key]
