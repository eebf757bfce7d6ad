"""What searches found for owners' earlier jobs, as the store has it: read again only when a fit has come."""

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

    def refresh(self, session: Session) -> None:
        """Forget histories that have grown."""
        newest = newest_fit(session)
        if self._newest_fit < 0 or newest < self._newest_fit:
            self._by_user.clear()  # fits are gone: every history may be another
        elif newest > self._newest_fit:
            for user in users_of_fits(session, after=self._newest_fit):
                self._by_user.pop(user, None)
        self._newest_fit = newest

    def of(self, session: Session, user: str) -> FitHistory:
        """One owner's history."""
        if user not in self._by_user:
            self._by_user[user] = FitHistory(tuple(past_fits(session, user)))
        return self._by_user[user]
