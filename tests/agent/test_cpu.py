"""CPU seconds and memory: on directory trees as the kernel shows them, and over real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.process_trees import ProcessTreeReading, read_process_trees
from slurm_soda.agent.sampling.run_usage import RunUsage
from slurm_soda.epilog import job_cgroups
from slurm_soda.wire.records import JobClosed, JobOpened

MIB = 1 << 20


def run_of(job_id: int, cpus: int = 4, at_s: float = 0.0) -> NodeRun:
    opened = JobOpened(job_id, 0, "n1", 1000, "alice", "main", at_s, (), cpus)
    return NodeRun(RunKey(job_id, 1), opened, usage=RunUsage(first_s=at_s, last_s=at_s, gpu_last_s=at_s))


class Kernel:
    """A cgroup tree: jobs' groups come and go, the group above keeps counting (v1 as seen on Linux 6.18; v2 alike)."""

    def __init__(self, root: Path, version: str, top: str) -> None:
        self.root, self._v1 = root, version == "cgroup/v1"
        self._top = root / ("cpuacct" if self._v1 else "system.slice") / top
        self._memory_top = root / "memory" / top
        self._cpu_s: dict[Path, float] = {}
        self._top.mkdir(parents=True)
        self._count(self._top, 0.0)

    def job(self, job_id: int) -> Path:
        return (self._top / "uid_1000" if self._v1 else self._top) / f"job_{job_id}"

    def work(self, job_id: int, cpu_s: float, rss_mib: float = 100.0, shared_mib: float = 0.0) -> None:
        """A job (made if need be) uses CPU seconds and now holds memory."""
        job = self.job(job_id)
        job.mkdir(parents=True, exist_ok=True)
        for group in (job, self._top):
            self._count(group, cpu_s)
        if self._v1:
            memory = self._memory_top / "uid_1000" / f"job_{job_id}"
            memory.mkdir(parents=True, exist_ok=True)
            (memory / "memory.stat").write_text(
                f"cache 999999999\nrss 0\ntotal_cache 9\ntotal_rss {int(rss_mib * MIB)}\n"
                f"total_shmem {int(shared_mib * MIB)}\n"
            )
        else:
            (job / "memory.stat").write_text(
                f"anon {int(rss_mib * MIB)}\nfile 999999999\nshmem {int(shared_mib * MIB)}\n"
            )

    def serve(self, daemons: str, cpu_s: float, job_id: int = 0) -> None:
        """Slurm's own processes use CPU seconds in a group that v2 has for them: in a job's, or beside those of jobs."""
        above = [self.job(job_id), self._top] if job_id else [self._top]
        group = above[0] / daemons
        group.mkdir(exist_ok=True, parents=True)
        for one in (group, *above):
            self._count(one, cpu_s)

    def end(self, job_id: int) -> None:
        shutil.rmtree(self.job(job_id))
        del self._cpu_s[self.job(job_id)]

    def _count(self, group: Path, cpu_s: float) -> None:
        total_s = self._cpu_s[group] = self._cpu_s.get(group, 0.0) + cpu_s
        if self._v1:
            (group / "cpuacct.usage").write_text(f"{int(total_s * 1e9)}\n")
        else:
            (group / "cpu.stat").write_text(f"usage_usec {int(total_s * 1e6)}\nuser_usec 1\nsystem_usec 1\n")


TREES = [
    ("cgroup/v1", "slurm_n1"),
    ("cgroup/v1", "slurm"),
    ("cgroup/v2", "slurmstepd.scope"),
    ("cgroup/v2", "n1_slurmstepd.scope"),
]


@pytest.fixture(params=TREES, ids=[f"{version} {top}" for version, top in TREES])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, *request.param)


def used(run: NodeRun) -> RunUsage:
    assert run.usage is not None
    return run.usage


def test_a_job_is_read_from_its_group(kernel: Kernel) -> None:
    reader, run = CpuReader(str(kernel.root)), run_of(7)
    kernel.work(7, 1.5, rss_mib=300.0)
    reader.read([run], 2.0)
    kernel.work(7, 2.0, rss_mib=200.0)
    reader.read([run], 4.0)
    usage = used(run)
    assert (usage.cpu_s, usage.memory_peak_mib, usage.samples, run.seen_s) == (3.5, 300.0, 2, 4.0)
    assert usage.cpu_source in ("cgroup/v1", "cgroup/v2")


