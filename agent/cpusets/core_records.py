"""Jobs with other cores than Slurm gave them, on disk before they have them, so that whoever comes next can restore them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_soda.agent.cpusets.cpu_list import Cpus, parse_cpu_list
from slurm_soda.agent.state_file import StateFileError, read_state, write_state
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.json_fields import JsonFields
from slurm_soda.wire.run_fields import MAX_CPUS, RunFields

VERSION = 1
MAX_JOBS = 4096
MAX_GROUPS = 4096
"""Groups of one job."""
_MAX_TEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class JobCoreRecord:
    """A job whose cores are, or were about to be, changed."""

    job_id: int
    start_s: int
    """With ``job_id`` this names the run."""
    source: str
    """``cgroup/v1``, ``cgroup/v2`` or ``affinity``."""
    path: str
    """The job's group; empty with affinity."""
    order: tuple[int, ...]
    """The CPUs that it may have here, those that it keeps longest first."""
    width: int
    """How many of them count as one core: with n cores it has the first n * width."""
    start: int
    """How many cores it worked on when it was found."""
    step: str
    """The one step that does all the work with fewer cores than the job has and may therefore have more; mostly empty."""
    original: Mapping[str, str]
    """What every group had, by its path below the job's; with affinity the different sets that threads were bound to."""
    limits: Mapping[str, int]
    """Cores by who wants them; the fewest count."""
    applied: tuple[str, ...] = ()
    """The sets that the job's threads may have: what was given last, and while that is being changed the next one too."""

    @property
    def allocated(self) -> Cpus:
        """The job's CPUs as Slurm gave them."""
        return parse_cpu_list(self.original.get("", "")) or frozenset(self.order)

    @property
    def cpus(self) -> Cpus:
        """What the job should have now."""
        return self.first(min(self.limits.values())) if self.limits else self.allocated

    @property
    def most(self) -> int:
        """The most cores that it may have here."""
        return len(self.order) // self.width

    @property
    def given(self) -> tuple[Cpus, ...]:
        """:attr:`applied` as sets."""
        return tuple(map(parse_cpu_list, self.applied))

    def first(self, cores: int) -> Cpus:
        """The CPUs of so many cores."""
        return frozenset(self.order[: cores * self.width])


def read_core_records(path: Path) -> tuple[dict[int, JobCoreRecord], list[str]]:
    """Jobs on record, by id, and faults: one for each job whose record cannot be understood.

    Raises:
        StateFileError: the file is damaged.
    """
    content = read_state(path, VERSION)
    jobs: dict[int, JobCoreRecord] = {}
    faults = []
    try:
        items = JsonFields("cores record", content).objects("jobs", MAX_JOBS)
    except RecordError as error:
        raise StateFileError(f"{path}: {error}: cores that were taken are not known any more") from error
    for item in items:
        try:
            held = _core_record(item)
        except RecordError as error:
            whose = f" job {item['job_id']!a:.12}:" if isinstance(item, dict) and "job_id" in item else ""
            faults.append(f"{path}:{whose} {error}: cores that were taken are not known any more")
        else:
            jobs[held.job_id] = held
    return jobs, faults


def write_core_records(path: Path, jobs: Collection[JobCoreRecord]) -> None:
    """Put jobs on record.

    Raises:
        StateFileError: it cannot be written, so nothing may be changed.
    """
    if len(jobs) > MAX_JOBS:
        raise StateFileError(f"{path} would hold {len(jobs)} jobs, and at most {MAX_JOBS} are read: nothing is changed")
    write_state(path, VERSION, {"jobs": [asdict(held) for held in jobs]})


def check_core_record(held: JobCoreRecord) -> None:
    """Make sure that a job's record can be read again once it is written.

    Raises:
        StateFileError: it cannot, so nothing of the job may be changed.
    """
    try:
        _core_record(json.loads(json.dumps(asdict(held))))
    except RecordError as error:
        raise StateFileError(f"{error}: its cores are not changed") from error


def _core_record(data: object) -> JobCoreRecord:
    read = RunFields("core record", data)
    return JobCoreRecord(
        job_id=read.job_id(),
        start_s=read.start_s(),
        source=read.text("source", 32),
        path=read.text("path", _MAX_TEXT_LENGTH),
        order=read.wholes("order", MAX_CPUS, 0, MAX_CPUS),
        width=read.whole("width", 1, 64),
        start=read.cpus("start"),
        step=read.text("step", _MAX_TEXT_LENGTH),
        original={
            name: _cpus(cpus) for name, cpus in read.text_map("original", MAX_GROUPS, _MAX_TEXT_LENGTH * 4).items()
        },
        limits=read.whole_map("limits", 64, 1, MAX_CPUS),
        applied=tuple(map(_cpus, read.texts("applied", 2, _MAX_TEXT_LENGTH * 4))),
    )


def _cpus(text: str) -> str:
    try:
        parse_cpu_list(text)
    except ValueError as error:
        raise RecordError(f"core record: {text[:60]!a} is no list of CPUs") from error
    return text
