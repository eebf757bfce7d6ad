"""What must hold on the cluster whatever happens: after each event, and when a round has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.campaign.load import CampaignJob
from benchmarks.campaign.observation import AccountedRun, QueuedJob, Seen

RELEASED_WITHIN_S = 35.0
"""After the end of the lease: the timer comes every 10 s, and Python starts slowly on a loaded machine."""
SAME_DATE_S = 1.0
"""sodad dates its lock file every few seconds; between two looks, the age of one date grows by the time that passed."""
LOST_WITHIN_S = 20.0
"""slurmctld saves a submission some seconds after it took it; killed before, it forgets it."""
FAILED_WITHIN_S = 90.0
"""After a kill of slurmctld or slurmd a job may fail that Slurm started twice, or whose step it forgot."""
HOSTILE_USER = "carol"
"""Whose jobs may be anything."""
HOLDS = ("JobHeldUser", "JobHeldAdmin")
NODES = frozenset({"n1", "n2"})


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must hold and does not."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass(slots=True)
class RoundBook:
    """What the campaign did in this round: whose jobs there are, and when Slurm's own daemons were hurt."""

    jobs: dict[str, CampaignJob] = field(default_factory=dict)
    began_s: float = 0.0
    """Unix seconds; jobs from before are no concern of this round."""
    hurt_s: list[float] = field(default_factory=list)
    """Unix seconds of each kill and pause of slurmctld and slurmd."""
    forgiven: dict[str, int] = field(default_factory=dict)
    """Slurm's own faults by kind, which are no violations."""

    def hurt_between(self, first_s: float, last_s: float) -> bool:
        """Slurm was hurt in that time."""
        return any(first_s <= at_s <= last_s for at_s in self.hurt_s)

    def forgive(self, kind: str) -> None:
        """Count it."""
        self.forgiven[kind] = self.forgiven.get(kind, 0) + 1


@dataclass(slots=True)
class LookChecks:
    """The invariants of each look; remembers since when slurmctld has answered, and when sodad last showed life."""

    book: RoundBook
    lease_s: float
    answers_since_s: float | None = None
    _dated_s: float | None = None
    """Date of sodad's lock file at the last look: by sodad's clock, which the campaign sets."""
    _lived_s: float = 0.0
    _looked_s: float = 0.0

    def check(self, seen: Seen) -> list[Violation]:
        """All that does not hold in one look."""
        found = list(_store(seen))
        self._look_for_life(seen)
        if seen.jobs is None or seen.site_factors is None:
            self.answers_since_s = None
            return found
        if self.answers_since_s is None or self.book.hurt_between(self.answers_since_s, seen.at_s):
            self.answers_since_s = seen.at_s
        for job in seen.jobs:
            found += self._job(job, seen)
        return found + list(self._site_factors(seen.site_factors, seen))

    def _look_for_life(self, seen: Seen) -> None:
        if seen.lock_age_s is not None:
            dated_s = seen.at_s - seen.lock_age_s
            if self._dated_s is None or abs(dated_s - self._dated_s) > SAME_DATE_S:
                since_look = self._dated_s is None or self._looked_s <= dated_s <= seen.at_s
                self._lived_s = dated_s if since_look else seen.at_s  # by a clock that was set the date says nothing
            self._dated_s = dated_s
        self._looked_s = seen.at_s

    def _job(self, job: QueuedJob, seen: Seen) -> Iterator[Violation]:
        known = self.book.jobs.get(job.name)
        if known is None:
            if job.user != HOSTILE_USER and (job.submit_s or 0) >= self.book.began_s:
                yield Violation("nobody's job", f"{job.shown_id} of {job.user}, {job.name!r}, {job.state}")
            return
        if job.user != known.user:
            yield Violation("nobody's job", f"{job.shown_id} is of {job.user}, submitted by {known.user}")
        if job.state == "PENDING" and job.reason in HOLDS and not known.held:
            yield Violation("held", f"{job.shown_id} ({job.name}) shows {job.reason}")
        started = job.start_s is not None and job.state in ("RUNNING", "COMPLETED", "COMPLETING")
        if started and known.held:
            yield Violation("started", f"{job.shown_id} ({job.name}) is {job.state}; its owner holds it")
        if started and (job.start_s or 0) < known.not_before_s - 1:
            yield Violation(
                "started", f"{job.shown_id} ({job.name}) began {known.not_before_s - (job.start_s or 0):.0f} s early"
            )

    def _site_factors(self, factors: Mapping[str, int], seen: Seen) -> Iterator[Violation]:
        negative = {job: factor for job, factor in factors.items() if factor < 0}
        if negative:
            yield Violation("negative SiteFactor", f"{negative}")
        lifted = {job: factor for job, factor in factors.items() if factor > 0}
        limit_s = self.lease_s + RELEASED_WITHIN_S
        answered_s = seen.at_s - (self.answers_since_s or seen.at_s)
        silent_s = seen.at_s - self._lived_s
        if lifted and silent_s > limit_s and answered_s > RELEASED_WITHIN_S:
            yield Violation("stale SiteFactor", f"{lifted}; sodad showed no life for {silent_s:.0f} s")


