"""Carries decisions out on one node, and takes everything back: at a job's end, at the agent's end, after a dead agent.

Order is what makes this safe: a group is recorded, then made, then limited, then given its threads. Going back, threads
leave with their group (the kernel moves them to the root), and the record is the last to forget it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from slurm_soda.agent.contention.bandwidth import BandwidthMeter, BandwidthRates
from slurm_soda.agent.contention.limit_record import LimitRecord, read_limit_record, write_limit_record
from slurm_soda.agent.contention.resctrl import Resctrl, ResctrlError, ResctrlFull, ResctrlGroup
from slurm_soda.agent.contention.resctrl_features import FULL_PERCENT, ResctrlFeatures
from slurm_soda.agent.state_file import StateFileError
from slurm_soda.policies.node_limits.eliminator import (
    LimitAction,
    LimitCores,
    ReleaseBandwidth,
    RestoreCores,
    ThrottleBandwidth,
)
from slurm_soda.wire.errors import SodaError

MAX_FAULTS_REMEMBERED = 256
"""Faults remembered as reported already."""


class CoreLimiter(Protocol):
    """Where the cores of a job are set; the agent's part for CPU sets does it."""

    def limit(self, job_id: int, cores: int) -> None:
        """Let the job run on this many of its cores. Raises SodaError where that fails."""

    def restore(self, job_id: int) -> None:
        """Give the job all its cores; a job that is gone, or has them, is no error. Raises SodaError where that fails."""


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """An action that could not be carried out; nothing of it is left."""

    job_id: int
    why: str
    full: bool = False
    """The node has no control group left: halve cores instead."""


