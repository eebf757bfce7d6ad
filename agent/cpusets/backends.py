"""The two ways to set a job's cores: by cpuset groups, by the affinity of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_soda.agent.cpusets.core_records import JobCoreRecord
from slurm_soda.agent.cpusets.cpu_list import Cpus, format_cpu_list, parse_cpu_list
from slurm_soda.agent.cpusets.errors import JobGoneError
from slurm_soda.agent.cpusets.job_cpusets import JobCpusets
from slurm_soda.agent.cpusets.thread_affinity import list_threads, read_affinity, set_affinity

AFFINITY = "affinity"
_PASSES = 4
"""Threads that start while others are bound may have been forked before."""
_SLURM_STEPS = ("step_batch", "step_extern", "step_interactive")
"""Steps that a job with other steps does not work in."""


@dataclass(frozen=True, slots=True)
class FoundCores:
    """A job's cores as found."""

    source: str
    path: str
    allocated: Cpus
    working: Cpus
    """Those that it can use at present."""
    step: str = ""
    """See :attr:`~.core_records.JobCoreRecord.step`."""
    shares: Sequence[Cpus] = ()
    original: Mapping[str, str] = field(default_factory=dict)


class CoreBackend(Protocol):
    """Reads and sets the cores of one job."""

    def find_cores(self) -> FoundCores:
        """What the job has; raises CoresError where that cannot be found out, JobGoneError where it ended."""
        ...

    def originals(self, held: JobCoreRecord) -> Mapping[str, str]:
        """What everything that is there had before it was changed, to be recorded first. Errors as of ``survey``."""
        ...

    def apply(self, held: JobCoreRecord, cpus: Cpus | None) -> Mapping[str, str]:
        """Give the job these CPUs, or what it had; returns what everything that is there had. Errors as of ``survey``."""
        ...

    def differs(self, held: JobCoreRecord, cpus: Cpus) -> bool:
        """Whether something of the job may use other CPUs than these now. Errors as of ``survey``."""
        ...


