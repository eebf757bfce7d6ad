"""Jobs with text that is no text: whatever bytes a job has in its fields, at most it loses its own place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.view_json import decode_view, encode_view
from slurm_soda.daemon.api.views import (
    JobDetailView,
    JobListView,
    ViewHeader,
    job_detail_view,
    job_list_view,
    view_header,
)
from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.cycle import CycleRunner
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import begin_epoch
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.cycle.slurm_access import KeepingRunner
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.queries import latest_epoch, setting_values
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader, squeue_environment
from tests.daemon import harness
from tests.daemon.fake_slurm import FakeClock
from tests.sampling import examples

REPLIES = Path(__file__).parents[1] / "slurm_ext" / "replies" / "24.11.5"
FRAMING = ReplyFraming("RecordedReply")
FIELDS = [name.partition(":")[0] for name in squeue_environment(FRAMING)["SQUEUE_FORMAT2"].split(",")]
TEXT_FIELDS = [
    "Reason", "UserName", "Account", "Partition", "QOS", "Name", "Comment", "tres-per-job", "tres-per-node",
    "tres-per-task", "NodeList", "ReqNodes", "exit_code", "Dependency", "State", "tres-alloc", "TimeLimit",
]  # fmt: skip
ODD_JOB = b"10054"
BYTES = st.binary(max_size=30) | st.sampled_from(
    [b"lab\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xee\xbe\xbf\xef\x00"[:4], b"soda:1:model=\xff", b"n[1-9999999]",
     b"n[0-99][0-99][0-99][0-99]", b"gres/gpu:" + b"9" * 5000, b"cpu=" + b"9" * 5000, b"9" * 5000 + b":00", b"n[1-",
     b"gres/gpu=18446744073709551614", b"\xff" * 5000]
)  # fmt: skip


@dataclass
class Replayed:
    """Slurm 24.11 as recorded, but that one job has other text."""

    odd: Mapping[str, bytes]

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        command = " ".join(argv)
        if "--jobs=" in command:
            nodes = FRAMING.field.join([argv[-1].removeprefix("--jobs="), "OK", ""])
            return CompletedCommand(tuple(argv), 0, f"{nodes}{FRAMING.record}\n{FRAMING.end}".encode(), b"")
        if "squeue" in command:
            return CompletedCommand(tuple(argv), 0, self._squeue(), b"")
        if "show node" in command:
            return CompletedCommand(tuple(argv), 0, (REPLIES / "nodes.txt").read_bytes(), b"")
        if "sprio" in command:
            return CompletedCommand(tuple(argv), 0, (REPLIES / "sprio.txt").read_bytes(), b"")
        allocation = REPLIES / f"allocation-{argv[-1]}.txt"
        if "show job" in command and allocation.exists():
            return CompletedCommand(tuple(argv), 0, allocation.read_bytes(), b"")
        return CompletedCommand(tuple(argv), 1, b"", b"not recorded")

    def _squeue(self) -> bytes:
        field, record = FRAMING.field.encode(), FRAMING.record.encode() + b"\n"
        *rows, end = (REPLIES / "squeue.txt").read_bytes().split(record)
        return record.join([*(field.join(self._cells(row.split(field))) for row in rows), end])

    def _cells(self, cells: list[bytes]) -> list[bytes]:
        if cells[0] != ODD_JOB:
            return cells
        return [self.odd.get(name, cell) for name, cell in zip(FIELDS, cells, strict=True)]


class OneDaemon:
    """A daemon over the recorded cluster."""

    def __init__(self, path: Path, mode: str = "advise") -> None:
        self.clock = FakeClock()
        self.store: Store = open_store(f"sqlite:///{path}/soda.db")
        self.replayed, self.unreadable = Replayed({}), list[str]()
        epoch = begin_epoch(self.store, host="h", pid=1, version="0", now_s=self.clock.now_s())
        self.settings = harness.settings(mode=mode, state_dir=str(path))
        lease = Lease(self.store, epoch, self.clock, LeaseTiming.of(self.settings), self.clock.elapsed_s())
        client = self._make_client(KeepingRunner(self._run, lease.keep))
        limits = LimitsLookup(AccountingLimits)
        context = DaemonContext(self.store, client, lease, self.clock, AccountingLookup(None, 0.0), limits)
        self.cycles = CycleRunner(self.settings, context)

    def _make_client(self, runner: KeepingRunner) -> CliSlurmClient:
        return CliSlurmClient(runner, nonce=lambda: FRAMING.nonce, reader=SqueueReader(self.unreadable.append))

    def _run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        return self.replayed(argv, stdin=stdin, timeout_s=timeout_s, env=env)

    def view_header(self, session: Session) -> ViewHeader:
        return view_header(latest_epoch(session), setting_values(session), self.settings, daemon_alive=True)

    def stored(self) -> dict[int, Job]:
        with self.store.read() as session:
            return {job.job_id: job for job in session.scalars(select(Job).where(Job.end_s.is_(None)))}


@pytest.fixture
def daemon(fresh_store: Path) -> OneDaemon:
    return OneDaemon(fresh_store)


def test_one_byte_in_an_account_stops_nobody(daemon: OneDaemon) -> None:
    daemon.replayed = Replayed(
        {"Account": b"lab\xff", "UserName": b"al\xffice", "QOS": b"\xfe", "Partition": b"ma\xffin"}
    )
    assert daemon.cycles.run().error == ""
    job = daemon.stored()[int(ODD_JOB)]
    assert (job.account, job.user, job.partition) == ("lab\udcff", "al\udcffice", "ma\udcffin")
    with daemon.store.read() as session:
        assert session.scalar(select(Job.job_id).where(Job.account == "lab\udcff")) == int(ODD_JOB)
        top = daemon.view_header(session)
        listed = encode_view(job_list_view(session, top))
        assert "lab\udcff" in {job.account for job in decode_view(JobListView, listed).jobs}
        told = encode_view(job_detail_view(session, top, int(ODD_JOB)))
    assert decode_view(JobDetailView, told).job.account == "lab\udcff"


@given(st.dictionaries(st.sampled_from(TEXT_FIELDS), BYTES.filter(lambda raw: FRAMING.nonce.encode() not in raw)))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_bytes_in_any_text_cost_that_job_its_place_at_most(daemon: OneDaemon, odd: Mapping[str, bytes]) -> None:
    daemon.replayed = Replayed(odd)
    daemon.clock.at_s += 60.0
    report = daemon.cycles.run()
    assert report.error == ""
    stored = daemon.stored()
    assert len(set(stored) - {int(ODD_JOB)}) >= 10
    with daemon.store.read() as session:
        top = daemon.view_header(session)
        encode_view(job_list_view(session, top))
    if int(ODD_JOB) in stored and "Name" in odd:
        assert stored[int(ODD_JOB)].name.encode("utf-8", "surrogateescape") == odd["Name"]


def test_a_job_that_cannot_be_read_is_told_once(daemon: OneDaemon) -> None:
    daemon.replayed = Replayed({"State": b"DREAMING"})
    for _ in range(3):
        assert daemon.cycles.run().error == ""
    assert [why for why in daemon.unreadable if "10054" in why and "DREAMING" in why] == daemon.unreadable
    assert len(daemon.unreadable) == 1
