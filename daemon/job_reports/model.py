"""What one report says, as values: the command line prints it, a page may draw it, and JSON carries it as it is.

Instants are Unix seconds and durations seconds, both ``_s``; ``None`` is what nobody knows. Text that users chose (names) is
as they chose it: whoever shows it makes it harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOPICS = ("unused-gpus", "start", "end", "cpu-bound", "idle", "memory", "cpus", "time-limit", "preemption")
"""What advice may be about, what costs most first."""


@dataclass(frozen=True, slots=True)
class ReportedJob:
    """The job and what it asked for."""

    job_id: int
    user: str
    account: str
    name: str
    partition: str
    state: str
    exit_code: str
    submit_s: float
    start_s: float | None
    """Of the first run."""
    end_s: float | None
    time_limit_s: float | None
    nodes: int
    gpus: int
    cpus: int
    memory_mib: int | None
    """On all nodes together."""


@dataclass(frozen=True, slots=True)
class IdleTime:
    """A time in which a GPU was idle whenever it was read."""

    start_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class GpuTimeline:
    """Mean utilisation by equal steps; ``None`` where nothing was read."""

    start_s: float
    step_s: float
    util_ratios: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU in one run. Of a GPU that was shared, utilisation, memory and power are those of all jobs on it."""

    index: int
    measured_s: float
    util_ratio: float
    """Mean over :attr:`measured_s`."""
    util_max_ratio: float
    memory_peak_mib: float
    memory_mib: float | None
    """Of the whole GPU."""
    power_w: float | None
    """Mean."""
    power_max_w: float | None
    energy_wh: float | None
    idle_s: float
    """All time in which it was idle."""
    idle_spans: int
    """Idle times of more than 5 s: how many,"""
    idle_spans_s: float
    """and how long in all."""
    longest_idle: Sequence[IdleTime]
    """The longest of them, by time."""
    first_use_s: float | None
    """When it was first not idle; ``None``: never."""
    last_use_s: float | None
    never_used: bool
    """Idle in every one of many readings, over all of the run but a tenth."""
    timeline: GpuTimeline


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One run on one node."""

    node: str
    opened_s: float | None
    last_s: float | None
    """Up to when it was measured."""
    cpus: int | None
    """That it holds there."""
    cpu_s: float | None
    cores_used: float | None
    """CPU seconds by the time in which they were used."""
    memory_peak_mib: float | None
    memory_mib: float | None
    """That it asked for there, if it asked for the same on each node."""
    gpu_util_ratio: float | None
    """Mean over its GPUs there."""
    gpu_memory_peak_mib: float | None
    """Largest sum over them."""
    gpus: Sequence[GpuFigures]
    missing: Sequence[str]
    """What was not measured, and why, in sentences."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run of the job: from a start to the end or the requeue."""

    restart: int
    start_s: float
    end_s: float | None
    """``None``: it runs."""
    shared: bool
    """Other jobs were on its GPUs at some time."""
    nodes: Sequence[NodeFigures]


@dataclass(frozen=True, slots=True)
class UseTotals:
    """All runs and nodes together."""

    run_s: float
    gpu_hours: float
    """Held: GPUs by run time."""
    gpu_util_ratio: float | None
    gpu_idle_ratio: float | None
    """Of the GPU time that was measured, the part in which GPUs were idle."""
    gpus_never_used: int
    """In the newest run."""
    gpu_memory_peak_mib: float | None
    """Largest on one GPU."""
    gpu_memory_mib: float | None
    """Of that GPU."""
    energy_wh: float | None
    """Of the GPUs, for as long as they were measured."""
    cores_used: float | None
    """Mean, of :attr:`ReportedJob.cpus`."""
    memory_peak_mib: float | None
    """Largest on one node; Slurm's accounting knows that of the largest task only."""
    memory_asked_mib: float | None
    """On one node."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """What Slurm said why it waits."""

    reason: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Time in the queue."""

    first_s: float
    """Up to the first start, or until now."""
    later_s: float
    """Between runs."""
    reasons: Sequence[WaitReason]
    """The longest first; none where sodad did not see it wait."""


@dataclass(frozen=True, slots=True)
class Preemptions:
    """What giving way cost it."""

    times: int
    """Preemptions by sodad."""
    requeues: int
    """Runs that were followed by another one, for whatever reason."""
    lost_s: float | None
    """Work that was done again, as far as it tells its progress."""
    lost_iterations: float | None
    reload_s: float | None
    """From starts after a requeue until it went on."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """GPUs that it had together with other jobs: of these only how many."""

    other_jobs: int
    as_guest: int
    """Times that it joined others."""
    as_host: int
    """Times that another one joined it."""
    shared_s: float
    slowdown_ratio: float | None
    """Time of an iteration beside others, by that alone; ``None`` where it does not tell its progress."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that would be better another time."""

    topic: str
    """Of :data:`TOPICS`."""
    text: str
    """One sentence, with its figure."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """All of it."""

    as_of_s: float
    job: ReportedJob
    used: UseTotals
    waiting: Waiting
    preemptions: Preemptions
    sharing: Sharing | None
    """``None``: never."""
    runs: Sequence[RunFigures]
    """First to last."""
    advice: Sequence[Advice]
    missing: Sequence[str]
    """What the report cannot say, and why, in sentences."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job in a list of reports."""

    job: ReportedJob
    used: UseTotals
    waiting: Waiting
    preempted: int
    shared: bool
    missing: bool
    """Something was not measured."""
    advice: Sequence[Advice]


@dataclass(frozen=True, slots=True)
class JobLines:
    """The newest jobs of a user, newest last."""

    as_of_s: float
    jobs: Sequence[JobLine]
    more: bool
    """Older ones were left out."""
