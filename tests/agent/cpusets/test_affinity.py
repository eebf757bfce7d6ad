"""Cores of real processes: by the affinity of every thread, and by the kernel's own groups where they may be made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets.core_limits import MOST_CORRECTIONS, CoreRange, JobCoreLimits
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.wire.records import JobOpened

JOB = 7
ONLINE = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(ONLINE) < 2, reason="needs two real cores to take one away")

SLEEPER = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
STUBBORN = """
import os, time
everything = os.sched_getaffinity(0)
print("ready", flush=True)
while True:
    os.sched_setaffinity(0, everything)
    time.sleep(0.002)
"""


class Program:
    """A running program with threads."""

    def __init__(self, text: str) -> None:
        argv = [sys.executable, "-c", textwrap.dedent(text)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def affinity(self) -> set[frozenset[int]]:
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def sleeper() -> Iterator[Program]:
    program = Program(SLEEPER)
    yield program
    program.end()


def sets_over(tmp_path: Path, program: Program, cpus: int = len(ONLINE), root: str = "/nonexistent") -> JobCoreLimits:
    sets = JobCoreLimits(root, tmp_path / "cores.json", lambda opened: [program.process.pid], lambda gpus: frozenset())
    sets.observe([NodeRun(RunKey(JOB, 1), JobOpened(JOB, 0, "n1", 1000, "alice", "gpu", 1.0, (), cpus))])
    return sets


@two_cores
def test_every_thread_is_bound_and_set_free(tmp_path: Path, sleeper: Program) -> None:
    sets = sets_over(tmp_path, sleeper)
    assert sets.core_range(JOB) == CoreRange(len(ONLINE), len(ONLINE))
    sets.limit(JOB, 1, "tuning")
    assert sleeper.affinity() == {frozenset(ONLINE[:1])}
    assert sets.reapply_limits() == []
    sets.restore(JOB, "tuning")
    assert sleeper.affinity() == {frozenset(ONLINE)}


@two_cores
def test_a_killed_agents_binding_is_undone_when_the_job_is_seen(tmp_path: Path, sleeper: Program) -> None:
    sets_over(tmp_path, sleeper).limit(JOB, 1, "tuning")
    heir = sets_over(tmp_path, sleeper)
    assert heir.recover() == []
    assert heir.reapply_limits() == []
    assert sleeper.affinity() == {frozenset(ONLINE)}


@two_cores
def test_a_job_that_overrides_its_affinity_is_left_alone_in_the_end(tmp_path: Path) -> None:
    """Each time it is put back; then one fault says so, and nobody tries again."""
    program, faults = Program(STUBBORN), list[str]()
    try:
        sets = sets_over(tmp_path, program)
        with contextlib.suppress(CoresError):  # it may be as quick as that
            sets.limit(JOB, 1, "tuning")
            while not faults:
                while program.affinity() == {frozenset(ONLINE[:1])}:
                    time.sleep(0.001)
                faults += sets.reapply_limits()
            left_alone = f"job {JOB}: put itself onto other cores {MOST_CORRECTIONS} times in a row; it is left alone"
            assert faults == [left_alone]
            with pytest.raises(CoresError, match="again and again"):
                sets.limit(JOB, 1, "tuning")
        assert not sets.reapply_limits()
    finally:
        program.end()


@two_cores
def test_a_job_that_slurm_binds_to_nothing_is_refused(tmp_path: Path, sleeper: Program) -> None:
    sets = sets_over(tmp_path, sleeper, cpus=1)
    with pytest.raises(CoresError, match=r"ConstrainCores=yes in cgroup\.conf, or TaskPlugin=task/affinity"):
        sets.limit(JOB, 1, "tuning")
    assert sleeper.affinity() == {frozenset(ONLINE)}


V1 = Path("/sys/fs/cgroup/cpuset")
V2 = Path("/sys/fs/cgroup")


@pytest.fixture
def real_v1(tmp_path: Path) -> Iterator[Path]:
    """A job's groups in the kernel's own cpuset tree."""
    top = V1 / f"slurm_test{os.getpid()}"
    groups = [top, top / "uid_1000", top / f"uid_1000/job_{JOB}", top / f"uid_1000/job_{JOB}/step_batch"]
    groups.append(groups[-1] / "task_0")
    try:
        top.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v1 can be made here: {error}")
    cpus, mems = ((V1 / name).read_text().strip() for name in ("cpuset.cpus", "cpuset.mems"))
    for group in groups:
        group.mkdir(exist_ok=True)
        (group / "cpuset.cpus").write_text(cpus)
        (group / "cpuset.mems").write_text(mems)
    (tmp_path / "root/cpuacct" / top.name).mkdir(parents=True)
    (tmp_path / "root/cpuset").symlink_to(V1)
    yield groups[-1]
    for group in reversed(groups):
        group.rmdir()


@two_cores
def test_the_kernels_own_groups_of_v1(tmp_path: Path, real_v1: Path) -> None:
    program = Program(SLEEPER)
    try:
        (real_v1 / "cgroup.procs").write_text(str(program.process.pid))
        sets = sets_over(tmp_path, program, root=str(tmp_path / "root"))
        opened = JobOpened(JOB, 0, real_v1.parts[5].removeprefix("slurm_"), 1000, "alice", "gpu", 1.0, (), len(ONLINE))
        sets.observe([NodeRun(RunKey(JOB, 1), opened)])
        sets.limit(JOB, 1, "tuning")
        assert (real_v1 / "cpuset.cpus").read_text().strip() == str(ONLINE[0])
        assert program.affinity() == {frozenset(ONLINE[:1])}
        sets.restore(JOB, "tuning")
        assert program.affinity() == {frozenset(ONLINE)}
    finally:
        program.end()


@two_cores
def test_the_kernels_own_groups_of_v2(tmp_path: Path) -> None:
    scope = V2 / "system.slice" / f"test{os.getpid()}_slurmstepd.scope"
    controllers = V2 / "cgroup.controllers"
    if not controllers.exists() or "cpuset" not in controllers.read_text().split():
        pytest.skip("this host has no cpuset controller in cgroup v2")
    made = [scope, scope / f"job_{JOB}", scope / f"job_{JOB}" / "step_batch"]
    try:
        for group in made:
            group.mkdir(parents=True)
            (group.parent / "cgroup.subtree_control").write_text("+cpuset")
    except OSError as error:
        pytest.skip(f"no group of cgroup v2 can be made here: {error}")
    program = Program(SLEEPER)
    try:
        (made[1] / "cpuset.cpus").write_text(f"{ONLINE[0]}-{ONLINE[1]}")
        (made[-1] / "cgroup.procs").write_text(str(program.process.pid))
        sets = sets_over(tmp_path, program, root=str(V2))
        opened = JobOpened(JOB, 0, f"test{os.getpid()}", 1000, "alice", "gpu", 1.0, (), 2)
        sets.observe([NodeRun(RunKey(JOB, 1), opened)])
        sets.limit(JOB, 1, "tuning")
        assert program.affinity() == {frozenset(ONLINE[:1])}
        sets.restore(JOB, "tuning")
        assert program.affinity() == {frozenset(ONLINE[:2])}
    finally:
        program.end()
        for group in reversed(made):
            group.rmdir()


def test_a_job_that_is_not_here_is_said_to_be_gone(tmp_path: Path) -> None:
    """A job without a process, one of which only sums are known, and one that nobody knows."""
    sets = JobCoreLimits("/nonexistent", tmp_path / "cores.json", lambda opened: [], lambda gpus: frozenset())
    opened = JobOpened(JOB, 0, "n1", 1000, "alice", "gpu", 1.0, (), 1)
    sets.observe([NodeRun(RunKey(JOB, 1), opened), NodeRun(RunKey(JOB + 1, 1))])
    for job_id, why in ((JOB, "has no process here"), (JOB + 1, "does not run here"), (JOB + 2, "does not run here")):
        with pytest.raises(JobGoneError, match=f"job {job_id} {why}"):
            sets.core_range(job_id)
