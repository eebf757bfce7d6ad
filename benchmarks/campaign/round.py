"""One round: events by the clock, a look after each, then everything healed, the queue drained, and all of it checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import slurm_repairs
from benchmarks.campaign import faults, hostile, leftovers
from benchmarks.campaign.invariants import (
    HOLDS,
    LookChecks,
    RoundBook,
    Violation,
    check_accounting,
    check_ended,
    check_trail,
)
from benchmarks.campaign.observation import QueuedJob, Seen
from benchmarks.campaign.owners import Owners
from benchmarks.campaign.schedule import LOAD, Event, has_pools, is_rough
from benchmarks.campaign.site import LEASE_S, CampaignSite
from slurm_soda.slurm_ext.errors import SodaError

DRAINED_WITHIN_S = 330.0
"""The longest job, behind all others, and two minutes for one that was just requeued."""
SETTLED_WITHIN_S = 60.0
GHOST_AFTER_S = 150.0
"""The longest job takes 30 s, and three times that with the fewest cores that it may get."""
LOOK_S = 4.0
"""On a machine that cannot keep up, events that are due follow each other, and a look comes at least so often."""
REQUEUE_UNTIL = 0.5
"""Share of a round in which owners requeue: Slurm lets such a job wait for two minutes."""
HURTS_SLURM = frozenset({"kill-slurmctld", "pause-slurmctld", "kill-slurmd"})
POOLS = "sodactl pools apply --cpu-cores 8 --large-nodes 1"
NO_POOLS = "sodactl pools revert --wait --force"


@dataclass(slots=True)
class RoundRecord:
    """What came of a round, as the report needs it."""

    seed: int
    number: int
    began_s: float
    took_s: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    """Jobs by state in accounting."""
    forgiven: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    actions: int = 0
    most_lifts: int = 0
    looks: int = 0
    latest_s: float = 0.0
    """By how much an event came late at most."""
    violations: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class RoundRunner:
    """Runs the events of one round on a cluster."""

    def __init__(self, site: CampaignSite, seed: int, number: int, say: Callable[[str], None]) -> None:
        self._site, self._number, self._say = site, number, say
        self.record = RoundRecord(seed, number, time.time())
        self.done: list[Event] = []
        self._book = RoundBook(began_s=self.record.began_s)
        self._checks = LookChecks(self._book, LEASE_S)
        self._found: dict[tuple[str, str], Violation] = {}
        self._owners = Owners(site.cluster, self._book, number, self._violate)
        self._hooks_before, self._looked_s = 0, 0.0
        self._impostor_until_s: dict[str, float] = {}
        """By node whose requests another server answers, with status 200 to whatever it gets."""
        self._mended: dict[str, int] = {}
        """Slurm's own faults up to the last checks, which are made several times."""

    def run(self, events: Sequence[Event], seconds: float) -> RoundRecord:
        """All of it; ``seconds`` is the length of the part with faults."""
        self._hooks_before = len(self._hits())
        if has_pools(self._number):
            self._site.shell(POOLS)
        began_s = time.monotonic()
        for event, following in zip(events, (*events[1:], None), strict=True):
            self._follow_up(began_s + event.at_s)
            time.sleep(max(0.0, began_s + event.at_s - time.monotonic()))
            self.record.latest_s = max(self.record.latest_s, time.monotonic() - began_s - event.at_s)
            if event.kind != "requeue" or event.at_s < REQUEUE_UNTIL * seconds:
                self._do(event)
            if not self._is_late(began_s, following) or time.monotonic() - self._looked_s > LOOK_S:
                self._look()
        self._follow_up(began_s + seconds + 60)
        self._heal()
        drained = self._drain()
        if has_pools(self._number):
            self._site.shell(NO_POOLS, timeout_s=90)
        self._check_end(drained)
        self.record.took_s = time.time() - self.record.began_s
        self.record.violations = [str(violation) for violation in self._found.values()]
        self.record.forgiven = self._book.forgiven
        hits = self._hits()[self._hooks_before :]
        self.record.kills["hooks"] += sum(" hit " in line for line in hits)
        return self.record

    # Events

    @staticmethod
    def _is_late(began_s: float, event: Event | None) -> bool:
        return event is not None and time.monotonic() > began_s + event.at_s

    def _do(self, event: Event) -> None:
        self.done.append(event)
        self.record.events[event.kind] += 1
        try:
            if event.kind in LOAD:
                self._owners.act(event)
            elif event.kind == "hostile":
                self._attempt(event)
            elif event.kind != "clock" or self._site.has_clock:
                self._hurt(event)
        except SodaError as error:
            self._say(f"  {event.kind}: {error}")

    def _hurt(self, event: Event) -> None:
        if event.kind in HURTS_SLURM:
            self._book.hurt_s.append(time.time())
        if event.kind == "network":
            node, for_s = event.values["node"], event.values["for_s"]
            self._impostor_until_s[node] = max(self._impostor_until_s.get(node, 0.0), time.monotonic() + for_s + 2)
        what = faults.fault(event)
        status = self._site.shell(what.script, what.host)
        target, times = faults.kills(event)
        if status == 0 and target:
            self.record.kills[target] += times
        if event.kind in HURTS_SLURM:
            self._book.hurt_s.append(time.time() + event.values.get("for_s", 0.0))
        if event.kind == "second-sodad" and event.values["how"] == "same" and status:
            self._violate([Violation("two sodads", "a second one with the same lock was not refused")])

    def _attempt(self, event: Event) -> None:
        attempt = hostile.ATTEMPTS[event.values["attempt"]]
        host = event.values["node"] if attempt.on_node else faults.CONTROLLER
        asks_sodad = time.monotonic() > self._impostor_until_s.get(host, 0.0)
        status = self._site.shell(attempt.command, host, "carol", 40.0)
        if attempt.refused and status == 0 and asks_sodad:
            self._violate([Violation("hostile", f"{event.values['attempt']} was not refused")])

    def _follow_up(self, until_s: float) -> None:
        while self._owners.follow_up(until_s):
            self._look()

    # Looking

    def _look(self) -> Seen | None:
        try:
            seen = self._site.seen()
        except (SodaError, ValueError) as error:
            self._say(f"  no look: {error}")
            return None
        self.record.looks += 1
        self._looked_s = time.monotonic()
        self.record.most_lifts = max(
            self.record.most_lifts, sum(factor > 0 for factor in (seen.site_factors or {}).values())
        )
        released = self._repair(seen)
        jobs = None if seen.jobs is None else tuple(job for job in seen.jobs if job.name not in released)
        self._violate(self._checks.check(replace(seen, jobs=jobs)))
        return seen

    def _repair(self, seen: Seen) -> set[str]:
        """As an admin would, after Slurm's daemons were killed; the jobs that were released just now."""
        released: set[str] = set()
        if not self._book.hurt_s:
            found = [Violation("node drained", f"{node}: {reason}") for node, reason in seen.drained.items()]
            self._violate(found)
        for what in slurm_repairs.resume_nodes(self._site.cluster, seen.drained):
            self._book.forgive(what)
        waiting = {job.shown_id: job.reason for job in seen.jobs or () if job.state == "PENDING"}
        for what in slurm_repairs.release_jobs(self._site.cluster, waiting):
            self._book.forgive(what)
        if self._book.hurt_s:
            for job in seen.jobs or ():  # slurmctld forgot that the owner cancelled it, or released it
                if job.name == hostile.JOB_NAME and job.state == "PENDING" and job.reason in HOLDS:
                    self._book.forgive("cancellation forgotten by a killed slurmctld")
                    self._site.cluster.exec("root", ("scancel", job.shown_id))
                known = self._book.jobs.get(job.name)
                if known and not known.held and job.state == "PENDING" and job.reason in HOLDS:
                    known.held = True
                    self._book.forgive("release forgotten by a killed slurmctld")
                    self._owners.release(known)
                    released.add(job.name)
        return released

    def _violate(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            # The same one is told once, however often it is seen with other numbers; of what is left each thing is told.
            left = violation.invariant.startswith("left")
            key = (violation.invariant, violation.what if left else violation.what.partition(" ")[0])
            if key not in self._found:
                self._found[key] = violation
                self._say(f"  VIOLATION after {len(self.done)} events: {violation}")

    def _hits(self) -> list[str]:
        left = self._site.left()
        return [line for host in sorted(left) for line in left[host]["hooks"].splitlines()]

    # The end

    def _heal(self) -> None:
        self._site.shell(faults.HEAL_CONTROLLER)
        for node in self._site.cluster.spec.node_names:
            self._site.shell(faults.HEAL_NODE, node)

    def _drain(self) -> bool:
        """Wait until every job has ended; whether they did."""
        until_s = time.monotonic() + DRAINED_WITHIN_S
        while True:
            seen = self._look()
            jobs = [job for job in seen.jobs if not job.ended] if seen and seen.jobs is not None else None
            if jobs == []:
                return True
            if jobs and self._book.hurt_s:
                self._cancel_ghosts([job for job in jobs if job.started_before(time.time() - GHOST_AFTER_S)])
            if time.monotonic() > until_s:
                self._violate(check_ended(jobs or []))
                for user in ("alice", "bob", "carol"):
                    self._site.shell(f"scancel --user={user}")
                return False
            self._follow_up(time.monotonic())
            time.sleep(1.5)

    def _cancel_ghosts(self, jobs: Sequence[QueuedJob]) -> None:
        """slurmctld, killed, forgot that a job had ended: it shows the job as running until its limit, on an empty node."""
        hosts = self._site.left() if jobs else {}
        if not jobs or any(leftovers.has_users_processes(hosts[node]) for node in self._site.cluster.spec.node_names):
            return
        for job in jobs:
            if job.name in self._book.jobs:
                self._book.jobs[job.name].cancelled = True
            self._book.forgive("end forgotten by a killed slurmctld")
            self._site.cluster.exec("root", ("scancel", job.shown_id.partition("+")[0]))

    def _check_end(self, drained: bool) -> None:
        # Slurm has no job any more: whoever waits for the start of one waits for ever.
        if drained and self._book.hurt_s and self._site.shell("pkill -x 'srun|salloc'") == 0:
            self._book.forgive("srun or salloc of a job that a killed slurmctld forgot")
        self._mended = dict(self._book.forgiven)
        until_s = time.monotonic() + SETTLED_WITHIN_S
        while (found := self._last_checks()) and time.monotonic() < until_s:
            time.sleep(4.0)
        if drained or not found:
            self._violate(found)

    def _last_checks(self) -> list[Violation]:
        """All that must hold in the end; it may take sodad and the agents some seconds."""
        book = self._book
        book.forgiven = dict(self._mended)
        seen = self._site.seen()
        slurm, runs = self._site.accounting(self.record.began_s - 2)
        exact = not is_rough(self._number) and not has_pools(self._number)
        found = check_accounting(book, runs)
        if not seen.store:
            found.append(Violation("store", "it cannot be read"))
        else:
            found += check_trail(book, runs, seen.store, exact=exact)
            ((_, error, mode),) = seen.store["cycle"]
            if error or mode != "enforce":
                found.append(Violation("sodad does not recover", f"{mode}: {error}"))
            self.record.actions, self.record.preemptions = seen.store["actions"][0][0], len(seen.store["preempted"])
        found += leftovers.check_slurm(self._site.before["slurm"], slurm)
        for host, now in self._site.left().items():
            found += leftovers.check_left(host, self._site.before[host], now)
        last = {run.raw_id: run.state for run in runs}
        self.record.ends = Counter(last.values())
        return found
