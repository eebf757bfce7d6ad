"""What Slurm's accounting says about jobs, run by run.

``sacct --duplicates`` has one record per run: a requeue ends one and begins another. Only fields that Slurm makes itself are
asked for (slurmdbd replaces quotes and bytes in job names anyway), so a fixed separator cannot be forged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.policies.snapshot import NEVER
from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.asking import failure
from slurm_soda.slurm_ext.read.capabilities import CommandCapabilities
from slurm_soda.slurm_ext.read.hostlist import count_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_FOR_GOOD
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.slurm_values import (
    SHARED_GPU_GRES,
    cpu_time_s,
    parse_integer,
    parse_tres,
    peak_mib,
    text_or_empty,
    time_s,
)

SACCT_FIELDS = (
    "JobIDRaw", "User", "Submit", "Start", "End", "State", "ExitCode", "TotalCPU", "MaxRSS", "AllocTRES", "NodeList",
    "Restarts", "ReqTRES",
)  # fmt: skip

_RESTARTS = "Restarts"

_REMEDY = "check slurmdbd (sacctmgr ping); accounting is asked again later"


@dataclass(frozen=True, slots=True)
class RunAccounting:
    """One run of a job by sacct: from start to end or requeue. Times are Unix seconds, NaN where there is none."""

    start_s: float
    end_s: float
    state: str
    exit_code: str
    cpu_s: float
    """User and system CPU seconds of all steps."""
    memory_peak_mib: float
    """Largest MaxRSS of any step; NaN if accounting has none."""
    gpus: int
    cpus: int
    nodes: int
    node_names: str
    restart: int = 0
    """The job's restart count in this run."""
    shared_gpus: int = 0
    """Of :attr:`gpus`, those that it held as a guest."""


@dataclass(frozen=True, slots=True)
class JobAccounting:
    """One job by sacct, with every run that started, oldest first."""

    job_id: int
    user: str
    submit_s: float
    """First submission."""
    state: str
    """State of the last run, or of the job if it never ran."""
    exit_code: str
    runs: tuple[RunAccounting, ...]


@dataclass
class SacctReader:
    """Asks sacct through a runner."""

    runner: CommandRunner
    timeout_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)
    shared_gres: str = SHARED_GPU_GRES
    """The generic resource of guests."""

    def __post_init__(self) -> None:
        self._capabilities = CommandCapabilities(self.runner, self.environment, self.timeout_s)

    def jobs(self, job_ids: Sequence[int]) -> list[JobAccounting]:
        """The newest job of each id, in the order of ``job_ids``; one that accounting does not know is left out.

        Raises:
            SlurmCommandError: sacct failed or did not answer in time.
            SlurmReplyError: its answer cannot be read.
        """
        if not job_ids:
            return []
        framing = ReplyFraming(random_nonce())
        known = self._capabilities.sacct_fields
        fields = tuple(name for name in SACCT_FIELDS if name != _RESTARTS or name in known)
        argv = sacct_command(job_ids, fields)
        said = self.runner(
            with_end_mark(argv), stdin=b"", timeout_s=self.timeout_s, env={**self.environment, **framing.env}
        )
        if said.status != 0:
            raise failure(argv, said, _REMEDY)
        found = parse_accounting(said.stdout, framing, self.shared_gres, fields)
        return [found[job_id] for job_id in job_ids if job_id in found]


def sacct_command(job_ids: Sequence[int], fields: Sequence[str] = SACCT_FIELDS) -> list[str]:
    """The command line."""
    return sacct_table(fields, f"--jobs={','.join(map(str, job_ids))}")


def sacct_table(fields: Sequence[str], *selection: str) -> list[str]:
    """The command line for the records of all users' jobs that other options select, a line each."""
    shape = ("--noheader", "--parsable2", "--duplicates", "--allusers", f"--format={','.join(fields)}")
    return ["sacct", *shape, *selection]


