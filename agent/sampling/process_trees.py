"""A job's CPU seconds and memory from its process tree, where Slurm makes no cgroups (proctrack/linuxproc).

Every step of a job is a tree under a slurmstepd of root's, whose title names job and step. slurmstepd reaps what its
tasks leave behind, so the time of ended processes is found in their ancestors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import psutil

_TITLE = re.compile(r"slurmstepd: \[(\d{1,10})\.")
_JOB_ID_DIGITS = 10
"""A user's process may give itself any SLURM_JOB_ID; one of thousands of digits is no number to Python."""
_MIB = 1 << 20


@dataclass(slots=True)
class ProcessTreeReading:
    """One job's processes now."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds so far by step tree, named by the root's pid and start."""
    memory_mib: float = 0.0


def read_process_trees(jobs: Iterable[int]) -> dict[int, ProcessTreeReading]:
    """Readings of the jobs that have processes here, in one pass over the process table."""
    found: dict[int, ProcessTreeReading] = {}
    for job_id, root, children in _step_trees(set(jobs)):
        _add_tree(found.setdefault(job_id, ProcessTreeReading()), root, children)
    return found


def read_pids(jobs: Iterable[int]) -> dict[int, list[int]]:
    """Process ids of the jobs that have processes here, without their slurmstepds."""
    found: dict[int, list[int]] = {}
    for job_id, root, children in _step_trees(set(jobs)):
        found.setdefault(job_id, []).extend(process.pid for process in _descendants(root.pid, children))
    return found


_Children = dict[int, list[psutil.Process]]


def _step_trees(wanted: set[int]) -> Iterator[tuple[int, psutil.Process, _Children]]:
    """The wanted jobs' slurmstepds, with all processes by their parent, in one pass over the process table."""
    if not wanted:
        return
    table = {p.pid: p for p in psutil.process_iter(["ppid", "name"])}
    children: _Children = {}
    for process in table.values():
        children.setdefault(process.info["ppid"], []).append(process)
    for process in table.values():
        job_id = _job_of(process, children) if process.info["name"] == "slurmstepd" else None
        if job_id is not None and job_id in wanted:
            yield job_id, process, children


def _job_of(stepd: psutil.Process, children: dict[int, list[psutil.Process]]) -> int | None:
    """The job that a slurmstepd serves: by its title, else by the environment of its tasks."""
    try:
        if stepd.uids().real != 0:
            return None
        match = _TITLE.match(" ".join(stepd.cmdline()))
        if match:
            return int(match[1])
        for task in children.get(stepd.pid, []):
            text = task.environ().get("SLURM_JOB_ID", "")
            if text.isascii() and text.isdigit() and len(text) <= _JOB_ID_DIGITS:
                return int(text)
    except psutil.Error:
        pass
    return None


def _add_tree(reading: ProcessTreeReading, root: psutil.Process, children: dict[int, list[psutil.Process]]) -> None:
    try:
        times = root.cpu_times()
        key = f"{root.pid}.{root.create_time():.2f}"
    except psutil.Error:
        return
    cpu_s = times.children_user + times.children_system
    for process in _descendants(root.pid, children):
        try:
            with process.oneshot():
                times = process.cpu_times()
                cpu_s += times.user + times.system + times.children_user + times.children_system
                reading.memory_mib += process.memory_info().rss / _MIB
        except psutil.Error:
            continue
    reading.cpu_s[key] = cpu_s


def _descendants(pid: int, children: dict[int, list[psutil.Process]]) -> Iterator[psutil.Process]:
    waiting = list(children.get(pid, []))
    while waiting:
        process = waiting.pop()
        yield process
        waiting.extend(children.get(process.pid, []))
