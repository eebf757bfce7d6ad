"""Cancel and resubmit resets no attained service: a job inherits that of one cancelled job of its owner, name and GPUs.

Attained service is what a policy such as Tiresias orders jobs by, so a job that is cancelled and submitted anew would
otherwise go before all that have run. The rule is exact and moves no service to anybody else:

- Only a **cancelled** job passes its service on, all of it, what it had inherited itself included. A job that completed,
  failed, ran out of time or memory, or lost its node has had its turn and passes on nothing; nor does one without service.
- Each cancelled job has **one successor at most**, and each job one predecessor. So of a sweep of many jobs with one name,
  as many are set back as were cancelled, each by the service of one.
- A successor was submitted after the cancelled job first ran (a sweep that was submitted at once has none), at most
  :data:`INHERIT_WITHIN_S` after its end, and had not started before that end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INHERIT_WITHIN_S = 86_400.0
"""Who waits for a day to be new again has waited longer than it gains: our choice."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a job and its successor have in common; the number of nodes is often Slurm's choice, and different each time."""

    user: str
    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class CancelledService:
    """What a cancelled job leaves."""

    key: int
    """Names the job."""
    identity: JobIdentity
    since_s: float
    """Its first start, or its submission where it never ran."""
    end_s: float
    executed_s: float
    """Run time that counts as attained service."""


@dataclass(frozen=True, slots=True)
class SuccessorCandidate:
    """A job without a predecessor."""

    key: int
    identity: JobIdentity
    submit_s: float
    first_start_s: float
    """Infinite for one that has not run."""


def match_successors(
    cancelled: Iterable[CancelledService], jobs: Iterable[SuccessorCandidate]
) -> dict[int, CancelledService]:
    """Which of these jobs inherit from whom: by the key of the job.

    Jobs choose in the order of their submission, and take the most service that they may inherit: so a short cancelled job
    hides no long one.

    Complexity: O(n log n), and O(cancelled jobs of one identity) for each of its new jobs.
    """
    left: dict[JobIdentity, list[CancelledService]] = {}
    for service in cancelled:
        if service.executed_s > 0 and service.identity.gpus:
            left.setdefault(service.identity, []).append(service)
    since_s = {identity: min(service.since_s for service in services) for identity, services in left.items()}
    found: dict[int, CancelledService] = {}
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.key)):
        offered = left.get(job.identity, ())
        if not offered or job.submit_s < since_s[job.identity]:
            continue
        allowed = [
            service
            for service in offered
            if service.since_s <= job.submit_s <= service.end_s + INHERIT_WITHIN_S
            and job.first_start_s >= service.end_s
        ]
        if allowed:
            service = max(allowed, key=lambda service: (service.executed_s, service.end_s, -service.key))
            found[job.key] = service
            left[job.identity].remove(service)
    return found
