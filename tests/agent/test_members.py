"""Which processes and threads a job has: from Slurm's groups of both kinds, and without them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.wire.records import JobOpened


def job(job_id: int) -> JobOpened:
    return JobOpened(job_id, 0, "n1", 2001, "alice", "main", 10.0, (), 4)


def write(path: Path, name: str, ids: list[int]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("".join(f"{i}\n" for i in ids))


@pytest.mark.parametrize("tree", ["freezer", "memory"])
def test_groups_of_v1(tmp_path: Path, tree: str) -> None:
    (tmp_path / "cpuacct/slurm_n1").mkdir(parents=True)
    top = tmp_path / tree / "slurm_n1/uid_2001/job_7"
    for group, pids, threads in ((top, [], []), (top / "step_0", [4], [4, 5]), (top / "step_0/task_1", [6], [6])):
        write(group, "cgroup.procs", pids)
        write(group, "tasks", threads)
    members = JobProcesses(str(tmp_path))
    assert members.processes([job(7), job(8)]) == {7: {4, 6}, 8: set()}
    assert members.threads([job(7)]) == {7: {4, 5, 6}}
    assert members.cgroup_v2(job(7)) == ""
    assert not members.has_cgroup_v2("n1")


def test_groups_of_v2(tmp_path: Path) -> None:
    top = tmp_path / "system.slice/slurmstepd.scope/job_7"
    write(top / "step_0/user/task_0", "cgroup.procs", [4])
    write(top / "step_0/user/task_0", "cgroup.threads", [4, 5])
    write(top / "step_0/slurm", "cgroup.procs", [3])
    write(top / "step_0/slurm", "cgroup.threads", [3])
    members = JobProcesses(str(tmp_path))
    assert members.processes([job(7)]) == {7: {3, 4}}
    assert members.threads([job(7), job(8)]) == {7: {3, 4, 5}, 8: set()}
    assert members.cgroup_v2(job(7)) == "system.slice/slurmstepd.scope/job_7"
    assert members.cgroup_v2(job(8)) == ""
    assert members.has_cgroup_v2("n1")


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmstepd is root's: only root's processes count")
def test_without_groups_the_trees_below_slurmstepd(tmp_path: Path) -> None:
    """A shell stands in for slurmstepd: named alike, with a child of its own."""
    job_id = 1_800_000_000 + os.getpid() % 1000
    stepd = tmp_path / "slurmstepd"
    shutil.copy("/bin/sh", stepd)
    script = "/bin/sleep 60 & echo $!; wait"
    process = subprocess.Popen(
        [f"slurmstepd: [{job_id}.batch]", "-c", script],
        executable=stepd,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        members, deadline_s = JobProcesses(str(tmp_path / "none")), time.monotonic() + 10
        while not members.processes([job(job_id)])[job_id] and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert members.processes([job(job_id)]) == {job_id: {child}}
        assert members.threads([job(job_id)]) == {job_id: {child}}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
