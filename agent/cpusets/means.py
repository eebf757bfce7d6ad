"""The two ways to set a job's cores: by cpuset groups, by the affinity of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_soda.agent.cpusets.cpulist import Cpus, parse, write
from slurm_soda.agent.cpusets.errors import JobGoneError
from slurm_soda.agent.cpusets.groups import JobGroups
from slurm_soda.agent.cpusets.record import Held
from slurm_soda.agent.cpusets.threads import affinity, set_affinity, threads_of

AFFINITY = "affinity"
_PASSES = 4
"""Threads that start while others are bound may have been forked before."""
_NO_WORK = ("step_batch", "step_extern", "step_interactive")
"""Steps that a job with other steps does not work in."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A job's cores as found."""

    source: str
    path: str
    allocated: Cpus
    working: Cpus
    """Those that it can use at present."""
    step: str = ""
    """See :attr:`~.record.Held.step`."""
    shares: Sequence[Cpus] = ()
    original: Mapping[str, str] = field(default_factory=dict)


class Means(Protocol):
    """Reads and sets the cores of one job."""

    def survey(self) -> Survey:
        """What the job has; raises CoresError where that cannot be found out, JobGoneError where it ended."""
        ...

    def originals(self, held: Held) -> Mapping[str, str]:
        """What everything that is there had before it was changed, to be recorded first. Errors as of ``survey``."""
        ...

    def apply(self, held: Held, cpus: Cpus | None) -> Mapping[str, str]:
        """Give the job these CPUs, or what it had; returns what everything that is there had. Errors as of ``survey``."""
        ...

    def strayed(self, held: Held, cpus: Cpus) -> bool:
        """Whether something of the job may use other CPUs than these now. Errors as of ``survey``."""
        ...


def online() -> Cpus:
    """CPUs of the machine that this process may run on: a thread with all of them is bound to none."""
    return frozenset(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """By cpuset groups, which no job can leave."""

    groups: JobGroups

    def survey(self) -> Survey:
        groups = self.groups
        names = groups.names()
        allocated = groups.effective()
        original = {name: write(groups.read(name)) for name in names}
        pids = groups.pids()
        masks = self._masks(pids)
        steps = sorted({name.partition("/")[0] for name in pids if name} - set(_NO_WORK))
        working, step = allocated, ""
        if steps:
            used = [self._used(name, allocated, masks) for name in pids if name.partition("/")[0] in steps]
            working = frozenset().union(*used) or allocated
            step = steps[0] if len(steps) == 1 and working != allocated else ""
        shares = [mask for mask in set(masks.values()) if mask < working]
        return Survey(groups.source, groups.path, allocated, working, step, sorted(shares, key=sorted), original)

    def originals(self, held: Held) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self.groups.names():
            self._original(held, name, found)
        return found

    def apply(self, held: Held, cpus: Cpus | None) -> Mapping[str, str]:
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

    def strayed(self, held: Held, cpus: Cpus) -> bool:
        return any(not self._reads(name) <= cpus for name in self.groups.names())

    def _reads(self, name: str) -> Cpus:
        try:
            return self.groups.read(name)
        except JobGoneError:
            if not name:
                raise
            return frozenset()

    def _original(self, held: Held, name: str, originals: dict[str, str]) -> Cpus:
        """What a group had. One that is new has what Slurm wrote, or what it inherited from a parent that was narrowed."""
        if name in held.original:
            originals[name] = held.original[name]
        elif name not in originals:
            has = self._reads(name)
            originals[name] = write(held.allocated if has in held.given else has & held.allocated)
        return parse(originals[name])

    def _used(self, name: str, allocated: Cpus, masks: Mapping[str, Cpus]) -> Cpus:
        """What the processes of a group can use: its cores, or those that Slurm bound its tasks to."""
        try:
            return self.groups.effective(name) & masks.get(name, allocated)
        except JobGoneError:
            return frozenset()

    def _masks(self, pids: Mapping[str, Iterable[int]]) -> dict[str, Cpus]:
        """What the tasks of each group are bound to, for groups whose tasks are. Not for Slurm's own process of a step."""
        everywhere = online()
        found: dict[str, Cpus] = {}
        for name, members in pids.items():
            if name.count("/"):
                masks = [mask for mask in map(affinity, members) if mask and mask != everywhere]
                if masks:
                    found[name] = frozenset().union(*masks)
        return found

    def _bind(self, held: Held, cpus: Cpus | None) -> None:
        """A step whose tasks Slurm bound to few cores: let those that still are bound so follow its groups."""
        before = {held.first(held.start), *held.given}
        target = held.first(held.start) if cpus is None else cpus
        for name, members in self.groups.pids().items():
            if name.startswith(f"{held.step}/"):
                for thread in threads_of(members):
                    if affinity(thread) in before:
                        set_affinity(thread, target)


@dataclass(frozen=True, slots=True)
class ThreadMeans:
    """By the affinity of every thread of the job: for nodes without cpuset groups, where task/affinity bound them."""

    job_id: int
    pids: Callable[[], Iterable[int]]

    def survey(self) -> Survey:
        masks = {mask for mask in map(affinity, threads_of(self.pids())) if mask}
        if not masks:
            raise JobGoneError(f"job {self.job_id} has no process here")
        allocated = frozenset().union(*masks)
        shares = sorted((mask for mask in masks if mask < allocated), key=sorted)
        original = {str(number): write(mask) for number, mask in enumerate([allocated, *shares])}
        return Survey(AFFINITY, "", allocated, allocated, "", shares, original)

    def originals(self, held: Held) -> Mapping[str, str]:
        return held.original

    def apply(self, held: Held, cpus: Cpus | None) -> Mapping[str, str]:
        for _ in range(_PASSES):
            changed = [self._bind(thread, held, cpus) for thread in threads_of(self.pids())]
            if not changed:
                raise JobGoneError(f"job {self.job_id} has no process here")
            if not any(changed):
                break
        return held.original

    def strayed(self, held: Held, cpus: Cpus) -> bool:
        masks = [affinity(thread) for thread in threads_of(self.pids())]
        if not masks:
            raise JobGoneError(f"job {self.job_id} has no process here")
        return any(mask is not None and not mask <= cpus for mask in masks)

    def _bind(self, thread: int, held: Held, cpus: Cpus | None) -> bool:
        mask = affinity(thread)
        if mask is None:
            return False
        shares = map(parse, held.original.values())
        theirs = [s for s in shares if mask == s or any(mask == (s & given or given) for given in held.given)]
        own = frozenset[int]().union(*theirs) or mask  # or it bound itself
        target = own if cpus is None else own & cpus or cpus
        if target == mask:
            return False
        set_affinity(thread, target)
        return True
