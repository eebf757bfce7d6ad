"""A job with thousands of processes: each pass of the agent over them ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets import thread_affinity
from slurm_soda.agent.network import net_cls
from slurm_soda.agent.sampling import job_processes, process_trees
from slurm_soda.agent.sampling.process_trees import ProcessTreeReading

CROWD = 300
_FORK = f"""
import os, sys, time
for _ in range({CROWD}):
    if not os.fork():
        time.sleep(60)
        os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def crowd() -> Iterator[int]:
    """A process with many children."""
    parent = subprocess.Popen([sys.executable, "-c", _FORK], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    parent.stdout.readline()
    yield parent.pid
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()


def test_a_reading_of_the_process_table_is_cheap(crowd: int) -> None:
    began_s = time.process_time()
    table = list(process_trees._processes(float("inf")))
    each_s = (time.process_time() - began_s) / len(table)
    assert sum(process.parent == crowd for process in table) == CROWD
    assert each_s < 100e-6  # psutil: 130 µs for parent and name alone
    children: dict[int, list[process_trees._Process]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    root = next(process for process in table if process.pid == crowd)
    reading = ProcessTreeReading()
    process_trees._add_tree(reading, root, children)
    assert reading.memory_mib > 0
    assert list(reading.cpu_s) == [f"{crowd}.{root.started_ticks}"]


def test_a_reading_of_the_process_table_ends_in_time(crowd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(process_trees._processes(time.monotonic()))) == 1
    monkeypatch.setattr(process_trees, "READ_WITHIN_S", 0.0)
    monkeypatch.setattr(process_trees, "_job_of", lambda *_: pytest.fail("asked after its time"))
    assert process_trees.read_pids([7]) == {}


@pytest.mark.parametrize("name", ["a) S 1 (b", "slurmstepd) 0 0", "(((", " "])
def test_a_name_forges_nothing(name: str) -> None:
    rename = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", rename, name], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            process = process_trees._read_process(child.pid)
            assert process is not None
            assert (process.parent, process.name) == (os.getpid(), name)
        finally:
            child.kill()


def test_a_process_that_has_ended_is_passed_over() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert process_trees._read_process(child.pid) is None


def test_so_many_threads_and_processes_are_looked_after(
    crowd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (thread_affinity, job_processes):
        monkeypatch.setattr(module, "MAX_THREADS", 10)
    assert len(list(thread_affinity.list_threads([crowd] * 50))) == 10
    for group in ("", "step_0", "step_1"):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in range(1, 100)))
    assert len(list(job_processes._ids(str(tmp_path), "cgroup.procs"))) == 10


def test_a_crowd_is_put_into_its_class_over_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr(net_cls, "PLACE_WITHIN_S", 100)
    monkeypatch.setattr(net_cls.time, "monotonic", lambda: next(clock))
    moved: list[int] = []
    monkeypatch.setattr(net_cls, "_move", lambda pid, _group: moved.append(pid))
    monkeypatch.setattr(net_cls, "_pids", lambda _group: list(moved))
    groups = net_cls.NetClsGroups("n1", own_mount=tmp_path)
    monkeypatch.setattr(groups, "_mounted", lambda: tmp_path)
    monkeypatch.setattr(groups, "_group_of", lambda _pid: "/")
    for turn in range(1, 4):
        groups.place(net_cls.GPU, range(1, 251))
        assert len(moved) == min(99 * turn, 250)
    assert sorted(moved) == list(range(1, 251))