def test_what_a_job_used_after_its_last_reading_is_found(kernel: Kernel) -> None:
    reader, ending, other = CpuReader(str(kernel.root)), run_of(7), run_of(8)
    kernel.work(7, 4.0)
    kernel.work(8, 1.0)
    reader.read([ending, other], 10.0)
    kernel.work(7, 1.25)
    kernel.work(8, 2.0)
    kernel.end(7)
    reader.read([ending, other], 11.0)
    reader.read([ending, other], 12.0)
    assert used(ending).cpu_s == pytest.approx(5.25)
    assert used(other).cpu_s == pytest.approx(3.0)


V2 = pytest.mark.parametrize("kernel", TREES[2:], ids=["slurmstepd.scope", "n1_slurmstepd.scope"], indirect=True)


@V2
def test_slurmstepds_work_in_a_jobs_group_is_not_the_jobs(kernel: Kernel) -> None:
    """Neither while it runs, nor that of a job that goes on when another one vanishes."""
    reader, ending, other = CpuReader(str(kernel.root)), run_of(7), run_of(8)
    for job_id in (7, 8):
        kernel.work(job_id, 1.0)
        kernel.serve("step_batch/slurm", 0.5, job_id)
    reader.read([ending, other], 10.0)
    assert (used(ending).cpu_s, used(other).cpu_s) == (1.0, 1.0)
    kernel.work(7, 0.25)
    kernel.work(8, 2.0)
    kernel.serve("step_batch/slurm", 0.5, 8)
    kernel.end(7)
    reader.read([ending, other], 12.0)
    assert used(ending).cpu_s == pytest.approx(1.25)
    assert used(other).cpu_s == pytest.approx(3.0)


@V2
def test_what_slurms_daemons_used_is_no_jobs(kernel: Kernel) -> None:
    """On v2 each slurmstepd begins and ends in ``system``; ``slurmd`` is there where systemd did not start it."""
    reader, run = CpuReader(str(kernel.root)), run_of(7)
    kernel.work(7, 4.0)
    kernel.serve("system", 0.5)
    reader.read([run], 10.0)
    kernel.work(7, 0.25)
    kernel.serve("system", 0.125)
    kernel.serve("slurmd", 0.5)
    kernel.end(7)
    reader.read([run], 11.0)
    assert used(run).cpu_s == pytest.approx(4.25)


def test_a_job_that_no_reading_ever_saw_is_found_too(kernel: Kernel) -> None:
    reader, short, other = CpuReader(str(kernel.root)), run_of(7, at_s=10.1), run_of(8)
    kernel.work(8, 1.0)
    reader.read([other], 10.0)
    kernel.work(7, 0.4)
    kernel.end(7)
    short.closed = JobClosed(7, 0, "n1", 10.5)
    reader.read([short, other], 10.6)
    assert used(short).cpu_s == pytest.approx(0.4)


def test_runs_that_vanish_together_share_by_their_cpus(kernel: Kernel) -> None:
    reader, small, large = CpuReader(str(kernel.root)), run_of(7, cpus=1), run_of(8, cpus=3)
    for job_id in (7, 8):
        kernel.work(job_id, 1.0)
    reader.read([small, large], 10.0)
    kernel.work(7, 0.3)
    kernel.work(8, 0.5)
    kernel.end(7)
    kernel.end(8)
    reader.read([small, large], 11.0)
    assert (used(small).cpu_s, used(large).cpu_s) == (pytest.approx(1.2), pytest.approx(1.6))


def test_nobody_gets_more_than_his_cpus_can_have_used(kernel: Kernel) -> None:
    reader, run = CpuReader(str(kernel.root)), run_of(7, cpus=2)
    kernel.work(7, 1.0)
    reader.read([run], 10.0)
    kernel.work(99, 50.0)  # a job that nobody told us about
    kernel.end(7)
    reader.read([run], 11.0)
    assert used(run).cpu_s == pytest.approx(3.0)


