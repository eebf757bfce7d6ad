"""Which processes and threads a job has on this node: from Slurm's cgroups, without them from the process trees."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from slurm_soda.agent.cpusets.thread_affinity import MAX_THREADS, list_threads
from slurm_soda.agent.sampling.process_trees import read_pids
from slurm_soda.epilog import job_cgroups
from slurm_soda.wire.records import JobOpened

_V1_TREES = ("freezer", "cpuset", "memory", "cpuacct", "devices")
"""A site's Slurm may use any of them; all of a job's processes are in each that it uses."""


class JobProcesses:
    """Finds the processes of jobs on one node. A job whose last process has ended has none; that is no error."""

    def __init__(self, cgroup_root: str = job_cgroups.CGROUP_ROOT) -> None:
        self._root = cgroup_root

    def processes(self, jobs: Sequence[JobOpened]) -> dict[int, frozenset[int]]:
        """Process ids by job."""
        return self._read(jobs, "cgroup.procs", "cgroup.procs", threads=False)

    def threads(self, jobs: Sequence[JobOpened]) -> dict[int, frozenset[int]]:
        """Thread ids by job."""
        return self._read(jobs, "tasks", "cgroup.threads", threads=True)

    def has_cgroup_v2(self, node: str) -> bool:
        """Slurm makes its groups in the unified hierarchy on this node, also for jobs that have none yet."""
        return job_cgroups.find_node_cgroup(self._root, node)[0] == "cgroup/v2"

    def cgroup_v2(self, job: JobOpened) -> str:
        """The job's group of the unified hierarchy, relative to its root; empty where Slurm made none."""
        source, name = job_cgroups.find_node_cgroup(self._root, job.node)
        path = f"{name}/job_{job.job_id}"
        return path if source == "cgroup/v2" and Path(self._root, path).is_dir() else ""

    def _read(self, jobs: Sequence[JobOpened], v1: str, v2: str, *, threads: bool) -> dict[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        without: list[int] = []
        for job in jobs:
            source, name = job_cgroups.find_node_cgroup(self._root, job.node)
            if source == "cgroup/v2":
                found[job.job_id] = frozenset(_ids(f"{self._root}/{name}/job_{job.job_id}", v2))
            elif source == "cgroup/v1":
                found[job.job_id] = frozenset(_ids(self._v1_directory(f"{name}/uid_{job.uid}/job_{job.job_id}"), v1))
            else:
                without.append(job.job_id)
        for job_id, pids in read_pids(without).items():
            found[job_id] = frozenset(list_threads(pids)) if threads else frozenset(pids)
        return {job.job_id: found.get(job.job_id, frozenset()) for job in jobs}

    def _v1_directory(self, path: str) -> str:
        places = (f"{self._root}/{tree}/{path}" for tree in _V1_TREES)
        return next((place for place in places if os.path.isdir(place)), "")  # noqa: PTH112 - several a turn


def _ids(directory: str, file: str) -> Iterator[int]:
    """The numbers in a file of a group and of all groups below it, up to :data:`MAX_THREADS` and those of one group more."""
    waiting, count = [directory] if directory else [], 0
    while waiting and count < MAX_THREADS:
        place = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:  # the group may end meanwhile
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        with suppress(OSError), open(f"{place}/{file}", "rb") as lines:  # noqa: PTH123 - several a turn
            numbers = [int(line) for line in islice(lines, MAX_THREADS) if line.strip().isdigit()]
            count += len(numbers)
            yield from numbers
