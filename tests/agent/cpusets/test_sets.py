"""A job has the fewest cores that anyone wants, within its own, and gets back exactly what it had, whatever happens."""

from __future__ import annotations

import itertools
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.cpusets import core_limits as sets_module
from slurm_soda.agent.cpusets import job_cpusets as module
from slurm_soda.agent.cpusets.core_controller import CoreLimitsController
from slurm_soda.agent.cpusets.core_limits import CoreRange
from slurm_soda.agent.cpusets.cpu_list import format_cpu_list, parse_cpu_list
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.state_file import StateFileError
from tests.agent.cpusets.conftest import JOB, Jobs, Machine

BATCH = {"": "0-19", "step_batch": "0-19", "step_batch/task_0": "0-19"}


def on_record(jobs: Jobs) -> bool:
    path = jobs.path / "state/cores.json"
    return path.exists() and '"job_id"' in path.read_text()


def test_fewer_then_more_then_all_again(jobs: Jobs) -> None:
    jobs.add(BATCH)
    assert jobs.sets.core_range(JOB) == CoreRange(20, 20)
    for cores, cpus in ((4, "0-3"), (1, "0"), (7, "0-6")):
        assert jobs.sets.limit(JOB, cores, "tuning") == cores
        assert set(jobs.has().values()) == {cpus}
    assert on_record(jobs)
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == BATCH
    assert not on_record(jobs)


def test_never_more_than_the_allocation_nor_less_than_one(jobs: Jobs) -> None:
    jobs.add(BATCH)
    assert jobs.sets.limit(JOB, 99, "tuning") == 20
    assert jobs.has() == BATCH
    assert jobs.sets.limit(JOB, 0, "tuning") == 1


def test_the_fewest_count_and_giving_back_undoes_only_ones_own(jobs: Jobs) -> None:
    jobs.add(BATCH)
    tuning, memory = jobs.sets.holder("tuning"), jobs.sets.holder("memory")
    tuning.limit(JOB, 6)
    memory.limit(JOB, 10)
    assert set(jobs.has().values()) == {"0-5"}
    assert CoreLimitsController(jobs.sets).counts() == {"jobs_with_fewer_cores": 1, "cores_taken": 14}
    tuning.restore(JOB)
    assert set(jobs.has().values()) == {"0-9"}
    tuning.limit(JOB, 12)
    assert set(jobs.has().values()) == {"0-9"}
    memory.restore(JOB)
    memory.restore(JOB)  # once is enough
    assert set(jobs.has().values()) == {"0-11"}
    tuning.restore(JOB)
    assert jobs.has() == BATCH
    assert CoreLimitsController(jobs.sets).counts() == {"jobs_with_fewer_cores": 0, "cores_taken": 0}


def test_steps_with_parts_of_the_job_keep_parts_of_what_is_left(jobs: Jobs) -> None:
    groups = {"": "0-19", "step_0": "0-9", "step_0/task_0": "0-9", "step_1": "10-19", "step_1/task_0": "10-14"}
    jobs.add(groups)
    jobs.machine.tell(procs={f"{jobs.top()}/job_{JOB}/{name}": [1] for name in groups if "task" in name})
    assert jobs.sets.core_range(JOB) == CoreRange(15, 15)  # 15-19 are nobody's to give
    jobs.sets.limit(JOB, 12, "tuning")
    assert jobs.has() == {
        "": "0-11", "step_0": "0-9", "step_0/task_0": "0-9", "step_1": "10-11", "step_1/task_0": "10-11",
    }  # fmt: skip
    jobs.sets.limit(JOB, 4, "tuning")  # no part of step 1 is left: it shares
    assert set(jobs.has().values()) == {"0-3"}
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == groups


def test_the_one_step_of_a_job_may_have_all_of_it(jobs: Jobs) -> None:
    """srun without the job's --cpus-per-task: two cores work, eighteen lie idle."""
    groups = {"": "0-19", "step_batch": "0-19", "step_0": "4-5", "step_0/task_0": "4-5"}
    jobs.add(groups)
    jobs.machine.tell(procs={f"{jobs.top()}/job_{JOB}/step_0/task_0": [1]})
    assert jobs.sets.core_range(JOB) == CoreRange(2, 20)
    jobs.sets.limit(JOB, 3, "tuning")
    assert {jobs.has()[name] for name in ("", "step_0", "step_0/task_0")} == {"0,4-5"}
    jobs.sets.limit(JOB, 1, "tuning")
    assert jobs.has()["step_0/task_0"] == "4"
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == groups


