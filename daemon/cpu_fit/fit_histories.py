"""What the store knows of earlier jobs' fits, by owner, read again only when there are new ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import newest_fit, past_fits, users_of_fits
from slurm_soda.policies.cpu_fit.start_cores import FitHistory


@dataclass(slots=True)
class FitHistories:
    """Histories by owner. Call :meth:`refresh` in every cycle."""

    _newest_fit: int = -1
    _by_user: dict[str, FitHistory] = field(default_factory=dict)

    def refresh(self, session: Session) -> set[str]:
        """Forget histories that may have changed; gives their owners."""
        newest, before = newest_fit(session), self._newest_fit
        if newest == before:
            return set()
        # Where fits are gone, every history may be another.
        owners = set(users_of_fits(session, after=before)) if newest > before else set(self._by_user)
        for user in owners:
            self._by_user.pop(user, None)
        self._newest_fit = newest
        return owners

    def of(self, session: Session, user: str) -> FitHistory:
        """One owner's history."""
        if user not in self._by_user:
            self._by_user[user] = FitHistory(tuple(past_fits(session, user)))
        return self._by_user[user]
