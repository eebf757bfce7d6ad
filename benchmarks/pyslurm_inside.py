"""Runs on a cluster's controller, by slurm-soda's own Python: the list of jobs by squeue and by pyslurm.

``compare PYTHON`` compares both readings whole; ``measure PYTHON TIMES`` times them; ``crash PYTHON`` ends the child process
in the middle of everything; ``tasks PYTHON ARRAY`` tells an array's waiting tasks. ``PYTHON`` is the interpreter that has
pyslurm. All print JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from slurm_soda.slurm_ext.bindings.pyslurm_client import PyslurmClient
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import pyslurm_child_process
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner

LIMIT_S = 60.0
MOST_TRIES = 40


def make_client(python: str) -> PyslurmClient:
    return PyslurmClient(LocalCommandRunner(), child=pyslurm_child_process(python, LIMIT_S))


def as_text(jobs: list[SlurmJob]) -> dict[int, str]:
    """Whole records; as text, because a time that is not a number is unlike itself."""
    return {job.job_id: repr(job) for job in jobs}


def compare(python: str) -> dict[str, Any]:
    """Both readings between which nothing changed, by squeue's word before and after."""
    commands, client = CliSlurmClient(LocalCommandRunner()), make_client(python)
    try:
        for _ in range(MOST_TRIES):
            before, found, after = as_text(commands.jobs()), as_text(client.jobs()), as_text(commands.jobs())
            if before == after:
                break
            time.sleep(0.2)
        else:
            return {"error": "Slurm does not come to rest"}
        return {
            "jobs": len(found),
            "by_squeue": client.pyslurm_jobs.vague_now,
            "problem": client.pyslurm_jobs.problem,
            "versions": client.pyslurm_jobs.versions,
            "differences": {
                job_id: [before.get(job_id, ""), found.get(job_id, "")]
                for job_id in sorted(before.keys() | found.keys())
                if before.get(job_id) != found.get(job_id)
            },
            "same_addresses": commands.reader.addresses == client.reader.addresses,
        }
    finally:
        client.pyslurm_jobs.close()


def crash(python: str) -> dict[str, Any]:
    """What a reading gives after its child got a SIGSEGV, and the next one after the pause."""
    client = make_client(python)
    source = client.pyslurm_jobs
    first = len(client.jobs())
    process = client.child._process
    assert process is not None
    os.kill(process.pid, signal.SIGSEGV)
    during, problem = len(client.jobs()), source.problem
    source._pause_until_s = 0.0
    later, left = len(client.jobs()), source.problem
    source.close()
    return {"jobs": [first, during, later], "problem": problem, "left": left}


def tasks(python: str, array: int) -> dict[str, Any]:
    """By pyslurm."""
    client = make_client(python)
    found = {"tasks": next((job.array_task for job in client.jobs() if job.job_id == array), None)}
    client.pyslurm_jobs.close()
    return found


def measure(python: str, times: int) -> dict[str, Any]:
    """Medians of so many readings: elapsed, own CPU time, and that of commands or the child."""
    commands, client = CliSlurmClient(LocalCommandRunner()), make_client(python)
    first_s = time.perf_counter()
    client.jobs()
    first_s = time.perf_counter() - first_s
    process = client.child._process
    assert process is not None, client.pyslurm_jobs.problem
    commands.jobs()
    pid = process.pid
    found = {
        "commands": _timed(commands.jobs, times, _commands_cpu_s),
        "pyslurm": _timed(client.jobs, times, lambda: _child_cpu_s(pid) + _commands_cpu_s()),
    }
    found["child_mib"] = _peak_mib(pid)
    found |= {
        "jobs": len(client.jobs()),
        "first_pyslurm_s": first_s,
        "by_squeue": client.pyslurm_jobs.vague_now,
        "problem": client.pyslurm_jobs.problem,
        "versions": client.pyslurm_jobs.versions,
    }
    client.pyslurm_jobs.close()
    return found


def _timed(read: Callable[[], object], times: int, other_cpu_s: Callable[[], float]) -> dict[str, Any]:
    wall, own, other = [], [], []
    for _ in range(times):
        began_s, cpu_s, others_s = time.perf_counter(), time.process_time(), other_cpu_s()
        read()
        wall.append(time.perf_counter() - began_s)
        own.append(time.process_time() - cpu_s)
        other.append(other_cpu_s() - others_s)
        time.sleep(0.5)
    return {
        "wall_s": median(wall),
        "own_cpu_s": median(own),
        "other_cpu_s": median(other),
        "walls_s": [round(seconds, 4) for seconds in wall],
    }


def _commands_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _child_cpu_s(pid: int) -> float:
    """In nanoseconds of the scheduler where it tells them, because a clock tick is long."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    what, python, *more = sys.argv[1:]
    found = {
        "compare": lambda: compare(python),
        "crash": lambda: crash(python),
        "tasks": lambda: tasks(python, int(more[0])),
        "measure": lambda: measure(python, int(more[0])),
    }[what]()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