def online_cpus() -> Cpus:
    """CPUs of the machine that this process may run on: a thread with all of them is bound to none."""
    return frozenset(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class CpusetBackend:
    """By cpuset groups, which no job can leave."""

    groups: JobCpusets

    def find_cores(self) -> FoundCores:
        groups = self.groups
        names = groups.names()
        allocated = groups.effective()
        original = {name: format_cpu_list(groups.read(name)) for name in names}
        pids = groups.pids()
        masks = self._masks(pids)
        steps = sorted({name.partition("/")[0] for name in pids if name} - set(_SLURM_STEPS))
        working, step = allocated, ""
        if steps:
            used = [self._used(name, allocated, masks) for name in pids if name.partition("/")[0] in steps]
            working = frozenset().union(*used) or allocated
            step = steps[0] if len(steps) == 1 and working != allocated else ""
        shares = [mask for mask in set(masks.values()) if mask < working]
        return FoundCores(groups.source, groups.path, allocated, working, step, sorted(shares, key=sorted), original)

    def originals(self, held: JobCoreRecord) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self.groups.names():
            self._original(held, name, found)
        return found

    def apply(self, held: JobCoreRecord, cpus: Cpus | None) -> Mapping[str, str]:
        originals: dict[str, str] = {}

        def wanted(names: list[str]) -> Mapping[str, Cpus]:
            found: dict[str, Cpus] = {}
            for gone in originals.keys() - set(names):
                del originals[gone]
            for name in names:
                original = self._original(held, name, originals)
                if cpus is None:
                    found[name] = original
                elif not name or (held.step and name.partition("/")[0] == held.step):
                    found[name] = cpus
                else:
                    parent = found.get(name.rpartition("/")[0], cpus)
                    found[name] = original & cpus or parent
            return found

        self.groups.apply(wanted)
        if held.step:
            self._bind(held, cpus)
        return originals

    def differs(self, held: JobCoreRecord, cpus: Cpus) -> bool:
        return any(not self._reads(name) <= cpus for name in self.groups.names())

    def _reads(self, name: str) -> Cpus:
        try:
            return self.groups.read(name)
        except JobGoneError:
            if not name:
                raise
            return frozenset()

    def _original(self, held: JobCoreRecord, name: str, originals: dict[str, str]) -> Cpus:
        """What a group had. One that is new has what Slurm wrote, or what it inherited from a parent that was narrowed."""
        if name in held.original:
            originals[name] = held.original[name]
        elif name not in originals:
            has = self._reads(name)
            originals[name] = format_cpu_list(held.allocated if has in held.given else has & held.allocated)
        return parse_cpu_list(originals[name])

    def _used(self, name: str, allocated: Cpus, masks: Mapping[str, Cpus]) -> Cpus:
        """What the processes of a group can use: its cores, or those that Slurm bound its tasks to."""
        try:
            return self.groups.effective(name) & masks.get(name, allocated)
        except JobGoneError:
            return frozenset()

    def _masks(self, pids: Mapping[str, Iterable[int]]) -> dict[str, Cpus]:
        """What the tasks of each group are bound to, for groups whose tasks are. Not for Slurm's own process of a step."""
        everywhere = online_cpus()
        found: dict[str, Cpus] = {}
        for name, process_ids in pids.items():
            if name.count("/"):
                masks = [mask for mask in map(read_affinity, process_ids) if mask and mask != everywhere]
                if masks:
                    found[name] = frozenset().union(*masks)
        return found

    def _bind(self, held: JobCoreRecord, cpus: Cpus | None) -> None:
        """A step whose tasks Slurm bound to few cores: let those that still are bound so follow its groups."""
        before = {held.first(held.start), *held.given}
        target = held.first(held.start) if cpus is None else cpus
        for name, process_ids in self.groups.pids().items():
            if name.startswith(f"{held.step}/"):
                for thread in list_threads(process_ids):
                    if read_affinity(thread) in before:
                        set_affinity(thread, target)


@dataclass(frozen=True, slots=True)
class AffinityBackend:
    """By the affinity of every thread of the job: for nodes without cpuset groups, where task/affinity bound them."""

    job_id: int
    pids: Callable[[], Iterable[int]]

    def find_cores(self) -> FoundCores:
        masks = {mask for mask in map(read_affinity, list_threads(self.pids())) if mask}
        if not masks:
            raise JobGoneError(f"job {self.job_id} has no process here")
        allocated = frozenset().union(*masks)
        shares = sorted((mask for mask in masks if mask < allocated), key=sorted)
        original = {str(number): format_cpu_list(mask) for number, mask in enumerate([allocated, *shares])}
        return FoundCores(AFFINITY, "", allocated, allocated, "", shares, original)

    def originals(self, held: JobCoreRecord) -> Mapping[str, str]:
        return held.original

    def apply(self, held: JobCoreRecord, cpus: Cpus | None) -> Mapping[str, str]:
        for _ in range(_PASSES):
            changed = [self._bind(thread, held, cpus) for thread in list_threads(self.pids())]
            if not changed:
                raise JobGoneError(f"job {self.job_id} has no process here")
            if not any(changed):
                break
        return held.original

    def differs(self, held: JobCoreRecord, cpus: Cpus) -> bool:
        masks = [read_affinity(thread) for thread in list_threads(self.pids())]
        if not masks:
            raise JobGoneError(f"job {self.job_id} has no process here")
        return any(mask is not None and not mask <= cpus for mask in masks)

    def _bind(self, thread: int, held: JobCoreRecord, cpus: Cpus | None) -> bool:
        mask = read_affinity(thread)
        if mask is None:
            return False
        shares = map(parse_cpu_list, held.original.values())
        theirs = [s for s in shares if mask == s or any(mask == (s & given or given) for given in held.given)]
        own = frozenset[int]().union(*theirs) or mask  # or it bound itself
        target = own if cpus is None else own & cpus or cpus
        if target == mask:
            return False
        set_affinity(thread, target)
        return True
