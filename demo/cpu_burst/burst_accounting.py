"""What accounting says became of the burst's jobs, run by run: the only source of the demo's times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.demo import accounting

SACCT_FIELDS = ("JobIDRaw", "User", "JobName", "State", "Submit", "Start", "End", "NodeList", "Partition", "AllocTRES")


@dataclass(frozen=True, slots=True)
class BurstRun:
    """From one start to its end or abort. Unix seconds, whole ones: Slurm reports no others."""

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


def parse_sacct(text: str) -> list[BurstJobRecord] | None:
    """Jobs by id, or ``None`` while accounting has not heard of the end of all of them.

    Raises:
        DemoError: a line that is no record.
    """
    jobs = [_job(job_id, rows) for job_id, rows in accounting.read_records(text, SACCT_FIELDS).items()]
    return [job for job in jobs if job is not None] if all(jobs) else None


def _job(job_id: int, rows: Sequence[Mapping[str, str]]) -> BurstJobRecord | None:
    runs = tuple(
        BurstRun(
            accounting.seconds(row["Start"]),
            accounting.seconds(row["End"]),
            accounting.state_of(row),
            row["NodeList"],
            row["Partition"],
        )
        for row in accounting.runs_of(rows)
    )
    if not runs or not accounting.has_ended(rows):
        return None
    last = rows[-1]
    return BurstJobRecord(
        job_id=job_id,
        user=last["User"],
        name=last["JobName"],
        state=accounting.state_of(last),
        gpus=accounting.most_allocated(rows, "gres/gpu"),
        cores=accounting.most_allocated(rows, "cpu"),
        submit_s=min(accounting.seconds(row["Submit"]) for row in rows),
        runs=runs,
    )