def test_a_group_made_anew_for_a_later_step_adds_to_the_one_before(kernel: Kernel) -> None:
    reader, run = CpuReader(str(kernel.root)), run_of(7)
    kernel.work(7, 3.0)
    reader.read([run], 10.0)
    kernel.job(7).rename(
        kernel.job(7).with_name("gone")
    )  # keeps the inode taken, as the kernel's ids are never reused soon
    kernel._cpu_s.pop(kernel.job(7))
    reader.read([run], 11.0)
    kernel.work(7, 1.0)
    reader.read([run], 12.0)
    assert used(run).cpu_s == pytest.approx(4.0)


def test_without_any_group_nothing_is_read_and_nothing_fails(tmp_path: Path) -> None:
    reader, run = CpuReader(str(tmp_path / "none")), run_of(4_000_000_000)
    reader.read([run], 1.0)
    reader.read([], 2.0)
    assert (used(run).samples, used(run).cpu_source) == (0, "")


@pytest.mark.parametrize("content", ["", "x\n", "-5\n", "usage_usec\n", "usage_usec x\n"])
def test_files_that_say_nonsense_count_as_gone(tmp_path: Path, content: str) -> None:
    kernel = Kernel(tmp_path, "cgroup/v1", "slurm_n1")
    kernel.work(7, 1.0)
    (kernel.job(7) / "cpuacct.usage").write_text(content)
    group = job_cgroups.find_job_cgroup(str(tmp_path), "n1", 1000, 7)
    assert group is not None
    assert group.cpu_s() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmstepd is root's: only root's processes count")
@pytest.mark.parametrize("how", ["title", "environment"])
def test_processes_of_a_step_are_counted_with_those_that_ended(tmp_path: Path, how: str) -> None:
    """A shell stands in for slurmstepd: named alike, with a child that has burnt CPU and ended, and one that lives."""
    stepd = tmp_path / "slurmstepd"
    shutil.copy("/bin/sh", stepd)
    job_id = 3_900_000_000 + os.getpid() % 1000
    burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    script = f"/bin/sh -c '{burn}'; echo ready; SLURM_JOB_ID={job_id} /bin/sleep 60; true"
    title = f"slurmstepd: [{job_id}.batch]" if how == "title" else str(stepd)
    environ = {"PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [title, "-c", script], executable=stepd, stdout=subprocess.PIPE, env=environ, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline_s = time.monotonic() + 10
        reading = ProcessTreeReading()
        while not reading.memory_mib and time.monotonic() < deadline_s:  # it may not have started its second child yet
            time.sleep(0.02)
            reading = read_process_trees([job_id]).get(job_id, reading)
        assert len(reading.cpu_s) == 1
        assert sum(reading.cpu_s.values()) > 0.02
        assert reading.memory_mib > 0
        run = run_of(job_id)
        CpuReader(str(tmp_path / "no-cgroups")).read([run], 5.0)
        assert (used(run).cpu_source, used(run).samples, run.seen_s) == ("process tree", 1, 5.0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmstepd is root's: only root's processes count")
def test_a_job_id_of_thousands_of_digits_in_a_task_s_environment_is_no_job(tmp_path: Path) -> None:
    """A user's process chooses its environment."""
    stepd = tmp_path / "slurmstepd"
    shutil.copy("/bin/sh", stepd)
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "9" * 5000}
    process = subprocess.Popen(
        [str(stepd), "-c", "/bin/sleep 60 & echo ready; wait"],
        stdout=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert not read_process_trees([3_900_000_000]).get(3_900_000_000, ProcessTreeReading()).memory_mib
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_shared_memory_counts(kernel: Kernel) -> None:
    """/dev/shm, through which data loaders hand over batches: the kernel ends the job by it too, and cannot drop it."""
    reader, run = CpuReader(str(kernel.root)), run_of(7)
    kernel.work(7, 1.5, rss_mib=300.0, shared_mib=500.0)
    reader.read([run], 2.0)
    assert used(run).memory_peak_mib == 800.0
