"""What cannot be done at the moment is done later: kernels that refuse, disks that are full, jobs that are not seen once."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets import core_limits as sets_module
from slurm_soda.agent.cpusets import core_records as record_module
from slurm_soda.agent.cpusets import job_cpusets as groups_module
from slurm_soda.agent.cpusets.core_controller import CoreLimitsController
from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.cpusets.job_cpusets import V1, JobCpusets
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.state_file import StateFileError
from slurm_soda.wire.records import JobOpened
from tests.agent.cpusets.conftest import JOB, Jobs

BATCH = {"": "0-19", "step_batch": "0-19", "step_batch/task_0": "0-19"}
ONLINE = sorted(os.sched_getaffinity(0))


def on_record(path: Path) -> bool:
    return path.exists() and '"job_id"' in path.read_text()


def record(jobs: Jobs) -> Path:
    return jobs.path / "state/cores.json"


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the kernel refuse every write after so many; tests end that by ``monkeypatch.undo``."""
    put = groups_module.JobCpusets._put

    def refuse_after(writes: int) -> None:
        left = itertools.count()

        def put_some(self: JobCpusets, name: str, text: str) -> None:
            if next(left) >= writes:
                raise CoresError(f"{name}: device or resource busy")
            put(self, name, text)

        monkeypatch.setattr(groups_module.JobCpusets, "_put", put_some)

    return refuse_after


