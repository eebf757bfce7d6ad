"""What Slurm's accounting says became of the jobs: the demo's only source for times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import SodaError

SACCT_FIELDS = ("JobIDRaw", "User", "JobName", "State", "Submit", "Start", "End", "NodeList", "AllocTRES")
SACCT_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}
"""Times as Unix seconds, in no time zone."""

UNFINISHED_STATES = ("PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETING")


class DemoError(SodaError):
    """The demo cannot go on, or its figures cannot be trusted."""


@dataclass(frozen=True, slots=True)
class MixJobRun:
    """From one start to its end or requeue. Unix seconds."""

    start_s: float
    end_s: float
    state: str
    node_names: str


@dataclass(frozen=True, slots=True)
class MixJobRecord:
    """One job with all its runs."""

    job_id: int
    user: str
    name: str
    state: str
    """State of the last run, Slurm's word."""
    gpus: int
    submit_s: float
    end_s: float
    runs: tuple[MixJobRun, ...]
    """By start; a run that ended in a requeue is followed by another one."""

    @property
    def jct_s(self) -> float:
        """Job completion time: first submission to last end."""
        return self.end_s - self.submit_s

    @property
    def run_s(self) -> float:
        """Time spent running, over all runs."""
        return sum(run.end_s - run.start_s for run in self.runs)

    @property
    def queue_s(self) -> float:
        """All time not spent running, the waits after preemptions too."""
        return self.jct_s - self.run_s

    @property
    def preemptions(self) -> int:
        """Runs that ended in a requeue."""
        return max(0, len(self.runs) - 1)


def sacct_argv(job_ids: Sequence[int]) -> list[str]:
    """The command for these jobs: ``--duplicates`` shows every run of a requeued job, ``--allocations`` no steps."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--duplicates",
        "--allocations",
        "--allusers",
        f"--jobs={','.join(map(str, job_ids))}",
        f"--format={','.join(SACCT_FIELDS)}",
    ]


def parse_sacct(text: str) -> list[MixJobRecord] | None:
    """Jobs by id, or ``None`` while the accounting has not heard of the end of all of them.

    A requeued job has one record a run; each has the time of its own submission or requeue, so the first one counts.

    Raises:
        DemoError: a line that is no record.
    """
    records: dict[int, list[list[str]]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != len(SACCT_FIELDS) or not parts[0].isdigit():
            raise DemoError(f"sacct printed {line!r}, which is no record of {'|'.join(SACCT_FIELDS)}; try it by hand")
        records.setdefault(int(parts[0]), []).append(parts)
    jobs = [_job(job_id, rows) for job_id, rows in sorted(records.items())]
    return [job for job in jobs if job is not None] if all(jobs) else None


def _job(job_id: int, rows: list[list[str]]) -> MixJobRecord | None:
    rows = sorted(rows, key=lambda row: (_seconds(row[4]), _seconds(row[5]), _seconds(row[6])))
    last = rows[-1]
    state = last[3].split()[0]
    if state in UNFINISHED_STATES or math.isinf(_seconds(last[6])):
        return None
    # A record that never started (requeued or cancelled while it waited) is no run.
    runs = [
        MixJobRun(_seconds(row[5]), _seconds(row[6]), row[3].split()[0], row[7])
        for row in rows
        if math.isfinite(_seconds(row[5])) and math.isfinite(_seconds(row[6]))
    ]
    return MixJobRecord(
        job_id=job_id,
        user=last[1],
        name=last[2],
        state=state,
        gpus=max(_gpus(row[8]) for row in rows),
        submit_s=min(_seconds(row[4]) for row in rows),
        end_s=_seconds(last[6]),
        runs=tuple(runs),
    )


def _seconds(text: str) -> float:
    """Unix seconds; infinity for Slurm's words for "not yet"."""
    return float(text) if text.isdigit() and text != "0" else math.inf


def _gpus(tres: str) -> int:
    for entry in tres.split(","):
        name, _, count = entry.partition("=")
        if name == "gres/gpu" and count.isdigit():
            return int(count)
    return 0


def find_incomplete_jobs(jobs: Iterable[MixJobRecord]) -> list[MixJobRecord]:
    """Jobs that did not end well."""
    return [job for job in jobs if job.state != "COMPLETED"]
