"""A job's CPU seconds and memory from its process tree, where Slurm makes no cgroups (proctrack/linuxproc).

Every step of a job is a tree under a slurmstepd of root's, whose title names job and step. slurmstepd reaps what its
tasks leave behind, so the time of ended processes is found in their ancestors.

The process table is read by hand, one small file a process: psutil takes five times as long, and users can start thousands.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import psutil

_TITLE = re.compile(r"slurmstepd: \[(\d{1,10})\.")
_JOB_ID_DIGITS = 10
"""A user's process may give itself any SLURM_JOB_ID; one of thousands of digits is no number to Python."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGES_PER_MIB = (1 << 20) / os.sysconf("SC_PAGE_SIZE")

_TASKS_ASKED = 16
"""A step's first processes tell whose it is, or nobody does."""

READ_WITHIN_S = 1.0
"""A reading of the process table ends after so long, wherever it is: the agent has other work, and a watchdog."""


@dataclass(slots=True)
class ProcessTreeReading:
    """One job's processes now."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds so far by step tree, named by the root's pid and start."""
    memory_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class _Process:
    """One line of /proc/PID/stat; see proc(5)."""

    pid: int
    parent: int
    name: str
    started_ticks: int
    """Since the node's start: not by a clock that may be set."""
    cpu_s: float
    waited_cpu_s: float
    """Of children that ended and were waited for."""
    memory_mib: float


_Children = dict[int, list[_Process]]


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


def _step_trees(wanted: set[int]) -> Iterator[tuple[int, _Process, _Children]]:
    """The wanted jobs' slurmstepds, with all processes by their parent, in one pass over the process table."""
    if not wanted:
        return
    until_s = time.monotonic() + READ_WITHIN_S
    children: _Children = {}
    steps: list[_Process] = []
    for process in _processes(until_s):
        children.setdefault(process.parent, []).append(process)
        if process.name == "slurmstepd":
            steps.append(process)
    for process in steps:
        if time.monotonic() >= until_s:  # anybody may call his processes slurmstepd, and a look at each takes longer
            return
        job_id = _job_of(process.pid, children)
        if job_id is not None and job_id in wanted:
            yield job_id, process, children


def _processes(until_s: float) -> Iterator[_Process]:
    """The process table, lowest numbers first, as far as it can be read in time."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if name.isdigit() and (process := _read_process(int(name))) is not None:
            yield process
            if time.monotonic() >= until_s:
                return


def _read_process(pid: int) -> _Process | None:
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            line = os.read(handle, 4096)
        finally:
            os.close(handle)
    except OSError:  # it has ended
        return None
    # The name may hold anything, spaces and parentheses too.
    before, _, after = line.rpartition(b")")
    fields = after.split()
    times = [int(field) / _TICKS_PER_S for field in fields[11:15]]
    return _Process(
        pid=pid,
        parent=int(fields[1]),
        name=before.partition(b"(")[2].decode("ascii", "replace"),
        started_ticks=int(fields[19]),
        cpu_s=times[0] + times[1],
        waited_cpu_s=times[2] + times[3],
        memory_mib=int(fields[21]) / _PAGES_PER_MIB,
    )


def _job_of(pid: int, children: _Children) -> int | None:
    """The job that a slurmstepd serves: by its title, else by the environment of its tasks."""
    try:
        stepd = psutil.Process(pid)
        if stepd.uids().real != 0:
            return None
        match = _TITLE.match(" ".join(stepd.cmdline()))
        if match:
            return int(match[1])
        for task in children.get(pid, [])[:_TASKS_ASKED]:
            text = psutil.Process(task.pid).environ().get("SLURM_JOB_ID", "")
            if text.isascii() and text.isdigit() and len(text) <= _JOB_ID_DIGITS:
                return int(text)
    except psutil.Error:
        pass
    return None


def _add_tree(reading: ProcessTreeReading, root: _Process, children: _Children) -> None:
    cpu_s = root.waited_cpu_s
    for process in _descendants(root.pid, children):
        cpu_s += process.cpu_s + process.waited_cpu_s
        reading.memory_mib += process.memory_mib
    reading.cpu_s[f"{root.pid}.{root.started_ticks}"] = cpu_s


def _descendants(pid: int, children: _Children) -> Iterator[_Process]:
    waiting = list(children.get(pid, []))
    while waiting:
        process = waiting.pop()
        yield process
        waiting.extend(children.get(process.pid, []))