def parse_accounting(
    stdout: bytes,
    framing: ReplyFraming,
    shared_gres: str = SHARED_GPU_GRES,
    fields: Sequence[str] = SACCT_FIELDS,
) -> dict[int, JobAccounting]:
    """Jobs by id; of an id that Slurm gave out twice the newer job. A job with a value that cannot be read is left out.

    ``fields`` are those that were asked for: before Slurm 24.11 there is no ``Restarts``, and restarts are counted here.

    Raises:
        SlurmReplyError: the reply is cut short or is of another form.
    """
    jobs: dict[int, list[_SacctRecord]] = {}
    unreadable: set[int] = set()
    for line in framing.body(stdout, "sacct's list").removesuffix("\n").split("\n"):
        cells = line.split("|")
        if len(cells) != len(fields):
            if not line:
                continue
            raise SlurmReplyError(f"sacct's list has a record of {len(cells)} fields, not {len(fields)}: {line[:60]!r}")
        f = dict(zip(fields, cells, strict=True))
        job, dot, _ = f["JobIDRaw"].partition(".")
        job_id = parse_integer(job, "job id")
        records = jobs.setdefault(job_id, [])
        try:
            if not dot:
                records.append(_SacctRecord.of(f, shared_gres))
            elif records:
                records[-1] = records[-1].with_step(f)
        except SlurmReplyError:
            unreadable.add(job_id)
    counted = _RESTARTS in fields
    return {
        job_id: _job(job_id, records if counted else _with_restarts(records))
        for job_id, records in jobs.items()
        if records and job_id not in unreadable
    }


@dataclass(frozen=True, slots=True)
class _SacctRecord:
    """One allocation record: a run, or the wait for one."""

    user: str
    submit_s: float
    run: RunAccounting

    @classmethod
    def of(cls, f: Mapping[str, str], shared_gres: str) -> _SacctRecord:
        what = f"job {f['JobIDRaw']}"
        asks_shared = parse_tres(f["ReqTRES"], shared_gres).shared_gpus > 0
        held = parse_tres(f["AllocTRES"], shared_gres).given(as_guest=asks_shared)
        count_hosts(f["NodeList"])  # so that nobody who expands it later finds that it cannot be read
        run = RunAccounting(
            start_s=time_s(f["Start"], what),
            end_s=time_s(f["End"], what),
            state=f["State"].partition(" ")[0],
            exit_code=f["ExitCode"],
            cpu_s=cpu_time_s(f["TotalCPU"], what),
            memory_peak_mib=NEVER,
            gpus=held.gpus,
            shared_gpus=held.shared_gpus,
            cpus=held.cpus,
            nodes=held.nodes,
            restart=parse_integer(text_or_empty(f.get(_RESTARTS, "")) or "0", what),
            node_names="" if f["NodeList"] == "None assigned" else text_or_empty(f["NodeList"]),
        )
        return cls(f["User"], time_s(f["Submit"], what), run)

    def with_step(self, f: Mapping[str, str]) -> _SacctRecord:
        peak = peak_mib(f["MaxRSS"], f"step {f['JobIDRaw']}")
        run = replace(self.run, memory_peak_mib=max((self.run.memory_peak_mib, peak), key=_nan_first))
        return replace(self, run=run)


def _with_restarts(records: Sequence[_SacctRecord]) -> list[_SacctRecord]:
    """The records with restarts as they follow one another: one that ended for good is followed by another job's first."""
    restart, numbered = 0, []
    for record in sorted(records, key=lambda record: record.submit_s):
        numbered.append(replace(record, run=replace(record.run, restart=restart)))
        restart = 0 if record.run.state in ENDED_FOR_GOOD else restart + 1
    return numbered


def _nan_first(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def _job(job_id: int, records: Sequence[_SacctRecord]) -> JobAccounting:
    ordered = sorted(records, key=lambda record: (record.submit_s, record.run.restart))
    newest = max(
        at for at, record in enumerate(ordered) if at == 0 or record.run.restart <= ordered[at - 1].run.restart
    )
    ours = ordered[newest:]
    last = ours[-1].run
    return JobAccounting(
        job_id=job_id,
        user=ours[0].user,
        submit_s=ours[0].submit_s,
        state=last.state,
        exit_code=last.exit_code,
        runs=tuple(record.run for record in ours if not math.isnan(record.run.start_s)),
    )
