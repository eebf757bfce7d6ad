"""A policy that keeps its own state: it only needs to hear who a job's user is, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.session.event_session import EventSession
from slurm_soda.policies.session.ranking import SessionJob


class EventDecider:
    """Passes everything on."""

    def __init__(self, session: EventSession, users: Sequence[int], shapes: Sequence[int]) -> None:
        """``users`` and ``shapes``: numbers of each job's user, and of its request when it is submitted, by row."""
        self._users, self._shapes = users, shapes
        self._submit = session.submit
        self.end, self.stopped, self.started = session.end, session.stopped, session.started
        self.changed, self.adopt = session.changed, session.adopt
        self.decide, self.next_event_s = session.decide, session.next_event_s

    def submit(self, job: SessionJob) -> None:
        row = job.job_id - 1
        job.user, job.shape = self._users[row], self._shapes[row]
        self._submit(job)
