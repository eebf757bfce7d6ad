"""Lifts of a sodad that lives but completes no cycle: it takes them back itself, and so the requests of waiting guests.

Its heartbeat goes on, so nobody else would. Each lift rests on what a cycle saw of Slurm, and that is long past.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import SupersededError
from slurm_soda.daemon.cycle.plan_execution import PlanExecutor
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store import queries
from slurm_soda.slurm_ext.client import SlurmJob, site_factors_if_any
from slurm_soda.slurm_ext.write.guest_release import guest_release_changes
from slurm_soda.slurm_ext.write.job_changes import JobChange, release_changes

LEASES_WITHOUT_CYCLE = 3
"""After so many leases without a complete cycle lifts end; a slurmctld that is restarted has answered by then."""


@dataclass(slots=True)
class StaleLifts:
    """The time since the last complete cycle, and what is done when it becomes too long."""

    context: DaemonContext
    actor: PlanExecutor
    _complete_s: float = field(init=False)
    """When the last cycle was complete, by the steady clock; at first when this daemon began."""
    _tried_s: float = float("-inf")
    _said: str = ""

    def __post_init__(self) -> None:
        self.note_complete()

    def note_complete(self) -> None:
        """A cycle is complete: lifts are those of its plan."""
        self._complete_s, self._tried_s, self._said = self.context.clock.elapsed_s(), float("-inf"), ""

    def take_back(self) -> str:
        """Take all lifts back if no cycle has been complete for too long; again once a lease while that lasts, and in
        the next cycle where the limits on changes left some.

        Returns:
            What became of the lifts, for people; empty while they stand.

        Raises:
            SupersededError: a newer daemon has taken over; nothing more was sent.
        """
        now_s, lease_s = self.context.clock.elapsed_s(), self.context.lease.timing.duration_s
        if now_s - self._complete_s < LEASES_WITHOUT_CYCLE * lease_s or now_s - self._tried_s < lease_s:
            return self._said
        self._tried_s = now_s
        since = f"no cycle was complete for {now_s - self._complete_s:.0f} s"
        try:
            jobs = {job.job_id: job for job in self.context.client.jobs()}
            wanted = self._changes(list(jobs.values()), since)
            results = self.actor.send_outside_plan(wanted, jobs)
        except SupersededError:
            raise
        except Exception as error:  # noqa: BLE001 - called where a cycle has failed already: nothing may end the daemon there
            log(logging.ERROR, "lifts-not-ended", cause=since, error=error)
            return self._said
        refused, left = sum(bool(result.error) for result in results), len(wanted) - len(results)
        if wanted:
            log(logging.ERROR, "lifts-ended", cause=since, ended=len(results) - refused, refused=refused, left=left)
        if left:
            self._tried_s = float("-inf")  # the limits on changes allow more in the next cycle
        open_ends = [
            *([f"Slurm did not take {refused} of {len(wanted)} lifts back; this is tried again"] if refused else []),
            *([f"{left} of {len(wanted)} lifts are left for the next cycle"] if left else []),
        ]
        self._said = "; ".join(open_ends) or "lifts are taken back until a cycle is complete again"
        return self._said

    def _changes(self, jobs: Sequence[SlurmJob], since: str) -> list[JobChange]:
        """Of a job whose SiteFactor Slurm does not tell, the last recorded one counts."""
        shown = release_changes(jobs, site_factors_if_any(self.context.client))
        changes = [replace(change, reason=f"{since}: lifts end") for change in shown]
        hidden = [change.job_id for change in changes if not change.old]
        with self.context.store.read() as session:
            lifted = queries.recorded_lifts(session, hidden)
        guests, _ = guest_release_changes(self.context.client, jobs, f"{since}: guests get their own requests again")
        return guests + [change for change in changes if change.old or change.job_id in lifted]
