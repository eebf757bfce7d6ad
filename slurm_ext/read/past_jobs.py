"""Jobs of the past by Slurm's accounting: whose they were, what they asked for, and how long each ran in all.

Only fields that Slurm makes itself are asked for, so that a fixed separator cannot be forged: no names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES, parse_integer, parse_tres, span_s, time_s

FIELDS = ("JobIDRaw", "User", "Partition", "State", "Start", "End", "Timelimit", "AllocTRES", "ReqTRES")
MOST_BYTES = 64 * 2**20
"""Of one reply: some 400 000 runs."""
_FINAL = frozenset({"CANCELLED", "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
"""States of a job's last run. After others, as after a requeue, the next run goes on with the same work."""
_REMEDY = "check slurmdbd (sacctmgr ping); run times are learned from jobs as they end"


@dataclass(frozen=True, slots=True)
class PastJob:
    """One job that ran and ended, and never shared a GPU.

    Attributes:
        job_id: Slurm gives each out again some time.
        owner: its user.
        gpus: over all nodes.
        partition: where it ran last.
        limit_s: its time limit; infinite where it had none.
        run_s: all of its runs together.
        end_s: Unix time.
    """

    job_id: int
    owner: str
    gpus: int
    partition: str
    limit_s: float
    run_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class PastJobsReader:
    """Asks sacct through a runner."""

    runner: CommandRunner
    timeout_s: float
    shared_gres: str = SHARED_GPU_GRES
    """The generic resource of guests."""
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)

    def read(self, from_days: int, to_days: int) -> list[PastJob]:
        """Jobs of the time from so many days ago to so many, which is less, by the end of each.

        Raises:
            SlurmCommandError: sacct failed, or did not answer in time.
            SlurmReplyError: its answer cannot be read, or is longer than :data:`MOST_BYTES`.
        """
        framing, argv = ReplyFraming(random_nonce()), past_jobs_command(from_days, to_days)
        said = self.runner(
            with_end_mark(argv),
            stdin=b"",
            timeout_s=self.timeout_s,
            env={**self.environment, **framing.env},
            most_bytes=MOST_BYTES,
        )
        if said.cut:
            raise SlurmReplyError(f"sacct's list of {from_days - to_days} days is longer than {MOST_BYTES} bytes")
        if said.status != 0:
            raise SlurmCommandError(tuple(argv), said.status, said.stderr.decode("utf-8", "backslashreplace"), _REMEDY)
        return parse_past_jobs(said.stdout, framing, self.shared_gres)


def past_jobs_command(from_days: int, to_days: int) -> list[str]:
    """The command line."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--duplicates",
        "--allusers",
        "--allocations",
        f"--format={','.join(FIELDS)}",
        f"--starttime=now-{from_days}days",
        f"--endtime=now-{to_days}days" if to_days else "--endtime=now",
    ]


def parse_past_jobs(stdout: bytes, framing: ReplyFraming, shared_gres: str = SHARED_GPU_GRES) -> list[PastJob]:
    """The jobs of a reply, by their ends. Runs that cannot be read are left out.

    Raises:
        SlurmReplyError: the reply is cut short.
    """
    runs: dict[str, list[_Run]] = defaultdict(list)
    for line in framing.body(stdout, "sacct's list").splitlines():
        cells = line.split("|")
        if len(cells) == len(FIELDS):
            try:
                runs[cells[0]].append(_Run.of(dict(zip(FIELDS, cells, strict=True)), shared_gres))
            except SlurmReplyError:
                continue
    found = [job for each in runs.values() for job in _jobs(sorted(each, key=lambda run: run.end_s))]
    return sorted(found, key=lambda job: job.end_s)


@dataclass(frozen=True, slots=True)
class _Run:
    """From start to end or requeue; Unix seconds, NaN where there is none."""

    job_id: int
    start_s: float
    end_s: float
    state: str
    user: str
    partition: str
    limit_s: float
    gpus: int
    shared: bool

    @classmethod
    def of(cls, f: Mapping[str, str], shared_gres: str) -> _Run:
        what = f"job {f['JobIDRaw']}"
        asked = parse_tres(f["ReqTRES"], shared_gres)
        return cls(
            parse_integer(f["JobIDRaw"], "job id"),
            time_s(f["Start"], what),
            time_s(f["End"], what),
            f["State"].partition(" ")[0],
            f["User"],
            f["Partition"],
            span_s(f["Timelimit"], what),
            parse_tres(f["AllocTRES"], shared_gres).gpus,
            asked.shared_gpus > 0,
        )


def _jobs(runs: list[_Run]) -> Iterator[PastJob]:
    """The jobs that these runs of one id make, one after the other."""
    run_s, shared = 0.0, False
    for run in runs:
        spent_s = run.end_s - run.start_s
        run_s, shared = run_s + (max(spent_s, 0.0) if math.isfinite(spent_s) else 0.0), shared or run.shared
        if run.state in _FINAL:
            if run_s > 0 and not shared and run.user:
                yield PastJob(run.job_id, run.user, run.gpus, run.partition, run.limit_s, run_s, run.end_s)
            run_s, shared = 0.0, False
