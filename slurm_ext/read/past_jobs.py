"""Jobs of the past by Slurm's accounting: whose they were, what they asked for, and how long each ran in all.

Only fields that Slurm makes itself are asked for, so that a fixed separator cannot be forged: no names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.asking import failure
from slurm_soda.slurm_ext.read.job_states import ENDED_FOR_GOOD, RUN_TIME_STATES
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.sacct import sacct_table
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES, parse_integer, parse_tres, span_s, time_s

FIELDS = ("JobIDRaw", "User", "Partition", "State", "Start", "End", "Timelimit", "AllocTRES", "ReqTRES")
MOST_BYTES = 16 * 2**20
"""Of one reply: some 100 000 runs."""
_MOST_SHOWN = 200
"""Characters of a line that an error shows."""
_LAST = ENDED_FOR_GOOD | {"REVOKED"}
"""States of a job's last run. After others, as after a requeue, its next run goes on with the same work."""


class PastRun(NamedTuple):
    """One run of a job, from start to end or requeue, in Unix seconds."""

    job_id: int
    """Slurm gives each out again some time."""
    start_s: float
    end_s: float
    state: str
    owner: str
    partition: str
    limit_s: float
    """Its time limit; infinite where it had none."""
    gpus: int
    """Over all nodes."""
    shared: bool
    """It was a guest."""


class PastJob(NamedTuple):
    """One job that ran and ended, and was nobody's guest."""

    job_id: int
    owner: str
    gpus: int
    partition: str
    limit_s: float
    run_s: float
    """All of its runs together."""
    end_s: float


@dataclass(frozen=True, slots=True)
class PastRunsReader:
    """Asks sacct through a runner."""

    runner: CommandRunner
    timeout_s: float
    shared_gres: str = SHARED_GPU_GRES
    """The generic resource of guests."""
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)

    def read(self, from_days: int, to_days: int) -> list[PastRun]:
        """Runs of jobs that were there in the time from so many days ago to so many, which is less; the first ones of the
        reply where that is longer than :data:`MOST_BYTES`.

        Raises:
            SlurmCommandError: sacct failed, or did not answer in time.
            SlurmReplyError: its answer is cut short.
        """
        framing, argv = ReplyFraming(random_nonce()), past_runs_command(from_days, to_days)
        said = self.runner(
            with_end_mark(argv),
            stdin=b"",
            timeout_s=self.timeout_s,
            env={**self.environment, **framing.env},
            most_bytes=MOST_BYTES,
        )
        if said.cut and len(said.stdout) >= MOST_BYTES:  # else complaints alone are so long
            whole_lines = said.stdout[: said.stdout.rfind(b"\n") + 1]
            return parse_past_runs(whole_lines.decode("utf-8", "surrogateescape"), self.shared_gres)
        if said.status != 0:
            raise failure(argv, said, self._remedy(from_days, to_days))
        return parse_past_runs(framing.body(said.stdout, "sacct's list"), self.shared_gres)

    def _remedy(self, from_days: int, to_days: int) -> str:
        return (
            f"it was asked for {from_days} to {to_days} days ago, and may take {self.timeout_s:g} s "
            "(slurm.accounting_timeout_s): check slurmdbd (sacctmgr ping), or ask for fewer days "
            "(slurm.accounting_past_days); run times are learned from jobs as they end"
        )


def past_runs_command(from_days: int, to_days: int) -> list[str]:
    """The command line."""
    until = f"now-{to_days}days" if to_days else "now"
    return sacct_table(FIELDS, "--allocations", f"--starttime=now-{from_days}days", f"--endtime={until}")


def parse_past_runs(text: str, shared_gres: str = SHARED_GPU_GRES) -> list[PastRun]:
    """The runs of sacct's lines that started and ended; what cannot be read is left out.

    Raises:
        SlurmReplyError: there are lines, and none of them can be read.
    """
    lines = [line for line in text.split("\n") if line]
    read = [run for line in lines if (run := _read_line(line, shared_gres)) is not None]
    if lines and not read:
        raise SlurmReplyError(f"no line of sacct's list can be read; the first one is {lines[0][:_MOST_SHOWN]!r}")
    return [run for run in read if math.isfinite(run.end_s) and math.isfinite(run.start_s)]


def _read_line(line: str, shared_gres: str) -> PastRun | None:
    cells = line.split("|")
    if len(cells) != len(FIELDS):
        return None
    try:
        return _parse_run(dict(zip(FIELDS, cells, strict=True)), shared_gres)
    except SlurmReplyError:
        return None


def _parse_run(f: Mapping[str, str], shared_gres: str) -> PastRun:
    # Past values are not kept for those of the present (functools.lru_cache): they are many, and each comes once.
    asked, given = (parse_tres.__wrapped__(f[name], shared_gres) for name in ("ReqTRES", "AllocTRES"))
    guest = asked.shared_gpus > 0
    return PastRun(
        parse_integer(f["JobIDRaw"], "job id"),
        time_s(f["Start"], "a start"),
        time_s(f["End"], "an end"),
        intern(f["State"].partition(" ")[0]),
        intern(f["User"]),
        intern(f["Partition"]),
        span_s(f["Timelimit"], "a time limit"),
        given.given(as_guest=guest).gpus,
        guest,
    )


def join_past_runs(runs: Iterable[PastRun]) -> list[PastJob]:
    """The jobs that runs make, in the order in which they ended; none of them twice among the runs."""
    by_id: dict[int, list[PastRun]] = defaultdict(list)
    for run in runs:
        by_id[run.job_id].append(run)
    found = [job for each in by_id.values() for job in _join(sorted(each, key=lambda run: (run.end_s, run.start_s)))]
    return sorted(found, key=lambda job: job.end_s)


def _join(runs: list[PastRun]) -> Iterator[PastJob]:
    """The jobs that these runs of one id make, one after the other."""
    run_s, shared, owner = 0.0, False, ""
    for run in runs:
        if run.owner != owner:
            run_s, shared, owner = 0.0, False, run.owner
        run_s, shared = run_s + max(run.end_s - run.start_s, 0.0), shared or run.shared
        if run.state in RUN_TIME_STATES and run_s > 0 and not shared and owner:
            yield PastJob(run.job_id, owner, run.gpus, run.partition, run.limit_s, run_s, run.end_s)
        if run.state in _LAST:
            run_s, shared = 0.0, False
