"""The groups of a node's real jobs, with the CPUs that Slurm gave them by its own books: for nodes that claim more CPUs
than their machine has, where the real groups can only hold the real CPUs.

Which groups there are, and which processes are in them, is read from the real tree. What they hold is first what slurmd
would have written (``scontrol show job -d`` tells the job's CPU ids, ``show step`` how many a step has), and then what
is written here. A step that starts makes slurmd write the job's CPUs again; so does this (measured with Slurm 24.11).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from pathlib import Path as File

from kernel import Cpus, Group, Kernel, parse
from mount import Path, Refusal

REFRESH_S = 0.1
_STEP = re.compile(r"step_\d+")


class Slurm(Kernel):
    """Mirrors the groups below ``real``, of node ``node``."""

    def __init__(self, real: str, node: str, cpus: Cpus) -> None:
        super().__init__(1, cpus)
        self._real, self._node = real, node
        self._seen_s = 0.0
        self._jobs: dict[str, Cpus] = {}

    def is_dir(self, path: Path) -> bool:
        self._refresh()
        return super().is_dir(path)

    def procs(self, path: Path) -> list[int]:
        try:
            return [int(word) for word in File(self._real, *path, "cgroup.procs").read_text("ascii").split()]
        except OSError:
            raise Refusal(errno.ENODEV) from None

    def mkdir(self, path: Path) -> None:
        raise Refusal(errno.EPERM)

    def rmdir(self, path: Path) -> None:
        raise Refusal(errno.EPERM)

    def _refresh(self) -> None:
        now_s = time.monotonic()
        if now_s < self._seen_s + REFRESH_S:
            return
        self._seen_s = now_s
        found = [tuple(p.removeprefix(self._real).split("/")[1:]) for p, _, _ in os.walk(self._real) if "slurm" in p]
        for gone in set(self.groups) - set(found) - {()}:
            del self.groups[gone]
        for path in sorted(set(found) - set(self.groups), key=len):
            self.groups[path] = Group(self._first(path))
        for job in set(self._jobs) - {p[2] for p in found if len(p) > 2}:
            del self._jobs[job]

    def _first(self, path: Path) -> Cpus:
        """What slurmd writes to a new group."""
        if len(path) < 3:
            return self.groups[()].cpus
        job = path[2]
        if job not in self._jobs:
            self._jobs[job] = self._cpu_ids(job.removeprefix("job_"))
        cpus = self._jobs[job]
        if len(path) == 4:
            self.groups[path[:3]].cpus = cpus
            if _STEP.fullmatch(path[3]):
                return frozenset(sorted(cpus)[: self._step_cpus(f"{job[4:]}.{path[3][5:]}", len(cpus))])
        return cpus if len(path) < 5 else self.groups[path[:-1]].cpus

    def _cpu_ids(self, job: str) -> Cpus:
        for nodes, cpus in re.findall(r"Nodes=(\S+) CPU_IDs=(\S+)", _scontrol("show", "job", "-d", job)):
            if self._node in _scontrol("show", "hostnames", nodes).split():
                return parse(cpus)
        return self.groups[()].cpus

    def _step_cpus(self, step: str, most: int) -> int:
        found = re.search(r"Nodes=(\d+) CPUs=(\d+)", _scontrol("show", "step", step))
        return max(min(int(found[2]) // int(found[1]), most), 1) if found and int(found[2]) else most


def _scontrol(*words: str) -> str:
    try:
        return subprocess.run(
            ["/usr/bin/scontrol", *words], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
