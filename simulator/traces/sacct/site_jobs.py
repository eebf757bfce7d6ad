"""From the records of sacct to jobs: every run of a job, the parts of heterogeneous jobs, and what is no job to simulate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from slurm_soda.simulator.traces.sacct.rows import SacctRow
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES

_GOES_ON = frozenset(
    {"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RESIZING", "REQUEUE_HOLD", "REQUEUE_FED",
     "SPECIAL_EXIT"}
)  # fmt: skip
"""After a record of such a state another one of the same job may follow."""

RUNNING = "still running when the dump was made"
WAITING = "still waiting when the dump was made"
CANCELLED = "cancelled before they started"
GPU_SHARDS = "held parts of GPUs (gres/shard, gres/mps, gres/sharedgpu)"
CUT_OFF = "requeued, and their later runs are not in the dump"
REPEATED = "records that are in the dump twice"
JOB_STEPS = "job steps"

SHORTEST_RUN_S = 1 / 3
"""Run time of a job that ended in the second in which it started: what two moments of one second lie apart on average."""


@dataclass(frozen=True)
class SacctJob:
    """One job with all its records, oldest first; a heterogeneous job has those of its first component.

    Times are Unix seconds.
    """

    rows: tuple[SacctRow, ...]
    others: tuple[SacctJob, ...] = ()
    """The other components of a heterogeneous job, which start and end with it."""

    @property
    def label(self) -> str:
        """Its JobID; of a heterogeneous job that of the whole."""
        return self.rows[0].id.het_leader or self.rows[0].id.text

    @cached_property
    def runs(self) -> tuple[SacctRow, ...]:
        """The records that started."""
        return tuple(row for row in self.rows if row.started)

    @property
    def parts(self) -> tuple[SacctJob, ...]:
        """The job itself and the other components."""
        return (self, *self.others)

    @property
    def submit_s(self) -> float:
        """When it could first have started: the first submission, or later, when it became eligible.

        A requeue gives a job a new submission, so only the first record counts; Slurm has been seen to date a start
        before it, and then the start counts.
        """
        first = self.rows[0]
        return min(max(first.submit_s, first.ready_s), *(run.start_s for run in self.runs), math.inf)

    @property
    def start_s(self) -> float:
        """First start."""
        return self.runs[0].start_s

    @property
    def end_s(self) -> float:
        """Last end."""
        return self.runs[-1].end_s

    @property
    def ran_s(self) -> float:
        """What all its runs took together."""
        ran_s = sum(run.ran_s for run in self.runs)
        return ran_s if ran_s else SHORTEST_RUN_S

    @property
    def unused(self) -> str:
        """Why it is no job to simulate; empty if it is one."""
        last = self.rows[-1]
        if last.state not in ENDED_STATES:
            return WAITING if not last.started else CUT_OFF if last.state in _GOES_ON else RUNNING
        if any(part.rows[-1].shares for part in self.parts):
            return GPU_SHARDS
        if not self.runs:
            return CANCELLED if last.state == "CANCELLED" else f"never started ({last.state})"
        return RUNNING if math.isnan(self.ran_s) else ""


def group_rows_by_job(rows: Iterable[SacctRow]) -> tuple[list[SacctJob], int]:
    """Jobs in the order of their first records in the dump, and how many records were there twice."""
    by_id: dict[tuple[str, str], list[SacctRow]] = {}
    for row in rows:
        by_id.setdefault((row.cluster, row.id.text), []).append(row)
    kept = {key: _newest(records) if len(records) > 1 else records for key, records in by_id.items()}
    repeated = sum(len(records) - len(kept[key]) for key, records in by_id.items())
    jobs = [job for records in kept.values() for job in _split(records)]
    return sorted(_gangs(jobs), key=lambda job: job.rows[0].line), repeated


def _newest(records: Sequence[SacctRow]) -> list[SacctRow]:
    """One record a run: where dumps were appended to each other, the last one knows most.

    An earlier dump may also have seen a wait whose run a later one knows.
    """
    by_run = {(row.submit_s, row.restarts, row.start_s if row.started else -1.0): row for row in records}
    started = {(row.submit_s, row.restarts) for row in records if row.started}
    return [row for row in by_run.values() if row.started or (row.submit_s, row.restarts) not in started]


def _split(records: Sequence[SacctRow]) -> list[SacctJob]:
    """Jobs of one id, which Slurm gives out again when it starts counting anew."""
    jobs: list[list[SacctRow]] = []
    for row in sorted(records, key=_age):
        if jobs and _goes_on(jobs[-1][-1], row):
            jobs[-1].append(row)
        else:
            jobs.append([row])
    return [SacctJob(tuple(rows)) for rows in jobs]


def _age(row: SacctRow) -> tuple[float, int, float, int]:
    return (row.submit_s, row.restarts, row.start_s if row.started else math.inf, row.line)


def _goes_on(before: SacctRow, row: SacctRow) -> bool:
    """Whether a record is the next one of the same job."""
    if before.restarts >= 0 and row.restarts >= 0 and before.state != "RESIZING":
        return row.restarts > before.restarts
    return before.state in _GOES_ON


def _gangs(jobs: Sequence[SacctJob]) -> list[SacctJob]:
    """The jobs, with the components of each heterogeneous one joined."""
    whole: list[SacctJob] = []
    gangs: dict[tuple[str, str, float], list[SacctJob]] = {}
    for job in jobs:
        first = job.rows[0]
        if first.id.het_leader:
            gangs.setdefault((first.cluster, first.id.het_leader, first.submit_s), []).append(job)
        else:
            whole.append(job)
    return whole + [SacctJob(parts[0].rows, tuple(parts[1:])) for parts in gangs.values()]
