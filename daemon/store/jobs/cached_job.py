"""What one job's past is, worked out from what Slurm shows at any later time.

Slurm shows the present run only. But its restart count, and the submit time, which it moves to the end of the previous run
at each requeue, tell of the runs before; so the past is right to about a second even if nobody looked in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slurm_soda.daemon.store.jobs.wait_times import WaitTimes
from slurm_soda.policies.snapshot import NEVER, JobState
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, is_kept_back, policy_state
from slurm_soda.slurm_ext.read.snapshot import JobRunHistory


@dataclass(slots=True)
class CachedRun:
    """One run; Unix seconds."""

    restart: int
    start_s: float
    end_s: float | None = None
    node_names: str = ""
    gpus: int = 0
    promoted_s: float | None = None
    shared: bool = False
    """Another job was seen on one of its GPUs."""
    pk: int | None = None
    dirty: bool = True


@dataclass(slots=True)
class CachedJob:
    """One job as the store knows it, kept in memory while Slurm lists it."""

    job_id: int
    submit_s: float
    """First submission; Slurm's own moves at each requeue."""
    moved_from_s: float | None = None
    """What we took for the first submission before accounting knew better, until that is written."""
    record: SlurmJob | None = None
    """As last seen; ``None`` for a job of the store that Slurm has not shown yet."""
    seen: tuple[object, ...] = ()
    """What of the record matters here, for a quick comparison."""
    restart: int = 0
    state: str = "PENDING"
    first_start_s: float | None = None
    end_s: float | None = None
    exit_code: str = ""
    waited_since_s: float | None = None
    preemptions: int = 0
    promotions: int = 0
    promoted_s: float | None = None
    inherited_s: float = 0.0
    """Run time of a cancelled job that counts as this one's."""
    inherited_from: int | None = None
    """Key of that job."""
    accounted: bool = False
    cpu_s: float | None = None
    memory_peak_mib: float | None = None
    memory_mib: int = 0
    """What it asked for or holds, as last shown; 0: not known."""
    waits: WaitTimes = field(default_factory=WaitTimes)
    ran_until_s: float = -math.inf
    """The last instant at which somebody saw it run."""
    runs: dict[int, CachedRun] = field(default_factory=dict)
    pk: int | None = None
    dirty: bool = True

    @property
    def executed_s(self) -> float:
        """Run time of ended runs since the last promotion; before any, what was inherited as well."""
        since_s = -math.inf if self.promoted_s is None else self.promoted_s
        ended = ((run.start_s, run.end_s) for run in self.runs.values() if run.end_s is not None)
        inherited_s = self.inherited_s if self.promoted_s is None else 0.0
        return inherited_s + sum(max(0.0, end_s - max(start_s, since_s)) for start_s, end_s in ended)

    @property
    def missing_runs(self) -> list[int]:
        """Restart counts of runs that nobody saw."""
        return [restart for restart in range(self.restart) if restart not in self.runs]

    def past(self) -> JobRunHistory:
        """What a snapshot needs to know of this job."""
        run = self.runs.get(self.restart)
        return JobRunHistory(
            first_start_s=_time_or_never(self.first_start_s),
            executed_s=self.executed_s,
            run_since_s=_time_or_never(run.promoted_s if run and run.end_s is None else None),
            waiting_since_s=_time_or_never(self._waiting_since_s()),
            preemptions=self.preemptions,
            submit_s=self.submit_s,
        )

    def _waiting_since_s(self) -> float | None:
        """When the present wait began; of a running job, the one before."""
        ends = [run.end_s for run in self.runs.values() if run.end_s is not None]
        return max(ends if self.waited_since_s is None else [*ends, self.waited_since_s], default=None)

    def promote(self, at_s: float) -> None:
        """Forgive service and waiting so far (Tiresias, Section 3.2.3)."""
        self.promotions, self.promoted_s, self.dirty = self.promotions + 1, at_s, True
        run = self.runs.get(self.restart)
        if run is not None and run.end_s is None:
            run.promoted_s, run.dirty = at_s, True
        else:
            self.waited_since_s = at_s

    def inherit(self, key: int, executed_s: float) -> None:
        """Take over the service of a cancelled job, by its key (:mod:`slurm_soda.policies.engine.inherited_service`)."""
        self.inherited_from, self.inherited_s, self.dirty = key, executed_s, True

    def mark_shared(self) -> None:
        """Another job is on one of its GPUs."""
        run = self.runs.get(self.restart)
        if run is not None and run.end_s is None and not run.shared:
            run.shared, run.dirty, self.dirty = True, True, True

    def add_run(self, run: CachedRun) -> None:
        """Remember a run and what follows from it."""
        self.runs[run.restart] = run
        self.first_start_s = min(each.start_s for each in self.runs.values())
        self.dirty = True