def _store(seen: Seen) -> Iterator[Violation]:
    """What holds of the store at any time."""
    if not seen.store:
        return
    ((count, first, last),) = seen.store["actions"]
    if last - first + 1 != count:
        yield Violation("gap in the audit trail", f"{count} actions, numbers {first} to {last}")
    strange = {str(row[0]) for row in seen.store["agents"]} - NODES
    if strange:
        yield Violation("forged report", f"from {sorted(strange)}")
    if seen.store["settings"]:
        yield Violation("changed settings", f"{seen.store['settings']}")


def check_ended(jobs: Iterable[QueuedJob]) -> list[Violation]:
    """After the drain: every job has ended."""
    return [
        Violation("a job does not end", f"{job.shown_id} ({job.name}): {job.state}, {job.reason}")
        for job in jobs
        if not job.ended
    ]


def check_accounting(book: RoundBook, runs: Sequence[AccountedRun]) -> list[Violation]:
    """No job lost, and each ended as its owner wanted; what Slurm did itself after a kill is counted apart."""
    found = []
    by_name: dict[str, dict[int, AccountedRun]] = {}
    for run in runs:  # of the runs of one id the last one counts
        by_name.setdefault(run.name, {})[run.raw_id] = run
    for job in book.jobs.values():
        last = by_name.get(job.name, {})
        if len(last) < job.records and (job.acknowledged or last) and not job.cancelled:
            if book.hurt_between(job.submitted_s - 5, job.submitted_s + LOST_WITHIN_S):
                book.forgive("forgotten by a killed slurmctld")
            else:
                found.append(
                    Violation("lost", f"{job.name} ({job.job_id}): {len(last)} of {job.records} in accounting")
                )
        for run in last.values():
            found += _check_run(book, job, run)
    return found


def _check_run(book: RoundBook, job: CampaignJob, run: AccountedRun) -> Iterator[Violation]:
    if run.start_s is not None and run.start_s < job.not_before_s - 1:
        yield Violation("started", f"{job.name} ({run.raw_id}) at {run.start_s:.0f}, not before {job.not_before_s:.0f}")
    if run.state == "COMPLETED" or (job.cancelled and run.state == "CANCELLED"):
        return
    end_s = run.end_s or 0.0
    unknown = run.end_s is None and bool(book.hurt_s)
    # A slurmctld that forgot the end of a job shows it as running until its time limit, long after the kill.
    since_s = run.start_s if run.state == "TIMEOUT" and run.start_s is not None else end_s - FAILED_WITHIN_S
    if unknown or book.hurt_between(since_s, end_s + 5):
        book.forgive(f"ended {run.state} after a kill of Slurm's daemons")
    else:
        yield Violation("bad end", f"{job.name} ({run.raw_id}): {run.state}")


def check_trail(
    book: RoundBook, runs: Sequence[AccountedRun], store: Mapping[str, list[list[Any]]], *, exact: bool
) -> list[Violation]:
    """Nothing begun is left open, no requeue is doubled, and Slurm's accounting says the same of every job.

    Args:
        book: of the round.
        runs: Slurm's accounting.
        store: sodad's, at the end.
        exact: nobody but sodad and owners requeued; otherwise Slurm may have requeued by itself.
    """
    found = [Violation("action left open", f"{row}") for row in store["open_actions"]]
    found += [Violation("preemption left open", f"{row}") for row in store["open_preemptions"]]
    if len({tuple(row) for row in store["preempted"]}) != len(store["preempted"]):
        found.append(Violation("a run preempted twice", f"{store['preempted']}"))
    done: dict[int, int] = {}
    for job_id, _restart in store["preempted"]:
        done[job_id] = done.get(job_id, 0) + 1
    known = {int(row[0]): row for row in store["jobs"]}
    last = {run.raw_id: run for run in runs if run.name in book.jobs}
    for run in last.values():
        owner = book.jobs[run.name].requeued
        ours = done.get(run.raw_id, 0)
        if run.restarts < ours or (exact and run.restarts != ours + owner):
            asked = f"{ours} by sodad, {owner} by its owner"
            found.append(
                Violation("requeues differ", f"{run.name} ({run.raw_id}): {run.restarts} in accounting, {asked}")
            )
        row = known.get(run.raw_id)
        if row is not None and row[1] != run.state and run.end_s is not None and not book.hurt_s:
            found.append(Violation("states differ", f"{run.name} ({run.raw_id}): {row[1]}, in accounting {run.state}"))
    return found