@pytest.mark.parametrize("jobs", [2], ids=["v2"], indirect=True)
def test_slurmstepd_in_a_group_of_its_own_does_not_hide_that_its_step_has_fewer_cores(jobs: Jobs) -> None:
    """The tree of Slurm 24.11 on cgroup v2: slurmstepd may use what the job may."""
    groups = {"": "0-19", "step_0": "", "step_0/slurm": "", "step_0/user": "4-5", "step_0/user/task_0": ""}
    jobs.add(groups)
    base = f"{jobs.top()}/job_{JOB}/step_0"
    jobs.machine.tell(procs={f"{base}/slurm": [os.getpid()], f"{base}/user/task_0": [1]})
    assert jobs.sets.core_range(JOB) == CoreRange(2, 20)
    jobs.sets.limit(JOB, 3, "tuning")
    assert (jobs.has()[""], jobs.has()["step_0/user"]) == ("0,4-5", "0,4-5")
    jobs.sets.limit(JOB, 1, "tuning")
    assert (jobs.has()[""], jobs.has()["step_0/user"]) == ("4", "4")
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == groups


def test_a_step_that_starts_later_is_held_too_and_gets_its_own_back(jobs: Jobs) -> None:
    """It makes slurmd write the job's allocation again, and leaves older steps as they are."""
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    later = {"": "0-19", "step_3": "2-9", "step_3/task_0": "2-9"}
    jobs.write(later)
    assert jobs.sets.reapply_limits() == []
    has = jobs.has()
    assert (has[""], has["step_3"], has["step_3/task_0"], has["step_batch"]) == ("0-3", "2-3", "2-3", "0-3")
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == BATCH | later


