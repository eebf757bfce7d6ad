"""The cores of this node's running jobs: fewer of them for a while, never others than Slurm gave, and all of them back.

Several controllers may want fewer cores for one job; it gets the fewest that anyone wants, and what one gives back changes
nothing for the others. What a job had is on disk before it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_soda.agent.cpusets.backends import AFFINITY, AffinityBackend, CoreBackend, CpusetBackend
from slurm_soda.agent.cpusets.core_order import CpuLayout, order_cpus, read_siblings, threads_per_core
from slurm_soda.agent.cpusets.core_records import (
    JobCoreRecord,
    check_core_record,
    read_core_records,
    write_core_records,
)
from slurm_soda.agent.cpusets.cpu_list import Cpus, format_cpu_list
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.cpusets.job_cpusets import JobCpusets, find_job_cpusets
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.state_file import StateFileError
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.records import JobOpened

MOST_CORRECTIONS = 5
"""A job that puts itself back onto other cores this often in a row is left alone."""

CpusNearGpus = Callable[[Sequence[int]], Cpus]
"""The CPUs near some GPUs; empty where that is not known."""
JobPids = Callable[[JobOpened], Iterable[int]]
"""The processes of a job."""


@dataclass(frozen=True, slots=True)
class CoreRange:
    """What can be done with a job's cores."""

    start: int
    """Cores that it works on when nothing is changed."""
    limit: int
    """The most that it may have here: its allocation, or the start where its steps divide that among themselves."""


