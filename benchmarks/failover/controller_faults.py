"""Faults of the primary controller: what is done to its slurmctld and its sodad, and what follows.

One daemon is killed, or stopped and continued, or both are with what supervises them, as when the host loses its power or
stands still. A slurmctld that is stopped still has its port open, so each Slurm command asks it and waits in vain, although
the backup has taken control: Slurm answers again when the stopped one goes on, or is ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isinf
from typing import Literal

from sqlalchemy import select

from benchmarks.failover.controller_pair import CYCLE_S, LEASE_S, ControllerPair, SentChunk
from slurm_soda.containers.cluster_spec import BACKUP_CONTROLLER, CONTROLLER, ClusterError
from slurm_soda.daemon.main import EXIT_SUPERSEDED
from slurm_soda.daemon.store import audit_log, queries
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, Action, Cycle, Epoch, Standby
from slurm_soda.slurm_ext.read.sprio import SPRIO_COMMAND, parse_sprio_lines

Daemons = tuple[Literal["slurmctld", "sodad"], ...]
TARGETS: tuple[Daemons, ...] = (("slurmctld", "sodad"), ("sodad",), ("slurmctld",))
Fault = Literal["kill", "pause"]

ACTS_WITHIN_S = 240.0
SETTLES_WITHIN_S = 90.0
TIMER_S = 15.0
"""The timer that ends lifts of a silent sodad comes every 10 s, and then takes its time."""

_OF_BOTH = "group=$(cut -d' ' -f5 /proc/$pid/stat); [ {whole} = no ] || kill -{signal} -$group 2>/dev/null; "
_SIGNAL = """date +%s.%N
for name in {names}; do
    {before}pid=$(cat /run/cluster/$name.pid)
    {group}kill -{signal} $pid 2>/dev/null
done; true"""
_START = """for name in {names}; do
    pgrep -f "[d]aemonctl supervise $name" >/dev/null || rmdir /run/cluster/$name.supervised 2>/dev/null
    daemonctl start $name
done"""


@dataclass(frozen=True, slots=True)
class ControllerFault:
    """What one fault of the primary led to."""

    daemons: Daemons
    fault: Fault
    answers_after_s: float
    """From the fault until Slurm answered a question put after it."""
    began_early_s: float
    """How long before lease and command time-out were over the successor began; not above 0 if all is well."""
    acted_after_s: float
    """From the instant at which Slurm answered and a sodad might act to the first change that Slurm took."""
    acted_in_cycle: int
    """The number of the cycle, of those begun after that instant, in which it was sent."""
    moved: bool
    """The backup's sodad leads."""
    stale_chunks: int
    """Chunks of the old leader that began after the take-over."""
    stale_landed: int
    """Chunks that it began before, and that ended after the take-over."""
    unsettled: int
    """Changes of the old leader that nobody settled."""
    unrecorded: int
    """Updates that the old leader sent and the store does not know."""
    exit_status: int | None
    """Of a paused sodad that went on."""
    lifted_for_s: float
    """While no sodad led: how long after the fault jobs were last seen with a lift."""
    stale_lifts: int
    """Waiting jobs at the end whose SiteFactor is not the one that was recorded last."""
    job_started_after_s: float
    """From Slurm's answer to the next start of a job."""

    def violations(self) -> list[str]:
        """What must not have happened."""
        hit = "sodad" in self.daemons
        found = []
        if self.began_early_s > 0:
            found.append(f"took over {self.began_early_s:.3f} s too early")
        if self.acted_in_cycle > 2:
            found.append(f"acted in its cycle {self.acted_in_cycle} only")
        if self.moved != hit:
            found.append("the backup's sodad leads" if self.moved else "the backup's sodad does not lead")
        if self.stale_chunks > (1 if hit and self.fault == "pause" else 0):
            found.append(f"{self.stale_chunks} chunks of the old leader began after the take-over")
        if hit and self.fault == "pause" and self.exit_status != EXIT_SUPERSEDED:
            found.append(f"the paused sodad ended with status {self.exit_status}")
        if self.daemons == ("sodad",) and self.lifted_for_s > LEASE_S + TIMER_S:
            found.append(f"lifts of a silent sodad stood for {self.lifted_for_s:.0f} s")
        if isinf(self.job_started_after_s):
            found.append("no job started")
        counts = {
            "late chunks": self.stale_landed, "unsettled updates": self.unsettled, "unrecorded updates": self.unrecorded,
            "stale lifts": self.stale_lifts,
        }  # fmt: skip
        return found + [f"{count} {name}" for name, count in counts.items() if count]


