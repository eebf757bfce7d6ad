"""A daemon over a real SQLite store and the small Slurm, which can be killed at every point where it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup, AccountingQuery
from slurm_soda.daemon.cycle.cycle import CycleRunner
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import begin_epoch
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.cycle.recorder import CycleReport
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.scheduling import Action, Cycle, Job, JobRun, Preemption
from slurm_soda.slurm_ext.client import Allocation, JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmReplyError, SodaError
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.wire.records import NodeReport
from slurm_soda.wire.walls import NodeWalls
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.sampling import thorough


class KilledError(BaseException):
    """kill -9: nothing that catches errors may see it."""


@dataclass
class Killer:
    """Counts the points that a daemon passes and kills it at one of them."""

    at: int = -1
    passed: int = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise KilledError


@dataclass(frozen=True, slots=True)
class MortalStore(Store):
    """A store whose user can die before, in and after every write."""

    killer: Killer = field(default_factory=Killer)

    @contextmanager
    def write(self) -> Iterator[Session]:
        self.killer.point()
        with Store.write(self) as session:
            yield session
            self.killer.point()
        self.killer.point()


@dataclass
class MortalClient:
    """A client whose user can die before and after everything that changes Slurm."""

    slurm: FakeSlurm
    killer: Killer

    def jobs(self) -> list[SlurmJob]:
        return self.slurm.jobs()

    def nodes(self) -> list[SlurmNode]:
        return self.slurm.nodes()

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        return self.slurm.waiting_jobs()

    def site_factors(self) -> dict[int, int]:
        return self.slurm.site_factors()

    def priority_parts(self) -> dict[int, ShownPriority]:
        return self.slurm.priority_parts()

    def most_earned_priority(self) -> int:
        return self.slurm.most_earned_priority()

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        return self.slurm.allocations(job_ids)

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        return self.slurm.extras(job_ids)

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        return self.slurm.array_throttles(arrays)

    def request(self, job_id: int) -> JobRequest:
        return self.slurm.request(job_id)

    def partition_limits(self) -> dict[str, PartitionLimits]:
        return self.slurm.partition_limits()

    def partition_tiers(self) -> dict[str, int]:
        return self.slurm.partition_tiers()

    def boot_s(self) -> float:
        return self.slurm.boot_s()

    def version(self) -> str:
        return self.slurm.version()

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        return self._mortal(lambda: self.slurm.update(updates))

    def signal(self, job_id: int, signal: str) -> None:
        self._mortal(lambda: self.slurm.signal(job_id, signal))

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        self._mortal(lambda: self.slurm.requeue(job_id, ended=ended))

    def _mortal(self, act: Callable[[], Any]) -> Any:
        self.killer.point()
        result = act()
        self.killer.point()
        return result


ENFORCE = {
    "mode": "enforce",
    "policy": {"name": "tiresias-las", "parameters": {"thresholds_gpu_s": [100.0]}},
    "change_limits": {"min_change_interval_s": 0.0},
    "slurm": {"accounting": False},
}


def settings(**more: Any) -> Settings:
    return Settings.model_validate({**ENFORCE, **more})


def store_url(path: Path) -> str:
    """Of the store that a directory is for: its file, or the database that it names."""
    named = path / "store.url"
    return named.read_text() if named.exists() else f"sqlite:///{path}/soda.db"


class AtOnce(Executor):
    """Runs what it is given in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except SodaError as error:
            done.set_exception(error)
        return done


class Daemon:
    """One run of sodad."""

    def __init__(
        self,
        slurm: FakeSlurm,
        path: Path,
        config: Settings,
        killer: Killer | None = None,
        ask: AccountingQuery | None = None,
        reason_to_observe: Callable[[], str] = str,
    ) -> None:
        self.slurm = slurm
        killer = killer or Killer()
        plain = self._plain = open_store(store_url(path), guarded=True)
        self.store = MortalStore(plain.engine, plain.url, killer, file=plain.file, guard=plain.guard)
        clock: FakeClock = slurm.clock
        self.daemon_epoch = begin_epoch(plain, host="h", pid=1, version="0", now_s=clock.now_s())
        client, completion = MortalClient(slurm, killer), AccountingLookup(ask, 0.0)
        if ask is None and slurm.accounting is not None:
            completion = AccountingLookup(slurm.accounting, 0.0, AtOnce())
        lease = Lease(self.store, self.daemon_epoch, clock, LeaseTiming.of(config), clock.elapsed_s())
        limits = LimitsLookup(slurm.accounting_limits, AtOnce())
        context = DaemonContext(self.store, client, lease, clock, completion, limits, reason_to_observe)
        self.cycles = CycleRunner(config, context)

    def run(self) -> CycleReport:
        if self.cycles.settings.sharing.partitions and self.slurm.walls is not None:
            self._report(self.slurm.walls)
        return self.cycles.run()

    def _report(self, fault: str) -> None:
        """As the agent of the one node does."""
        recorded = tuple(sorted(self.slurm.all.keys() - self.slurm.unrecorded))
        now_s = self.slurm.clock.now_s()
        report = NodeReport("n1", "a", 1, now_s, walls=(NodeWalls(fault, recorded, recorded),))
        with self._plain.write() as session:
            store_report(session, report, now_s)

    def follow(self, seconds: float, every_s: float = 1.0) -> None:
        """Live on with the cluster, looking at it ``every_s``."""
        self._follow_until(lambda: False, seconds, every_s)

    def complete(self, within_s: float) -> None:
        """Live on until all jobs are completed or cancelled, and ten seconds more."""
        over = ("COMPLETED", "CANCELLED")
        self._follow_until(lambda: all(job.state in over for job in self.slurm.all.values()), within_s)
        self.follow(10)

    def _follow_until(self, done: Callable[[], bool], seconds: float, every_s: float = 1.0) -> None:
        """A cycle whenever one is due and after every change of the cluster; with ``--thorough`` at every look."""
        until_s, due_s, seen = self.slurm.clock.at_s + seconds, 0.0, None
        while self.slurm.clock.at_s < until_s and not done():
            shown = self.slurm.shown()
            if thorough() or shown != seen or self.slurm.clock.at_s >= due_s:
                report, seen = self.run(), shown
                due_s = self.slurm.clock.at_s + report.pause_s
            self.slurm.advance(every_s)

    def rows(self, table: type[Any]) -> list[Any]:
        with self.store.read() as session:
            return list(session.scalars(select(table).order_by(table.id)))

    def actions(self, kind: str | None = None) -> list[Action]:
        return [row for row in self.rows(Action) if kind in (None, row.kind)]

    def preemptions(self) -> list[Preemption]:
        return self.rows(Preemption)

    def last_cycle(self) -> Cycle:
        cycle: Cycle = self.rows(Cycle)[-1]
        return cycle

    def job(self, job_id: int) -> Job:
        return next(row for row in self.rows(Job) if row.job_id == job_id)

    def runs(self, job_id: int) -> list[JobRun]:
        pk = self.job(job_id).id
        return [row for row in self.rows(JobRun) if row.job_pk == pk]
