"""What accounting says became of the burst's jobs, run by run: the only source of the demo's times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.demo.accounting import UNFINISHED_STATES, DemoError

SACCT_FIELDS = ("JobIDRaw", "User", "JobName", "State", "Submit", "Start", "End", "NodeList", "Partition", "AllocTRES")


@dataclass(frozen=True, slots=True)
class BurstRun:
    """From one start to its end or abort. Unix seconds, whole ones: Slurm tells no others."""

    start_s: float
    end_s: float
    state: str
    node: str
    partition: str

    @property
    def aborted(self) -> bool:
        """Slurm took its cores for a job of a higher tier."""
        return self.state == "PREEMPTED"


@dataclass(frozen=True, slots=True)
class BurstJobRecord:
    """One job with all its runs, oldest first; every job of the burst has one node."""

    job_id: int
    user: str
    name: str
    state: str
    gpus: int
    cores: int
    submit_s: float
    runs: tuple[BurstRun, ...]

    @property
    def end_s(self) -> float:
        """End of the last run."""
        return self.runs[-1].end_s

    @property
    def queue_s(self) -> float:
        """Time to the start of the run that completed: an aborted run is time lost, so it counts as waiting."""
        return self.runs[-1].start_s - self.submit_s

    @property
    def aborts(self) -> int:
        """Runs that Slurm ended for a job of a higher tier."""
        return sum(run.aborted for run in self.runs)


def sacct_argv(job_ids: Sequence[int]) -> list[str]:
    """The command for these jobs; every run of a requeued job has a record, steps have none."""
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


def parse_sacct(text: str) -> list[BurstJobRecord] | None:
    """Jobs by id, or ``None`` while accounting has not heard of the end of all of them.

    Raises:
        DemoError: a line that is no record.
    """
    records: dict[int, list[dict[str, str]]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != len(SACCT_FIELDS) or not parts[0].isdigit():
            raise DemoError(f"sacct printed {line!r}, which is no record of {'|'.join(SACCT_FIELDS)}; try it by hand")
        records.setdefault(int(parts[0]), []).append(dict(zip(SACCT_FIELDS, parts, strict=True)))
    jobs = [_job(job_id, rows) for job_id, rows in sorted(records.items())]
    return [job for job in jobs if job is not None] if all(jobs) else None


def _job(job_id: int, rows: list[dict[str, str]]) -> BurstJobRecord | None:
    rows = sorted(rows, key=lambda row: tuple(_seconds(row[key]) for key in ("Submit", "Start", "End")))
    last = rows[-1]
    state = last["State"].split()[0]
    runs = [
        BurstRun(
            _seconds(row["Start"]), _seconds(row["End"]), row["State"].split()[0], row["NodeList"], row["Partition"]
        )
        for row in rows
        if math.isfinite(_seconds(row["Start"])) and math.isfinite(_seconds(row["End"]))
    ]
    if state in UNFINISHED_STATES or not runs or math.isinf(_seconds(last["End"])):
        return None
    return BurstJobRecord(
        job_id=job_id,
        user=last["User"],
        name=last["JobName"],
        state=state,
        gpus=max(_amount(row["AllocTRES"], "gres/gpu") for row in rows),
        cores=max(_amount(row["AllocTRES"], "cpu") for row in rows),
        submit_s=min(_seconds(row["Submit"]) for row in rows),
        runs=tuple(runs),
    )


def _seconds(text: str) -> float:
    """Unix seconds; infinity for Slurm's words for "not yet"."""
    return float(text) if text.isdigit() and text != "0" else math.inf


def _amount(tres: str, wanted: str) -> int:
    for entry in tres.split(","):
        name, _, count = entry.partition("=")
        if name == wanted and count.isdigit():
            return int(count)
    return 0