class JobCoreLimits:
    """Sets cores; see the module. Not safe to share between threads."""

    def __init__(self, cgroup_root: str, path: Path, pids: JobPids, near: CpusNearGpus) -> None:
        """``path``: the record, in a directory of root's."""
        self._root = cgroup_root
        self._path = path
        self._pids = pids
        self._near = near
        self._runs: dict[int, NodeRun] = {}
        self._held: dict[int, JobCoreRecord] = {}
        self._defiant: dict[int, int] = {}
        """Corrections in a row."""
        self._half_set: set[int] = set()
        """Jobs that may have fewer cores than is wanted, since a change failed and so did the way back."""

    def recover(self) -> list[str]:
        """Give every job on record its cores back; returns faults.

        With affinity that takes a first reading of the jobs that are here.
        """
        try:
            self._held, faults = read_core_records(self._path)
        except StateFileError as error:
            return [str(error)]
        return faults + self.restore_all()

    def restore_all(self) -> list[str]:
        """Give every job its cores back, whoever wanted fewer; returns faults. What cannot be done now is tried again."""
        self._held = {job_id: replace(held, limits={}) for job_id, held in self._held.items()}
        return self._release_unwanted()

    def counts(self) -> Mapping[str, int]:
        """Jobs that have fewer cores than Slurm gave them, and how many they lack together."""
        lacking = [(len(held.allocated) - len(held.cpus)) // held.width for held in self._held.values()]
        return {
            "jobs_with_fewer_cores": sum(cores > 0 for cores in lacking),
            "cores_taken": sum(cores for cores in lacking if cores > 0),
        }

    def _release_unwanted(self) -> list[str]:
        faults = []
        for job_id in [held.job_id for held in self._held.values() if not held.limits]:
            if self._held[job_id].source == AFFINITY and job_id not in self._runs:
                continue
            try:
                self._release(job_id)
            except SodaError as error:
                faults.append(f"job {job_id} does not get its cores back yet: {error}")
        return faults

    def observe(self, runs: Iterable[NodeRun]) -> list[str]:
        """Take note of the runs that are here; what others had is forgotten, as their groups are gone. Returns faults."""
        self._runs = {run.key.job_id: run for run in runs}
        gone = [held.job_id for held in self._held.values() if not self._is_here(held)]
        for job_id in gone:
            del self._held[job_id]
        self._defiant = {job_id: times for job_id, times in self._defiant.items() if job_id in self._runs}
        self._half_set &= self._held.keys()
        try:
            if gone:
                self._write()
        except StateFileError as error:
            return [str(error)]
        return []

    def reapply_limits(self) -> list[str]:
        """Set again what a new step or the job itself has set otherwise; returns faults."""
        faults = self._release_unwanted()
        for held in [held for held in self._held.values() if held.limits]:
            try:
                if held.job_id in self._half_set:
                    self._set(held, held)
                elif self._means(held).differs(held, held.cpus):
                    self._correct(held)
                else:
                    self._defiant.pop(held.job_id, None)
            except JobGoneError:
                continue
            except SodaError as error:
                faults.append(f"job {held.job_id}: {error}")
        return faults

    def core_range(self, job_id: int) -> CoreRange:
        """What can be done with a job's cores.

        Raises:
            JobGoneError: it ended, or has no process yet.
            CoresError: its cores cannot be set on this node.
        """
        held = self._held.get(job_id) or self._found(job_id)
        return CoreRange(held.start, held.most)

    def limit(self, job_id: int, cores: int, holder: str) -> int:
        """Let a job run on so many of its cores; returns how many it has now, fewer if another holder wants fewer.

        Raises:
            JobGoneError: it ended.
            CoresError: they cannot be set; then it has what it had.
        """
        if self._defiant.get(job_id, 0) >= MOST_CORRECTIONS:
            raise CoresError(f"job {job_id} puts itself onto other cores again and again")
        before = self._held.get(job_id) or self._found(job_id)
        limits = {**before.limits, holder: max(1, min(cores, before.most))}
        self._set(before, replace(before, limits=limits))
        return min(limits.values())

    def held(self, job_id: int) -> int:
        """Cores that a job has at most now because somebody wants fewer; 0: nobody does."""
        held = self._held.get(job_id)
        return min(held.limits.values(), default=0) if held is not None else 0

    def restore(self, job_id: int, holder: str) -> None:
        """Let go of what one holder wanted; a job that is gone, or that it does not hold, is no error.

        Raises:
            CoresError: they cannot be set now; :meth:`reapply_limits` tries again, the holder need not.
        """
        held = self._held.get(job_id)
        if held is None or holder not in held.limits:
            return
        fewer = replace(held, limits={name: cores for name, cores in held.limits.items() if name != holder})
        try:
            if fewer.limits:
                self._set(held, fewer)
            else:
                self._release(job_id)
        except JobGoneError:
            self._want_again(fewer)
        except SodaError:
            self._want_again(fewer)
            raise

    def holder(self, name: str) -> CoreLimitHolder:
        """What one controller limits cores with, under its name."""
        return CoreLimitHolder(self, name)

    def _set(self, before: JobCoreRecord, held: JobCoreRecord) -> None:
        now, means = format_cpu_list(held.cpus), self._means(held)
        held = replace(held, applied=tuple({now, *before.applied[:1]}), original=means.originals(before))
        self._store(held)
        try:
            original = means.apply(held, held.cpus)
            if means.differs(held, held.cpus):
                raise CoresError(f"job {held.job_id} has other cores than {now} although they were set")
            self._store(replace(held, applied=(now,), original=original))
        except SodaError:
            self._undo(before)
            raise
        self._half_set.discard(held.job_id)

    def _undo(self, before: JobCoreRecord) -> None:
        """After a change that failed half-way: back to what was; where that fails too it is tried again."""
        if before.limits:
            self._want_again(before)
            self._means(before).apply(before, before.cpus)
            self._half_set.discard(before.job_id)
        else:
            self._release(before.job_id)

    def _want_again(self, held: JobCoreRecord) -> None:
        """Have :meth:`reapply_limits` bring about what could not be set now, unless the job is gone."""
        if held.job_id in self._held:
            self._held[held.job_id] = replace(held, original=self._held[held.job_id].original)
            self._half_set.add(held.job_id)

    def _release(self, job_id: int) -> None:
        """Give a job all its cores back. Until that is done it stays on record, wanted by nobody."""
        held = self._held[job_id] = replace(self._held[job_id], limits={})
        try:
            self._means(held).apply(held, None)
        except JobGoneError:
            if held.source == AFFINITY and self._is_here(held):
                return  # its processes are not seen at the moment; groups that are gone do not come back
        del self._held[job_id]
        self._half_set.discard(job_id)
        self._write()

    def _correct(self, held: JobCoreRecord) -> None:
        if held.source == AFFINITY:  # out of a group nobody can get but slurmd, for a new step
            times = self._defiant[held.job_id] = self._defiant.get(held.job_id, 0) + 1
            if times >= MOST_CORRECTIONS:
                self._release(held.job_id)
                raise CoresError(f"put itself onto other cores {times} times in a row; it is left alone")
        means = self._means(held)
        self._store(noted := replace(held, original=means.originals(held)))
        self._store(replace(noted, original=means.apply(noted, noted.cpus)))

    def _found(self, job_id: int) -> JobCoreRecord:
        run = self._runs.get(job_id)
        if run is None or run.opened is None:
            raise JobGoneError(f"job {job_id} does not run here")
        opened = run.opened
        groups = find_job_cpusets(self._root, opened.node, opened.uid, job_id)
        survey = (CpusetBackend(groups) if groups else self._threads(opened)).find_cores()
        siblings = read_siblings(survey.allocated)
        wide = threads_per_core(survey.allocated, opened.cpus, siblings)
        if not wide or (survey.source == AFFINITY and not opened.cpus):
            raise CoresError(
                f"job {job_id} was given {opened.cpus} CPUs and may use {len(survey.allocated)}: Slurm does not limit its "
                "cores; set ConstrainCores=yes in cgroup.conf, or TaskPlugin=task/affinity"
            )
        layout = CpuLayout(self._near(opened.gpus), survey.shares, siblings)
        # What steps divide among themselves is not theirs to take from each other.
        usable = survey.allocated if survey.step else survey.working
        return JobCoreRecord(
            job_id=job_id,
            start_s=run.key.start_s,
            source=survey.source,
            path=survey.path,
            order=order_cpus(survey.working, usable, layout),
            width=wide,
            start=-(-len(survey.working) // wide),
            step=survey.step,
            original=survey.original,
            limits={},
            applied=(format_cpu_list(survey.working),),
        )

    def _means(self, held: JobCoreRecord) -> CoreBackend:
        if held.source != AFFINITY:
            return CpusetBackend(JobCpusets(held.source, held.path))
        run = self._runs.get(held.job_id)
        return AffinityBackend(held.job_id, lambda: self._pids(run.opened) if run and run.opened else ())

    def _threads(self, opened: JobOpened) -> CoreBackend:
        return AffinityBackend(opened.job_id, lambda: self._pids(opened))

    def _is_here(self, held: JobCoreRecord) -> bool:
        run = self._runs.get(held.job_id)
        return run is not None and run.key.start_s == held.start_s

    def _store(self, held: JobCoreRecord) -> None:
        """Put a job on record, where that says something new; if it cannot be written, what was known stays."""
        known = self._held.get(held.job_id)
        if held == known:
            return
        check_core_record(held)
        self._held[held.job_id] = held
        try:
            self._write()
        except StateFileError:
            if known is None:
                del self._held[held.job_id]
            else:
                self._held[held.job_id] = known
            raise

    def _write(self) -> None:
        write_core_records(self._path, self._held.values())


@dataclass(frozen=True, slots=True)
class CoreLimitHolder:
    """One controller's access to the cores of jobs."""

    sets: JobCoreLimits
    name: str

    def limit(self, job_id: int, cores: int) -> None:
        """Let the job run on so many of its cores at most; errors as of :meth:`JobCoreLimits.limit`."""
        self.sets.limit(job_id, cores, self.name)

    def restore(self, job_id: int) -> None:
        """Want nothing of the job any more; errors as of :meth:`JobCoreLimits.restore`."""
        self.sets.restore(job_id, self.name)