def record_fingerprint(record: SlurmJob) -> tuple[object, ...]:
    """What of a record changes the cached job; a pending job's estimates and growing priority do not."""
    waits = record.state == "PENDING"
    return (
        record.state,
        record.reason,
        record.restarts,
        record.submit_s,
        waits or record.start_s,
        waits or record.end_s,
        record.partition,
        record.name,
        record.account,
        record.gpus,
        record.shared_gpus,
        record.cpus,
        record.memory_mib,
        record.nodes,
        record.time_limit_s,
        record.node_names,
        record.exit_code,
        record.hints,
    )


def is_same_job(job: CachedJob, record: SlurmJob) -> bool:
    """Whether a record is of the remembered job and not of a later one that got its id after a reset of Slurm."""
    if record.submit_s == job.submit_s:
        return True
    return record.restarts > 0 and record.restarts >= job.restart and record.submit_s >= job.submit_s


def update_from_record(job: CachedJob, record: SlurmJob, now_s: float, looked_s: float = -math.inf) -> None:
    """Take in what Slurm shows of a job now; ``looked_s`` is when it was looked at before."""
    if job.state == "RUNNING":
        job.ran_until_s = looked_s
    was_kept_back = _is_kept_back(job.record)
    job.record, job.seen, job.state, job.dirty = record, record_fingerprint(record), record.state, True
    job.memory_mib = record.memory_mib or job.memory_mib
    job.restart = max(job.restart, record.restarts)
    if record.state in ENDED_STATES:
        _end_job(job, record, now_s)
        return
    job.end_s, job.exit_code, job.accounted = None, "", False
    state = policy_state(record.state, record.reason)
    if state is JobState.COMPLETING:
        return  # a requeue shows the next run's count and a meaningless start already: PENDING will tell
    _close_earlier_runs(job, record, now_s)
    if state in (JobState.RUNNING, JobState.SUSPENDED):
        _update_run(job, record)
        job.waits.end(min(_time_or(record.start_s, now_s), now_s))
    else:
        _begin_wait(job)
        job.waits.wait(record.reason, job.submit_s if job.waited_since_s is None else job.waited_since_s, now_s)
        if was_kept_back or _is_kept_back(record):
            job.waited_since_s = now_s  # what is no wait for places counts for nothing


def _end_job(job: CachedJob, record: SlurmJob, now_s: float) -> None:
    _close_earlier_runs(job, record, now_s)
    job.end_s = _time_or(record.end_s, now_s)
    job.exit_code, job.waited_since_s = record.exit_code, None
    ran = bool(record.node_names) and not math.isnan(record.start_s)
    job.waits.end(record.start_s if ran else job.end_s)
    if ran:
        _update_run(job, record)
    run = job.runs.get(record.restarts)
    if run is not None:
        run.end_s, run.dirty = max(job.end_s, run.start_s), True


def _update_run(job: CachedJob, record: SlurmJob) -> None:
    run = job.runs.get(record.restarts)
    if run is None:
        run = CachedRun(record.restarts, record.start_s, node_names=record.node_names, gpus=record.gpus)
        job.add_run(run)
    elif (run.start_s, run.node_names) != (record.start_s, record.node_names):
        run.start_s, run.node_names, run.gpus, run.dirty = record.start_s, record.node_names, record.gpus, True
        job.first_start_s = min(each.start_s for each in job.runs.values())
    if record.shared_gpus and not run.shared:
        run.shared, run.dirty = True, True


def _is_kept_back(record: SlurmJob | None) -> bool:
    return record is not None and record.state not in ENDED_STATES and is_kept_back(record.state, record.reason)


def _begin_wait(job: CachedJob) -> None:
    ends = [run.end_s for run in job.runs.values() if run.end_s is not None]
    if ends:
        job.waited_since_s = max(*ends, job.promoted_s or 0.0, job.waited_since_s or 0.0)


def _close_earlier_runs(job: CachedJob, record: SlurmJob, now_s: float) -> None:
    """Runs before the present one are over: the last of them when Slurm moved the submit time.

    Slurm's times are whole seconds. A run never counts for less than a policy has seen of it, or a job that was preempted
    for crossing a queue's threshold would fall back below it.
    """
    for run in job.runs.values():
        if run.restart < record.restarts and run.end_s is None:
            end_s = record.submit_s if record.submit_s >= run.start_s else now_s
            run.end_s, run.dirty = min(max(end_s, job.ran_until_s), max(now_s, run.start_s)), True


def _time_or(time_s: float, otherwise_s: float) -> float:
    return otherwise_s if math.isnan(time_s) else time_s


def _time_or_never(time_s: float | None) -> float:
    return NEVER if time_s is None else time_s
