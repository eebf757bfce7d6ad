"""What Slurm's accounting says became of the jobs: the demo's only source for times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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


def sacct_argv(job_ids: Sequence[int], fields: Sequence[str] = SACCT_FIELDS) -> list[str]:
    """The command for these jobs: ``--duplicates`` shows every run of a requeued job, ``--allocations`` no steps."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--duplicates",
        "--allocations",
        "--allusers",
        f"--jobs={','.join(map(str, job_ids))}",
        f"--format={','.join(fields)}",
    ]


def parse_sacct(text: str) -> list[MixJobRecord] | None:
    """Jobs by id, or ``None`` while the accounting has not heard of the end of all of them.

    A requeued job has one record a run; each has the time of its own submission or requeue, so the first one counts.

    Raises:
        DemoError: a line that is no record.
    """
    jobs = [_job(job_id, rows) for job_id, rows in read_records(text).items()]
    return [job for job in jobs if job is not None] if all(jobs) else None


def read_records(text: str, fields: Sequence[str] = SACCT_FIELDS) -> dict[int, list[Mapping[str, str]]]:
    """By job id, ascending, the records of each job in the order of time: fields by name.

    Raises:
        DemoError: a line that is no record.
    """
    records: dict[int, list[Mapping[str, str]]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != len(fields) or not parts[0].isdigit():
            raise DemoError(f"sacct printed {line!r}, which is no record of {'|'.join(fields)}; try it by hand")
        records.setdefault(int(parts[0]), []).append(dict(zip(fields, parts, strict=True)))
    for rows in records.values():
        rows.sort(key=lambda row: tuple(seconds(row[name]) for name in ("Submit", "Start", "End")))
    return dict(sorted(records.items()))


def has_ended(rows: Sequence[Mapping[str, str]]) -> bool:
    """Whether the last record of a job is its end."""
    return state_of(rows[-1]) not in UNFINISHED_STATES and math.isfinite(seconds(rows[-1]["End"]))


def runs_of(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The records that are runs: one that never started (requeued or cancelled while it waited) is none."""
    return [row for row in rows if math.isfinite(seconds(row["Start"])) and math.isfinite(seconds(row["End"]))]


def state_of(row: Mapping[str, str]) -> str:
    """Slurm's word, without "by" whom."""
    return row["State"].split()[0]


def seconds(text: str) -> float:
    """Unix seconds; infinity for Slurm's words for "not yet"."""
    return float(text) if text.isdigit() and text != "0" else math.inf


def most_allocated(rows: Sequence[Mapping[str, str]], name: str) -> int:
    """The largest count of a trackable resource, such as `gres/gpu`, in any record of a job."""
    counts = (
        int(count)
        for row in rows
        for resource, _, count in (entry.partition("=") for entry in row["AllocTRES"].split(","))
        if resource == name and count.isdigit()
    )
    return max(counts, default=0)


def _job(job_id: int, rows: Sequence[Mapping[str, str]]) -> MixJobRecord | None:
    if not has_ended(rows):
        return None
    runs = [
        MixJobRun(seconds(row["Start"]), seconds(row["End"]), state_of(row), row["NodeList"]) for row in runs_of(rows)
    ]
    last = rows[-1]
    return MixJobRecord(
        job_id=job_id,
        user=last["User"],
        name=last["JobName"],
        state=state_of(last),
        gpus=max(most_allocated(rows, "gres/gpu"), most_allocated(rows, "gres/sharedgpu")),
        submit_s=min(seconds(row["Submit"]) for row in rows),
        end_s=seconds(last["End"]),
        runs=tuple(runs),
    )


def find_incomplete_jobs(jobs: Iterable[MixJobRecord]) -> list[MixJobRecord]:
    """Jobs that did not end well."""
    return [job for job in jobs if job.state != "COMPLETED"]