def test_nothing_is_written_while_all_is_in_place(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    before = jobs.log()
    assert jobs.sets.reapply_limits() == []
    jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.log() == before


def test_a_step_that_ends_while_it_is_written(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.machine.tell(vanish=f"{jobs.top()}/job_{JOB}/step_batch/task_0")
    jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.has() == {"": "0-3", "step_batch": "0-3"}
    jobs.sets.restore(JOB, "tuning")
    assert jobs.has() == {"": "0-19", "step_batch": "0-19"}


def test_a_job_that_ends_while_it_is_written(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.machine.tell(vanish=f"{jobs.top()}/job_{JOB}")
    with pytest.raises(JobGoneError):
        jobs.sets.limit(JOB, 4, "tuning")
    assert not on_record(jobs)
    jobs.sets.restore(JOB, "tuning")
    with pytest.raises(JobGoneError):
        jobs.sets.core_range(JOB)


def test_an_agent_that_was_killed_has_its_jobs_restored_by_the_next(jobs: Jobs) -> None:
    groups = {"": "0-19", "step_0": "4-5", "step_0/task_0": "4-5"}
    jobs.add(groups)
    jobs.add({"": "20-27", "step_batch": "20-27"}, job_id=8)
    jobs.machine.tell(procs={f"{jobs.top()}/job_{JOB}/step_0/task_0": [1]})
    jobs.sets.limit(JOB, 8, "tuning")
    jobs.sets.limit(8, 2, "memory")
    assert jobs.agent().recover() == []
    assert jobs.has() == groups
    assert jobs.has(8) == {"": "20-27", "step_batch": "20-27"}
    assert not on_record(jobs)


@pytest.mark.parametrize("writes", range(1, 7))
def test_killed_after_any_write_all_is_restored(jobs: Jobs, writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of a change: what is on record by then is enough."""
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 9, "tuning")
    put, left = module.JobCpusets._put, itertools.count()

    def put_some(self: module.JobCpusets, name: str, text: str) -> None:
        if next(left) >= writes:
            raise KeyboardInterrupt
        put(self, name, text)

    monkeypatch.setattr(module.JobCpusets, "_put", put_some)
    try:
        jobs.sets.limit(JOB, 3, "tuning")
        jobs.sets.limit(JOB, 12, "tuning")
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    assert jobs.agent().recover() == []
    assert jobs.has() == BATCH


def test_a_record_that_is_damaged_is_one_fault(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    (jobs.path / "state/cores.json").write_text('{"version": 1, "jobs": [{"job_id": "x"}]}')
    (fault,) = jobs.agent().recover()
    assert "cores that were taken are not known any more" in fault
    assert "\n" not in fault


def test_what_cannot_be_recorded_is_not_done(jobs: Jobs) -> None:
    jobs.add(BATCH)
    (jobs.path / "state").write_text("in the way")
    with pytest.raises(StateFileError, match="nothing is changed"):
        jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.has() == BATCH


def test_a_state_directory_that_others_may_write_to_is_refused(jobs: Jobs) -> None:
    jobs.add(BATCH)
    (jobs.path / "state").mkdir()
    (jobs.path / "state").chmod(0o777)
    with pytest.raises(StateFileError, match="make it root's alone"):
        jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.has() == BATCH


def test_more_cores_than_slurm_gave_are_not_the_jobs_own(jobs: Jobs) -> None:
    jobs.add(BATCH, cpus=4)
    with pytest.raises(CoresError, match=r"set ConstrainCores=yes in cgroup\.conf"):
        jobs.sets.limit(JOB, 4, "tuning")
    assert jobs.has() == BATCH


def test_where_slurm_counts_cores_a_job_keeps_both_threads_of_each(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets_module, "read_siblings", lambda cpus: {cpu: cpu % 4 for cpu in cpus})
    jobs.add({"": "0-7", "step_batch": "0-7"}, cpus=4)
    assert jobs.sets.core_range(JOB) == CoreRange(4, 4)
    assert jobs.sets.limit(JOB, 2, "tuning") == 2
    assert set(jobs.has().values()) == {"0-1,4-5"}


def test_steps_that_come_and_go_leave_nothing_on_record(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    for step in range(5):
        jobs.write({"": "0-19", f"step_{step}": "0-9"})
        jobs.sets.reapply_limits()
        jobs.machine.tell(remove=f"{jobs.top()}/job_{JOB}/step_{step}")
    jobs.write({"": "0-19", "step_9": "0-9"})
    assert jobs.sets.reapply_limits() == []
    record = (jobs.path / "state/cores.json").read_text()
    assert [f"step_{step}" in record for step in (0, 3, 9)] == [False, False, True]


def test_the_next_run_of_a_requeued_job_is_another(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "tuning")
    jobs.machine.tell(remove=f"{jobs.top()}/job_{JOB}")
    jobs.add({"": "8-15", "step_batch": "8-15"}, cpus=8, start_s=2)
    assert not on_record(jobs)
    assert jobs.sets.core_range(JOB) == CoreRange(8, 8)
    jobs.sets.limit(JOB, 2, "tuning")
    assert set(jobs.has().values()) == {"8-9"}


def test_the_controller_gives_back_at_its_start_and_end(jobs: Jobs) -> None:
    jobs.add(BATCH)
    jobs.sets.limit(JOB, 4, "memory")
    resource_controller = CoreLimitsController(jobs.agent())
    assert resource_controller.recover(0.0) == []
    assert jobs.has() == BATCH
    resource_controller = CoreLimitsController(jobs.sets)
    resource_controller.turn(NodeSample(1.0, jobs.runs, unix_s=0.0))
    jobs.sets.limit(JOB, 4, "memory")
    assert resource_controller.close() == []
    assert jobs.has() == BATCH
    assert resource_controller.turn(NodeSample(2.0, [], unix_s=0.0)) == []


@given(data=st.data())
def test_any_tree_and_any_wishes(
    server: Machine, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Always as few as the fewest wanted, children within parents (the stand-in refuses else); at the end as before."""
    path = tmp_path_factory.mktemp("any") / "node"
    jobs = Jobs(server, data.draw(st.sampled_from([1, 2])), path)
    allocated = data.draw(st.frozensets(st.integers(0, 27), min_size=1, max_size=20))
    groups = {"": format_cpu_list(allocated)}
    for step in range(data.draw(st.integers(0, 3))):
        cpus = data.draw(st.frozensets(st.sampled_from(sorted(allocated)), min_size=1))
        groups[f"step_{step}"] = format_cpu_list(cpus)
        groups[f"step_{step}/task_0"] = format_cpu_list(
            data.draw(st.frozensets(st.sampled_from(sorted(cpus)), min_size=1))
        )
    jobs.add(groups, cpus=len(allocated))
    procs = {f"{jobs.top()}/job_{JOB}/{name}": [1] for name in groups if "task" in name}
    jobs.machine.tell(procs=procs)
    core_range, wanted = jobs.sets.core_range(JOB), dict[str, int]()
    for _ in range(data.draw(st.integers(1, 5))):
        holder, cores = data.draw(st.sampled_from("ab")), data.draw(st.integers(0, 22))
        if cores:
            wanted[holder] = min(cores, core_range.limit)
            assert jobs.sets.limit(JOB, cores, holder) == min(wanted.values())
        else:
            wanted.pop(holder, None)
            jobs.sets.restore(JOB, holder)
        has = {name: parse_cpu_list(cpus) for name, cpus in jobs.has().items()}
        if wanted:
            assert len(has[""]) == min(wanted.values())
            assert all(has[""] >= cpus and cpus for cpus in has.values())
        else:
            assert jobs.has() == groups
    jobs.sets.restore_all()
    assert jobs.has() == groups
    shutil.rmtree(path)
