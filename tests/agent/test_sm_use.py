"""What runs use of their GPUs' time, by the unmodified NVML binding over the emulated library and Slurm's groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_gpus import CONFIGURATION, library
from tests.emulation.test_nvml import state_file

__all__ = ["library"]

SAMPLED_EVERY_S = 0.2
"""The driver has a new sample within that."""

PROGRAM = """
import json, os, sys
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.sampling.run_usage import RunUsage
from slurm_soda.agent.sampling.sm_use import SmUseCounter
from slurm_soda.wire.records import JobOpened
gpus, runs = Gpus(), {}
counter = SmUseCounter(gpus, JobProcesses(sys.argv[1]), 2.0)
gpus.open(0.0)
for line in sys.stdin:
    now_s, jobs = json.loads(line)
    for job, indices in jobs.items():
        opened = JobOpened(int(job), 0, "n1", 2001, "alice", "gpu", 1.0, tuple(indices), 4)
        runs.setdefault(job, NodeRun(RunKey(int(job), 1), opened, usage=RunUsage(1.0, 1.0)))
    counter.count([runs[job] for job in jobs], now_s)
    sums = {job: [[one.co_runners, one.covered_s, one.busy_s] for one in run.usage.sm_uses] for job, run in runs.items()}
    print(json.dumps(sums), flush=True)
"""


class Node:
    """An emulated node with one process a job: job 7 may have GPUs 0 and 1, job 8 is beside it."""

    def __init__(self, library: Path, path: Path, processes: Mapping[int, int]) -> None:
        self._path, self.processes = path, processes
        (path / "cpuacct/slurm_n1").mkdir(parents=True)
        for job, pid in processes.items():
            group = path / f"freezer/slurm_n1/uid_2001/job_{job}/step_batch"
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text(f"{pid}\n")
        (path / "gpus.conf").write_text(CONFIGURATION)
        environ = {**os.environ, "LD_LIBRARY_PATH": str(library), "SODA_GPU_STATE": str(path)}
        argv = [sys.executable, "-c", PROGRAM, str(path)]
        self.agent = subprocess.Popen(argv, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def configure(self, line: str) -> None:
        """What a driver reads once."""
        (self._path / "gpus.conf").write_text(f"{CONFIGURATION}{line}\n")

    def use(self, job: int, util_pct: int, *gpus: int, server: int = 0) -> None:
        lines = "".join(f"{gpu} 1000 {util_pct} 90 0 0\n" for gpu in gpus)
        state_file(self._path, lines, self.processes[job], server=server)

    def read(self, now_s: float, jobs: Mapping[int, Sequence[int]], *, at_once: bool = False) -> dict[str, Any]:
        """Sums by job after a reading: beside whom, for how long, seconds in use."""
        if not at_once:
            time.sleep(SAMPLED_EVERY_S)
        assert self.agent.stdin is not None
        assert self.agent.stdout is not None
        self.agent.stdin.write(f"{json.dumps([now_s, jobs])}\n")
        self.agent.stdin.flush()
        found: dict[str, Any] = json.loads(self.agent.stdout.readline())
        return found


@pytest.fixture
def node(library: Path, tmp_path: Path) -> Iterator[Node]:
    sleepers = {job: subprocess.Popen(["sleep", "60"]) for job in (7, 8)}
    node = Node(library, tmp_path, {job: sleeper.pid for job, sleeper in sleepers.items()})
    yield node
    for process in (node.agent, *sleepers.values()):
        process.kill()
        process.wait()


def test_what_a_run_uses_is_kept_apart_by_whom_it_has_beside_it(node: Node) -> None:
    node.use(7, 80, 0, 1)
    node.read(10, {7: [0, 1]})
    assert node.read(12, {7: [0, 1]}) == {"7": [[[], 2.0, 1.6]]}
    node.use(7, 40, 0, 1)
    node.use(8, 50, 1)
    both = {7: [0, 1], 8: [1]}
    assert node.read(14, both)["7"] == [[[], 2.0, 1.6], [[8], 0.0, 0.0]], "nobody knows when it came"
    found = node.read(16, both)
    assert found == {"7": [[[], 2.0, 1.6], [[8], 2.0, 0.8]], "8": [[[7], 2.0, 1.0]]}
    node.use(8, 0, 1)
    assert node.read(18, both)["8"] == [[[7], 4.0, 1.0]], "a pause counts"
    assert node.read(26, both)["8"] == [[[7], 4.0, 1.0]], "a gap does not"
    assert node.read(28, {7: [0, 1]})["7"][-1] == [[], 2.0, 1.6]
    assert node.read(30, {7: [0, 1]})["7"][-1] == [[], 4.0, 2.4]


def test_where_the_driver_has_no_new_sample_yet_the_run_was_not_idle(node: Node) -> None:
    node.use(7, 80, 0)
    node.read(10, {7: [0]})
    for now_s in (10.1, 10.2, 10.3):
        node.read(now_s, {7: [0]}, at_once=True)
    assert node.read(12, {7: [0]}) == {"7": [[[], 2.0, 1.6]]}


def test_a_pair_counts_from_when_both_compute(node: Node) -> None:
    both = {7: [0], 8: [0]}
    node.use(7, 80, 0)
    node.use(8, 0, 0)
    for now_s in (10, 12, 14):
        assert node.read(now_s, both) == {"7": [[[8], 0.0, 0.0]], "8": []}
    node.use(8, 30, 0)
    node.read(16, both)
    assert node.read(18, both) == {"7": [[[8], 2.0, 1.6]], "8": [[[7], 2.0, 0.6]]}


@pytest.mark.parametrize(
    ("configured", "server"),
    [("mps_samples=server", 1), ("mig=0", 0), ("capability=3.7", 0)],
    ids=["mps", "mig", "old"],
)
def test_where_no_sample_names_a_process_of_the_run_nothing_is_counted(
    node: Node, configured: str, server: int
) -> None:
    node.configure(configured)
    node.use(7, 80, 0, server=server)
    for now_s in (10, 12, 14):
        assert node.read(now_s, {7: [0]}) == {"7": []}


def test_clients_of_mps_that_the_driver_names_are_counted(node: Node) -> None:
    node.use(7, 80, 0, server=1)
    node.read(10, {7: [0]})
    assert node.read(12, {7: [0]}) == {"7": [[[], 2.0, 1.6]]}


def test_nothing_is_counted_while_a_stranger_is_on_the_gpu(node: Node) -> None:
    """A guest of which the agent has not heard yet: its host is not alone."""
    node.use(7, 80, 0)
    node.read(10, {7: [0]})
    node.read(12, {7: [0]})
    node.use(8, 50, 0)
    for now_s in (14, 16):
        assert node.read(now_s, {7: [0]}) == {"7": [[[], 2.0, 1.6]]}
    node.use(8, 0, 0)
    node.read(18, {7: [0]})
    assert node.read(20, {7: [0]}) == {"7": [[[], 4.0, 3.2]]}