class FaultRounds:
    """Does one fault after the other, and mends it."""

    def __init__(self, pair: ControllerPair, seed: int) -> None:
        self.pair, self._random = pair, random.Random(seed)

    def prepare(self) -> Epoch:
        """The primary is whole and its sodad leads, works and is waited for; its epoch."""
        cluster = self.pair.cluster
        cluster.wait_until(self.pair.is_whole, "both slurmctlds answer and the nodes work", within_s=180)
        cluster.wait_until(lambda: bool(self._epochs(0)), "a sodad leads", within_s=120)
        if self._leader().host != CONTROLLER:
            cluster.wait_until(lambda: self._waits(CONTROLLER), "the primary's sodad waits", within_s=120)
            cluster.stop("sodad", node=BACKUP_CONTROLLER)
            cluster.wait_until(lambda: self._leader().host == CONTROLLER, "the primary's sodad leads", within_s=60)
            cluster.start("sodad", node=BACKUP_CONTROLLER)
        cluster.wait_until(lambda: self._waits(BACKUP_CONTROLLER), "the backup's sodad waits", within_s=120)
        leader, since_s = self._leader(), time.time()
        cluster.wait_until(lambda: self._done(leader.id, since_s) is not None, "changes are made", within_s=120)
        return leader

    def run(self, daemons: Daemons, fault: Fault) -> ControllerFault:
        """One fault at a random instant.

        Raises:
            ClusterError: something did not come within its time.
        """
        old = self.prepare()
        ends = self._ends()
        time.sleep(self._random.uniform(0, 2 * CYCLE_S))
        at_s = self._signal(daemons, "KILL" if fault == "kill" else "STOP")
        hit = "sodad" in daemons
        if fault == "pause" and "slurmctld" in daemons:
            if hit:
                self._wait(lambda: self._epochs(old.id), "the backup's sodad leads")
                time.sleep(self._random.uniform(0, 10))
            else:
                time.sleep(self._random.uniform(10, 40))
            old = self._epoch(old.id)  # one that goes on writes when it ends
            self._signal(daemons, "CONT")
        self._wait(lambda: self.pair.answers(at_s), "Slurm answers")
        acting = self._acting(old, hit=hit)
        self._wait(lambda: self._done(acting().id, at_s), "a sodad acts")
        if "slurmctld" not in daemons or fault == "kill":
            old = self._epoch(old.id)
        if fault == "pause" and "slurmctld" not in daemons:
            time.sleep(self._random.uniform(0, 3))
            self._signal(daemons, "CONT")
        if fault == "kill":
            self.pair.shell(_START.format(names=" ".join(daemons)))
        if hit and fault == "pause":
            with suppress(ClusterError):
                self._wait(lambda: len(self._ends()) > len(ends), "the paused sodad has ended", 60)
        return self._judge(daemons, fault, (old, acting()), at_s, self._ends()[len(ends) :])

    def _acting(self, old: Epoch, *, hit: bool) -> Callable[[], Epoch]:
        """Who should act after the fault."""
        return lambda: (self._successor(old) if hit else None) or self._epoch(old.id)

    def _wait(self, condition: Callable[[], object], what: str, within_s: float = ACTS_WITHIN_S) -> None:
        self.pair.cluster.wait_until(lambda: bool(condition()), what, within_s)

    def _signal(self, daemons: Daemons, signal: str) -> float:
        """To the daemons of the primary at once, with their supervisors where it is the whole controller; when."""
        script = _SIGNAL.format(
            names=" ".join(daemons),
            signal=signal,
            before="rm -f /run/cluster/$name.keep; " if signal == "KILL" else "",
            group=_OF_BOTH.format(whole="yes" if len(daemons) > 1 else "no", signal=signal),
        )
        return float(self.pair.shell(script).split()[0])

    # What the store says

    def _epochs(self, after: int) -> list[Epoch]:
        """Those of sodads after one, the oldest first."""
        with self.pair.store.read() as session:
            query = select(Epoch).where(Epoch.pid != NO_DAEMON, Epoch.id > after).order_by(Epoch.id)
            return list(session.scalars(query).all())

    def _leader(self) -> Epoch:
        return self._epochs(0)[-1]

    def _successor(self, old: Epoch) -> Epoch | None:
        return next(iter(self._epochs(old.id)), None)

    def _epoch(self, epoch_id: int) -> Epoch:
        return self._epochs(epoch_id - 1)[0]

    def _waits(self, host: str) -> bool:
        """A sodad there has shown lately that it waits."""
        with self.pair.store.read() as session:
            seen_s = session.scalar(select(Standby.seen_s).where(Standby.host == host))
        return seen_s is not None and time.time() - seen_s < 15 and self.pair.cluster.alive("sodad", node=host)

    def _done(self, epoch_id: int, since_s: float) -> Action | None:
        """The first change that this daemon recorded since then and Slurm took."""
        with self.pair.store.read() as session:
            query = select(Action).where(
                Action.epoch_id == epoch_id, Action.created_s > since_s, Action.state.in_(("done", "undone"))
            )
            return session.scalars(query.order_by(Action.id).limit(1)).first()

    def _unsettled(self, epoch_id: int, before_s: float) -> int:
        with self.pair.store.read() as session:
            query = select(Action.id).where(
                Action.epoch_id == epoch_id, Action.created_s < before_s, Action.state.in_(audit_log.UNSETTLED_STATES)
            )
            return len(session.scalars(query).all())

    def _ends(self) -> list[int]:
        """Statuses with which the primary's sodads have ended."""
        said = self.pair.shell("grep -a 'daemonctl: sodad ended with status' /var/log/cluster/sodad.log; true")
        return [int(line.rsplit(" ", 1)[1]) for line in said.splitlines()]

    # What Slurm says

    def _stale_lifts(self) -> set[int]:
        """Jobs whose SiteFactor is not the last recorded one, at look after look: a sodad records before it sends."""
        looks = self._unrecorded_lifts()
        until_s = time.monotonic() + SETTLES_WITHIN_S
        while looks and time.monotonic() < until_s:
            time.sleep(1.0)
            looks &= self._unrecorded_lifts()
        return looks

    def _unrecorded_lifts(self) -> set[int]:
        said = self.pair.cluster.exec("root", SPRIO_COMMAND, node=BACKUP_CONTROLLER).check().stdout
        lifts = {job: factor for job, factor in parse_sprio_lines(said).items() if factor}
        with self.pair.store.read() as session:
            recorded = queries.last_site_factors(session, list(lifts))
        return {job for job, factor in lifts.items() if recorded.get(job) != str(factor)}

    def _started(self, after_s: float) -> list[float]:
        """Starts of jobs since then, of those that Slurm still shows."""
        argv = ("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--states=R,CG,CD", "--format=%S")
        said = self.pair.cluster.exec("root", argv, node=BACKUP_CONTROLLER).stdout.split()
        return sorted(float(start) for start in said if start.isdigit() and float(start) >= after_s)

    def _judge(
        self, daemons: Daemons, fault: Fault, epochs: tuple[Epoch, Epoch], at_s: float, ends: Sequence[int]
    ) -> ControllerFault:
        old, new = epochs
        hit, answers = "sodad" in daemons, self.pair.answers(at_s)
        answers_s = answers[0].ended_s
        free_s = old.heartbeat_s + old.take_over_after_s
        may_s = max(answers_s, free_s) if hit else answers_s
        over_s = new.started_s if hit else at_s
        first = self._done(new.id, at_s)
        assert first is not None
        for condition, what in (
            (lambda: not self._unsettled(old.id, over_s), "all is settled"),
            (lambda: self._started(answers_s), "jobs start"),
        ):
            with suppress(ClusterError):
                self._wait(condition, what, SETTLES_WITHIN_S)
        started, stale = self._started(answers_s), self._stale_lifts()
        chunks = [chunk for chunk in self.pair.chunks() if (chunk.host, chunk.sender) == (old.host, old.pid)]
        late = [chunk for chunk in chunks if hit and chunk.began_s > over_s]
        return ControllerFault(
            daemons=daemons,
            fault=fault,
            answers_after_s=answers_s - at_s,
            began_early_s=free_s - over_s if hit else 0.0,
            acted_after_s=(first.finished_s or first.created_s) - may_s,
            acted_in_cycle=self._cycle_number(new.id, may_s, first),
            moved=new.host == BACKUP_CONTROLLER,
            stale_chunks=len(late),
            stale_landed=sum(hit and chunk.began_s <= over_s < (chunk.ended_s or 0.0) for chunk in chunks),
            unsettled=self._unsettled(old.id, over_s),
            unrecorded=self._unrecorded(old.id, chunks),
            exit_status=ends[0] if ends else None,
            lifted_for_s=max(
                (one.ended_s - at_s for one in answers if one.lifts and one.ended_s < over_s), default=0.0
            ),
            stale_lifts=len(stale),
            job_started_after_s=started[0] - answers_s if started else inf,
        )

    def _cycle_number(self, epoch_id: int, since_s: float, first: Action) -> int:
        """Of the cycle of a change, among those begun since then that wanted a change or failed; at least 1."""
        with self.pair.store.read() as session:
            query = select(Cycle).where(
                Cycle.epoch_id == epoch_id, Cycle.started_s > since_s, Cycle.id < (first.cycle_id or 0)
            )
            return 1 + sum(bool(cycle.planned or cycle.error) for cycle in session.scalars(query))

    def _unrecorded(self, epoch_id: int, chunks: Sequence[SentChunk]) -> int:
        with self.pair.store.read() as session:
            rows = session.execute(select(Action.job_id, Action.new).where(Action.epoch_id == epoch_id))
            known = {(job_id, new.get("SiteFactor")) for job_id, new in rows}
        return sum(update not in known for chunk in chunks for update in chunk.updates)