class LimitEnforcer:
    """The groups and limits of one node's jobs. Not safe to share between threads."""

    def __init__(self, resctrl: Resctrl, cores: CoreLimiter, path: Path, report: Callable[[str], object]) -> None:
        """Take over what ``path`` records; ``report`` gets each new fault, one line each.

        Raises:
            ResctrlError: the mount does not answer as the kernel documents.
        """
        self._resctrl = resctrl
        self._cores = cores
        self._path = path
        self._report = report
        self._meter = BandwidthMeter()
        self._wanted: dict[int, int | None] = {}
        """Percentage of each job with a group, None: only measured."""
        self._said: set[str] = set()
        self._record = LimitRecord()
        self.features: ResctrlFeatures = resctrl.features()
        try:
            self._record = read_limit_record(path)
        except StateFileError as error:
            self._say(str(error))

    @property
    def peak_bytes_per_s(self) -> float:
        """The node's highest bandwidth so far, an earlier agent's included."""
        return self._record.peak_bytes_per_s

    @property
    def holds(self) -> bool:
        """Something is limited or measured, or would not go when it was taken back."""
        return bool(self._record.groups or self._record.cores)

    @property
    def limited_jobs(self) -> int:
        """Jobs that are held back, by throttling or by fewer cores."""
        throttled = {job_id for job_id, percent in self._wanted.items() if percent is not None}
        return len(throttled | self._record.cores)

    def recover(self) -> None:
        """Take back what an earlier agent left, recorded or not; to be called before anything else. May be repeated."""
        self._wanted.clear()
        try:
            found = self._resctrl.ours()
        except ResctrlError as error:
            self._say(str(error))
            found = ()
        groups = {group.path for group in found} | self._record.groups
        self._remember(replace(self._record, groups=frozenset(groups)))
        self._sweep()
        for job_id in sorted(self._record.cores):
            self._restore(job_id)

    def sample(self, now_s: float) -> BandwidthRates | None:
        """Read all counters. None: no monitoring, or no interval yet."""
        if not self.features.event:
            return None
        try:
            rates = self._meter.read(now_s, self._resctrl.counters(self.features.event))
        except ResctrlError as error:
            self._say(str(error))
            return None
        if rates is not None and rates.node > self._record.peak_bytes_per_s * 1.01:
            self._remember(replace(self._record, peak_bytes_per_s=rates.node))
        return rates

    def refresh(self, jobs: Mapping[int, Collection[int]]) -> None:
        """Measure these CPU jobs, by their thread ids, put new threads where theirs are, and forget all other jobs."""
        for job_id in sorted((set(self._wanted) | self._record.cores) - set(jobs)):
            self.end(job_id)
        self._sweep()
        if not self.features.event and self.features.throttle is None:
            return
        for job_id, task_ids in sorted(jobs.items()):
            percent = self._wanted.get(job_id)
            if percent is None and not self.features.event:
                continue
            refused = self._place(job_id, task_ids, percent)
            if refused is not None:
                self._say(refused.why if not refused.full else self._full(percent))

    def carry_out(
        self, actions: Collection[LimitAction], jobs: Mapping[int, Collection[int]]
    ) -> tuple[RefusedAction, ...]:
        """Do what was decided, with the jobs' thread ids; says what could not be done."""
        done = (self._carry_out(action, jobs.get(action.job_id, ())) for action in actions)
        refusals = tuple(refused for refused in done if refused is not None)
        for refused in refusals:
            self._say(refused.why if not refused.full else self._full(FULL_PERCENT))
        return refusals

    def end(self, job_id: int) -> None:
        """A job is over: take back everything of it. What the kernel will not give back now is tried again later."""
        self._wanted.pop(job_id, None)
        self._sweep()
        if job_id in self._record.cores:
            self._restore(job_id)

    def close(self) -> None:
        """Take back everything."""
        self.recover()

    def _carry_out(self, action: LimitAction, task_ids: Collection[int]) -> RefusedAction | None:
        match action:
            case ThrottleBandwidth(job_id, percent):
                return self._place(job_id, task_ids, percent)
            case ReleaseBandwidth(job_id):
                if self.features.event:
                    return self._place(job_id, task_ids, None)
                self.end(job_id)
            case LimitCores(job_id, cores):
                return self._limit_cores(job_id, cores)
            case RestoreCores(job_id):
                self._restore(job_id)
        return None

    def _limit_cores(self, job_id: int, cores: int) -> RefusedAction | None:
        try:
            self._store(replace(self._record, cores=self._record.cores | {job_id}))
            self._cores.limit(job_id, cores)
        except SodaError as error:
            self._restore(job_id)
            return RefusedAction(job_id, f"job {job_id} is not limited to {cores} cores: {error}")
        return None

    def _restore(self, job_id: int) -> None:
        if job_id not in self._record.cores:
            return
        try:
            self._cores.restore(job_id)
        except SodaError as error:
            self._say(f"job {job_id} does not get its cores back yet: {error}")
        else:
            self._remember(replace(self._record, cores=self._record.cores - {job_id}))

    def _place(self, job_id: int, task_ids: Collection[int], percent: int | None) -> RefusedAction | None:
        """Bring a job's threads into the group it should have; a group that vanishes meanwhile is made once more."""
        before = self._wanted.get(job_id, percent)
        self._wanted[job_id] = percent
        try:
            try:
                self._place_once(job_id, task_ids, percent)
            except ResctrlFull:
                raise
            except ResctrlError:
                self._place_once(job_id, task_ids, percent)
        except SodaError as error:
            self._give_up(job_id, measured=percent is not None and before is None)
            what = "measured" if percent is None else f"throttled to {percent} %"
            return RefusedAction(job_id, f"job {job_id} is not {what}: {error}", isinstance(error, ResctrlFull))
        return None

    def _give_up(self, job_id: int, *, measured: bool) -> None:
        """Leave nothing of a limit that could not be set; what was only measured before may stay measured."""
        if not measured:
            del self._wanted[job_id]
            self._sweep()
            return
        self._wanted[job_id] = None
        try:
            self._remove(ResctrlGroup(job_id, control=True))
        except ResctrlError as error:
            self._say(f"{error}; tried again later")

    def _place_once(self, job_id: int, task_ids: Collection[int], percent: int | None) -> None:
        group = ResctrlGroup(job_id, control=percent is not None)
        other = ResctrlGroup(job_id, control=percent is None)
        alone = {group.path, other.path} & self._record.groups == {group.path}
        if alone and set(task_ids) <= set(self._resctrl.tasks(group)) and self._holds(group, percent):
            return
        if percent is None:
            self._remove(other)  # first: a thread must be the root's before a monitoring group of the root can have it
        foreign_tasks = self._resctrl.foreign_tasks()
        if task_ids and foreign_tasks.issuperset(task_ids):
            raise ResctrlError("its threads are in a control group that somebody else made")
        self._store(replace(self._record, groups=self._record.groups | {group.path}))
        self._resctrl.create(group)
        if percent is not None:
            self._resctrl.inherit(group)
            if not self._holds(group, percent):
                self._resctrl.limit(group, self._percents(percent))
        self._resctrl.add_tasks(group, sorted(set(task_ids) - foreign_tasks - set(self._resctrl.tasks(group))))
        self._remove(other)

    def _holds(self, group: ResctrlGroup, percent: int | None) -> bool:
        return percent is None or self._resctrl.limits(group) == self._percents(percent)

    def _percents(self, percent: int) -> dict[int, int]:
        """The limit by domain: never above what the site left to the root group, where the job came from."""
        throttle = self.features.throttle
        if throttle is None:
            raise ResctrlError(f"no throttling on this node: {self.features.missing}")
        root = self._resctrl.limits(None)
        return {domain: min(throttle.round(percent), root.get(domain, FULL_PERCENT)) for domain in throttle.domains}

    def _remove(self, group: ResctrlGroup) -> None:
        if group.path in self._record.groups:
            self._resctrl.remove(group)
            self._remember(replace(self._record, groups=self._record.groups - {group.path}))

    def _sweep(self) -> None:
        """Remove recorded groups that no job wants."""
        for path in sorted(self._record.groups):
            group = ResctrlGroup.parse(path)
            if group is None:
                self._remember(replace(self._record, groups=self._record.groups - {path}))
            elif group.job_id not in self._wanted:
                try:
                    self._remove(group)
                except ResctrlError as error:
                    self._say(f"{error}; tried again later")

    def _store(self, record: LimitRecord) -> None:
        """Record what is about to be done: without that it is not done."""
        if record != self._record:
            write_limit_record(self._path, record)
            self._record = record

    def _remember(self, record: LimitRecord) -> None:
        """Record what has been done. A file that says too much does no harm."""
        if record == self._record:
            return
        self._record = record
        try:
            write_limit_record(self._path, record)
        except StateFileError as error:
            self._say(str(error))

    def _full(self, percent: int | None) -> str:
        """One fault for all jobs that find the node full."""
        if percent is None:
            return f"not all CPU jobs can be measured: all {self.features.monitor_ids} monitoring ids (RMIDs) are taken"
        groups = self.features.throttle.groups if self.features.throttle else 0
        return (
            f"no CPU job can be throttled further: all {groups} control ids (CLOSIDs) or {self.features.monitor_ids} "
            "monitoring ids (RMIDs) are taken; remove groups that nobody uses"
        )

    def _say(self, fault: str) -> None:
        if len(self._said) >= MAX_FAULTS_REMEMBERED:
            self._said.clear()
        if fault not in self._said:
            self._said.add(fault)
            self._report(fault)
