"""sodactl over a real SQLite store and a Slurm in memory that does what it is told."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.scheduling import Action, Cycle, Epoch, Job
from slurm_soda.slurm_ext.client import Allocation, JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.command_runner import CommandRunner, LocalCommandRunner
from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.job_states import waits_for_resources
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.sodactl.main import run
from slurm_soda.sodactl.site_access import CommandContext
from slurm_soda.wire.munge import Munge
from tests.wire.fake_munged import FakeMunged

NOW_S = 1_700_000_000.0
SUBMIT_S = NOW_S - 1000

HOSTILE = [
    "a'; echo foo",
    "[red]not markup[/red] [bold",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "two\nlines\r\n\ttab",
    "pipe|quote\"back\\slash",
    "bytes \udcff\udc80 latin",
    "\u202egnp.exe \u200b\u2028",
    "emoji 🚀 :smile: 漢字",
    "\x00\x7f\x9b31m",
    "",
]  # fmt: skip


def record(job_id: int = 7, **values: Any) -> SlurmJob:
    defaults: dict[str, Any] = {
        "array_job_id": 0, "array_task": "", "state": "PENDING", "reason": "Priority", "user": "alice", "uid": 1000,
        "account": "acc", "partition": "main", "qos": "normal", "name": "train", "comment": "", "submit_s": SUBMIT_S,
        "eligible_s": SUBMIT_S, "start_s": math.nan, "end_s": math.nan, "time_limit_s": 3600.0, "priority": 100, "nice": 0,
        "restarts": 0, "nodes": 1, "cpus": 4, "memory_mib": 1000, "gpus": 2, "gpus_per_node": 2, "gpu_type": "",
        "node_names": "", "exit_code": "0:0", "dependency": "", "hints": Hints(),
    }  # fmt: skip
    return SlurmJob(job_id=job_id, **{**defaults, **values})


def stored_job(job_id: int = 7, **values: Any) -> Job:
    defaults: dict[str, Any] = {
        "submit_s": SUBMIT_S, "user": "alice", "account": "acc", "partition": "main", "name": "train", "state": "PENDING",
        "gpus": 2, "nodes": 1, "cpus": 4, "last_seen_s": NOW_S,
    }  # fmt: skip
    return Job(job_id=job_id, **{**defaults, **values})


@dataclass
class MemorySlurm:
    """A Slurm with a queue and SiteFactors, and with the refusals that the real one has."""

    queue: list[SlurmJob] = field(default_factory=list)
    factors: dict[int, int] = field(default_factory=dict)
    refuse: dict[int, str] = field(default_factory=dict)
    down: bool = False
    basic_priority: bool = False
    started_s: float = 0.0
    """When slurmctld was started."""
    unanswered: Literal["", "taken", "lost"] = ""
    """Updates run out of time: Slurm has taken them all the same, or not."""
    sent: list[JobUpdate] = field(default_factory=list)
    requeued: list[int] = field(default_factory=list)
    extra_of: dict[int, str] = field(default_factory=dict)
    held: dict[int, Allocation] = field(default_factory=dict)

    def _answer(self) -> None:
        if self.down:
            raise SlurmCommandError(("squeue",), 1, "Unable to contact slurm controller", "is slurmctld up?")

    def jobs(self) -> list[SlurmJob]:
        self._answer()
        return list(self.queue)

    def nodes(self) -> list[SlurmNode]:
        self._answer()
        return []

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        raise AssertionError("sodactl asks for no details of waiting jobs")

    def site_factors(self) -> dict[int, int]:
        self._answer()
        if self.basic_priority:
            raise PriorityPluginError("priority/basic")
        told = [j.job_id for j in self.queue if j.state == "PENDING" and waits_for_resources(j.reason)]
        return {job_id: self.factors[job_id] for job_id in told if job_id in self.factors}

    def priority_parts(self) -> dict[int, ShownPriority]:
        raise AssertionError("sodactl asks for no parts of priorities")

    def most_earned_priority(self) -> int:
        raise AssertionError("sodactl asks for no parts of priorities")

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        self._answer()
        return {job_id: self.held.get(job_id, []) for job_id in job_ids}

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        self._answer()
        return {job_id: self.extra_of.get(job_id, "") for job_id in job_ids}

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        raise AssertionError("sodactl asks for no throttles of arrays")

    def request(self, job_id: int) -> JobRequest:
        raise AssertionError("sodactl asks for no request")

    def partition_limits(self) -> dict[str, PartitionLimits]:
        raise AssertionError("sodactl asks for no limits")

    def partition_tiers(self) -> dict[str, int]:
        self._answer()
        return {}

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        self._answer()
        results = [] if self.unanswered == "lost" else [self._apply(update) for update in updates]
        if self.unanswered:
            raise SlurmCommandError(("scontrol",), None, "", "is slurmctld up?")
        return results

    def _apply(self, update: JobUpdate) -> JobUpdateResult:
        self.sent.append(update)
        if update.job_id in self.refuse:
            return JobUpdateResult(update.job_id, self.refuse[update.job_id])
        fields = dict(update.fields)
        if "SiteFactor" in fields:
            self.factors[update.job_id] = int(fields["SiteFactor"])
        if "Extra" in fields:
            self.extra_of[update.job_id] = fields["Extra"]
        if "NumCPUs" in fields:
            cpus = int(fields["NumCPUs"])
            self.queue = [replace(j, cpus=cpus) if j.job_id == update.job_id else j for j in self.queue]
        if fields.get("StartTime") == "now":
            self.queue = [replace(j, reason="Priority") if j.job_id == update.job_id else j for j in self.queue]
        return JobUpdateResult(update.job_id)

    def signal(self, job_id: int, signal: str) -> None:
        raise AssertionError("sodactl sends no signals")

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        self._answer()
        assert ended, "sodactl requeues only what has ended"
        self.requeued.append(job_id)
        if job_id in self.refuse:
            raise SlurmCommandError(("scontrol",), 1, self.refuse[job_id], "")
        again = {"state": "PENDING", "reason": "BeginTime", "submit_s": NOW_S, "eligible_s": NOW_S + 121}
        self.queue = [replace(j, restarts=j.restarts + 1, **again) if j.job_id == job_id else j for j in self.queue]

    def boot_s(self) -> float:
        self._answer()
        return self.started_s

    def version(self) -> str:
        self._answer()
        return "24.11.5"


@dataclass
class Result:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Bench:
    """A site to run commands on."""

    store: Store
    slurm: MemorySlurm
    config: Path
    capture: Callable[[], tuple[str, str]]
    commands: CommandRunner = field(default_factory=LocalCommandRunner)
    uid: int = 0
    munged: FakeMunged = field(default_factory=FakeMunged)
    pids: set[int] = field(default_factory=lambda: {4242})
    sleep: Callable[[float], None] = lambda _s: None
    """What else happens while a command waits."""

    def __call__(self, *argv: str, status: int | None = 0) -> Result:
        outside = CommandContext(
            connect=lambda settings: self.slurm, runner=lambda: self.commands, now_s=lambda: NOW_S, who=lambda: "root",
            uid=lambda: self.uid, host=lambda: "ctl", pid_lives=lambda pid: pid in self.pids, sleep=self.sleep,
            munge=Munge(run=self.munged),
        )  # fmt: skip
        self.capture()
        code = run([*argv, "--config", str(self.config)], outside)
        out, err = self.capture()
        assert status is None or code == status, (code, out, err)
        return Result(code, out, err)

    def add(self, *rows: Any) -> None:
        with self.store.write() as session:
            for row in rows:
                session.add(row)
                session.flush()

    def daemon(self, *, heartbeat_s: float = NOW_S - 1, **values: Any) -> None:
        """A live daemon as epoch 1."""
        defaults: dict[str, Any] = {"host": "ctl", "pid": 4242, "version": "0.1.0", "started_s": NOW_S - 500}
        self.add(Epoch(heartbeat_s=heartbeat_s, **{**defaults, **values}))

    def cycle(self, **values: Any) -> None:
        defaults: dict[str, Any] = {"epoch_id": 1, "started_s": NOW_S - 2, "mode": "observe", "policy": "tiresias-las"}
        self.add(Cycle(**{**defaults, **values}))

    def action(self, job_id: int = 7, **values: Any) -> None:
        defaults: dict[str, Any] = {
            "submit_s": SUBMIT_S, "kind": "order", "new": {"SiteFactor": "500"}, "old": {"SiteFactor": "0"},
            "reason": "tiresias-las: position 1 of 3", "state": "done", "created_s": NOW_S - 50, "finished_s": NOW_S - 50,
            "epoch_id": 1,
        }  # fmt: skip
        self.add(Action(job_id=job_id, **{**defaults, **values}))


def subcommands(group: click.Group) -> list[click.Command]:
    """All commands of a group, imported."""
    ctx = click.Context(group)
    return [command for name in group.list_commands(ctx) if (command := group.get_command(ctx, name))]


def refuse_results(site: Bench) -> None:
    """From now on the store takes intended changes, but not what became of them."""
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TRIGGER full BEFORE UPDATE ON action BEGIN SELECT RAISE(ABORT, 'full'); END")


@pytest.fixture
def soda(
    made_store: Path,
    quick_store: None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    monkeypatch.setenv("TZ", "UTC")
    shutil.copy(made_store, tmp_path / "soda.db")
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    config = tmp_path / "soda.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n')

    def capture() -> tuple[str, str]:
        out, err = capfd.readouterr()
        return out, err

    yield Bench(store, MemorySlurm(), config, capture)
    store.close()