@pytest.mark.parametrize("writes", range(3))
def test_cores_that_cannot_be_given_back_now_are_given_back_later(
    jobs: Jobs, refuse: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    refuse(writes)
    with pytest.raises(CoresError, match="busy"):
        jobs.sets.restore(JOB, "tuning")
    assert on_record(record(jobs))
    monkeypatch.undo()
    assert jobs.sets.reapply_limits() == []
    assert jobs.has() == BATCH
    assert not on_record(record(jobs))


def test_until_then_each_turn_says_so(
    jobs: Jobs, refuse: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    refuse(0)
    with pytest.raises(CoresError):
        jobs.sets.restore(JOB, "tuning")
    for _ in range(2):
        (fault,) = jobs.sets.reapply_limits()
        assert fault.startswith(f"job {JOB} does not get its cores back yet: ")
    assert jobs.sets.held(JOB) == 0
    monkeypatch.undo()
    assert jobs.sets.reapply_limits() == []
    assert jobs.has() == BATCH


def test_what_one_holder_gives_back_is_not_lost_where_another_holds_on(
    jobs: Jobs, refuse: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    jobs.sets.limit(JOB, 10, "memory")
    refuse(0)
    with pytest.raises(CoresError):
        jobs.sets.restore(JOB, "tuning")
    monkeypatch.undo()
    assert jobs.sets.reapply_limits() == []
    assert set(jobs.has().values()) == {"0-9"}
    before = jobs.log()
    assert jobs.sets.reapply_limits() == []
    assert jobs.log() == before
    jobs.sets.restore(JOB, "memory")
    assert jobs.has() == BATCH


@pytest.mark.parametrize("writes", range(1, 4))
def test_a_change_that_stops_half_way_and_cannot_be_undone_is_undone_later(
    jobs: Jobs, refuse: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    jobs.add({**BATCH, "step_0": "0-19", "step_1": "0-19"})
    jobs.sets.limit(JOB, 10, "tuning")
    held = jobs.has()
    refuse(writes)
    with pytest.raises(CoresError):
        jobs.sets.limit(JOB, 3, "tuning")
    monkeypatch.undo()
    assert jobs.sets.reapply_limits() == []
    assert jobs.has() == held
    jobs.sets.restore_all()
    assert jobs.has() == {**BATCH, "step_0": "0-19", "step_1": "0-19"}


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_disk_that_is_full_at_any_moment_of_a_change_leaves_the_job_as_it_was(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    jobs.add(BATCH)
    write, left = record_module.write_core_records, itertools.count(1)

    def write_some(*args: object) -> None:
        if next(left) >= fails_at:
            raise StateFileError("no space left on device: nothing is changed")
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sets_module, "write_core_records", write_some)
    with pytest.raises(StateFileError):
        jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.has() == BATCH
    assert jobs.sets.held(JOB) == 0
    monkeypatch.undo()
    assert jobs.sets.reapply_limits() == []
    assert jobs.sets.limit(JOB, 4, "tuning") == 4


def test_a_full_disk_is_one_fault_and_the_jobs_that_are_left_are_looked_after(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.add({"": "20-27"}, job_id=8)
    jobs.sets.limit(JOB, 4, "tuning")
    jobs.sets.limit(8, 2, "tuning")
    (jobs.path / "state/cores.json.new").mkdir()
    resource_controller = CoreLimitsController(jobs.sets)
    jobs.write(BATCH)  # slurmd widens the job again
    (fault,) = resource_controller.turn(
        NodeSample(1.0, [run for run in jobs.runs if run.key.job_id == JOB], unix_s=0.0)
    )
    assert "cores.json cannot be written" in fault
    assert jobs.has()[""] == "0-3"


def test_a_step_that_cannot_be_recorded_keeps_what_it_has(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    (jobs.path / "state/cores.json.new").mkdir()
    later = {"": "0-19", "step_3": "2-9", "step_3/task_0": "2-9"}
    jobs.write(later)
    for _ in range(2):
        (fault,) = jobs.sets.reapply_limits()
        assert "nothing is changed" in fault
        assert jobs.has()["step_3"] == "2-9"
    (jobs.path / "state/cores.json.new").rmdir()
    assert jobs.sets.reapply_limits() == []
    assert jobs.has()["step_3"] == "2-3"


@pytest.mark.parametrize("writes", range(1, 3))
def test_a_step_that_came_later_is_restored_although_the_agent_was_killed_while_it_narrowed_it(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    later = {"": "0-19", "step_3": "2-9", "step_3/task_0": "2-9"}
    jobs.write(later)
    put, left = groups_module.JobCpusets._put, itertools.count()

    def put_some(self: JobCpusets, name: str, text: str) -> None:
        if next(left) >= writes:
            raise KeyboardInterrupt
        put(self, name, text)

    monkeypatch.setattr(groups_module.JobCpusets, "_put", put_some)
    with pytest.raises(KeyboardInterrupt):
        jobs.sets.reapply_limits()
    monkeypatch.undo()
    assert jobs.agent().recover() == []
    assert jobs.has() == BATCH | later


@pytest.mark.parametrize(
    "damage", [{"original": {"": "abc"}}, {"original": {"": "9-3"}}, {"applied": ["1-x"]}, {"order": ["a"]}]
)
def test_a_record_with_nonsense_in_it_is_one_fault(jobs: Jobs, damage: dict[str, object]) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    content = json.loads(record(jobs).read_text())
    content["jobs"][0] |= damage
    record(jobs).write_text(json.dumps(content))
    resource_controller = CoreLimitsController(jobs.agent())
    (fault,) = resource_controller.recover(1.0)
    assert "cores that were taken are not known any more" in fault
    assert resource_controller.turn(NodeSample(2.0, jobs.runs, unix_s=0.0)) == []


def test_a_group_that_cannot_be_listed_is_not_gone(tmp_path: Path) -> None:
    (tmp_path / "job_7").symlink_to(tmp_path / "job_7")  # "Too many levels of symbolic links"
    with pytest.raises(CoresError) as caught:
        JobCpusets(V1, str(tmp_path / "job_7")).names()
    assert not isinstance(caught.value, JobGoneError)
    with pytest.raises(JobGoneError):
        JobCpusets(V1, str(tmp_path / "job_8")).names()


@pytest.mark.skipif(len(ONLINE) < 2, reason="needs two real cores to take one away")
def test_a_job_whose_processes_are_not_seen_once_gets_its_cores_back_when_they_are(tmp_path: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        seen = [program.pid]
        sets = JobCoreLimits("/nonexistent", tmp_path / "cores.json", lambda opened: seen, lambda gpus: frozenset())
        run = NodeRun(RunKey(JOB, 1), JobOpened(JOB, 0, "n1", 1000, "alice", "gpu", 1.0, (), len(ONLINE)))
        sets.observe([run])
        sets.limit(JOB, 1, "tuning")
        seen.clear()
        sets.restore(JOB, "tuning")
        assert sets.reapply_limits() == []
        assert on_record(tmp_path / "cores.json")
        seen.append(program.pid)
        assert sets.reapply_limits() == []
        assert os.sched_getaffinity(program.pid) == set(ONLINE)
        assert not on_record(tmp_path / "cores.json")
        sets.limit(JOB, 1, "tuning")
        seen.clear()
        sets.restore(JOB, "tuning")
        sets.observe([])  # it has ended
        assert not on_record(tmp_path / "cores.json")
    finally:
        program.kill()
        program.communicate()


def test_a_job_of_more_groups_than_can_be_read_again_is_not_changed(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record would cost the next agent those of all jobs."""
    monkeypatch.setattr(record_module, "MAX_GROUPS", len(BATCH) + 2)
    crowd = {"": "0-19"} | {f"step_{number}": "0-19" for number in range(len(BATCH) + 2)}
    jobs.add(BATCH)
    jobs.add(crowd, job_id=JOB + 1)
    with pytest.raises(StateFileError, match="cores are not changed"):
        jobs.sets.limit(JOB + 1, 4, "tuning")
    assert jobs.has(JOB + 1) == crowd
    jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.agent().recover() == []
    assert jobs.has() == BATCH


def test_one_record_that_cannot_be_read_costs_only_its_job(jobs: Jobs) -> None:
    for number in (JOB, JOB + 1):
        jobs.add(BATCH, job_id=number)
        jobs.sets.limit(number, 4, "tuning")
    content = json.loads(record(jobs).read_text())
    content["jobs"][0]["original"] = {"": "abc"}
    record(jobs).write_text(json.dumps(content))
    (fault,) = jobs.agent().recover()
    assert f"job {JOB}: core record: 'abc' is no list of CPUs" in fault
    assert jobs.has(JOB) != BATCH
    assert jobs.has(JOB + 1) == BATCH


def test_all_processes_of_a_group_are_found_although_the_kernel_gives_a_page_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = list(range(1_000_000, 1_001_500))
    for name in ("step_0", "step_1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (tmp_path / "cgroup.procs").write_text("")
    read = os.read
    monkeypatch.setattr(os, "read", lambda fd, most: read(fd, min(most, 4092)))
    groups = JobCpusets(V1, str(tmp_path))
    assert groups.pids() == {"step_0": pids, "step_1": pids}
    monkeypatch.setattr(groups_module, "MAX_THREADS", 2000)
    assert sum(map(len, groups.pids().values())) == 2000
