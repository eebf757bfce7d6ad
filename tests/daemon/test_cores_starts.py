"""Requests of waiting jobs over whole cycles: what is changed, what is left alone and why, and who has the last word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from slurm_soda.daemon.cpu_fit.reader import LIMITS_FOR_S
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuProposalRow
from slurm_soda.slurm_ext.client import JobUpdate
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.fake_slurm import FakeJob, FakeSlurm
from tests.daemon.harness import Daemon, KilledError, Killer, settings

Start = Callable[..., Daemon]
CV = Hints(category="cv")


@pytest.fixture
def full(slurm: FakeSlurm) -> FakeSlurm:
    """All GPUs are taken, so that jobs wait."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    return slurm


def wait(slurm: FakeSlurm, job_id: int = 2, **more: Any) -> FakeJob:
    return slurm.submit(job_id, **{"gpus": 1, "checkpoint": None, "hints": CV, **more})


def fit(sodad: Daemon, cores: int, **more: Any) -> None:
    values: dict[str, Any] = {
        "job_id": 900, "submit_s": 1.0, "restart": 0, "node": "n1", "at_s": 10.0, "search": 0, "user": "alice",
        "category": "cv", "model": "", "hints": {}, "nodes": 1, "gpus": 1, "asked_cores": 1, "start_cores": 3,
        "most_cores": 28, "cores": cores, "steps": 3, "start_ratio": 0.5, "utilisation_ratio": 0.9, "reason": "best_fit",
    }  # fmt: skip
    with sodad.store.write() as session:
        session.add(CpuFitRow(**{**values, **more}))


def thought(sodad: Daemon, job_id: int = 2) -> CpuProposalRow:
    row: CpuProposalRow
    (row,) = [row for row in sodad.rows(CpuProposalRow) if row.job_id == job_id]
    return row


@pytest.mark.parametrize(
    ("asked", "gpus", "hints", "cores"),
    [
        (1, 1, CV, 3),
        (20, 1, CV, 3),
        (2, 2, Hints(category="nlp"), 10),
        (1, 4, Hints(category="speech"), 20),
        (1, 1, Hints(category="cv", pipelined=True), 2),
        (1, 1, Hints(category="cv", heavy_preprocessing=True), 4),
    ],
)
def test_a_job_gets_the_cores_of_its_category(
    full: FakeSlurm, daemon: Start, asked: int, gpus: int, hints: Hints, cores: int
) -> None:
    job = wait(full, cpus=asked, gpus=gpus, hints=hints)
    sodad = daemon()
    sodad.run()
    assert (job.cpus, job.least_cpus) == (cores, cores)
    (action,) = sodad.actions("rewrite")
    assert (action.state, action.old["NumCPUs"], action.new["NumCPUs"]) == ("done", str(asked), str(cores))
    assert "usual for its category" in action.reason
    assert (thought(sodad).asked_cores, thought(sodad).cores, thought(sodad).source) == (asked, cores, "default")


def test_a_second_cycle_and_a_second_daemon_write_nothing(full: FakeSlurm, daemon: Start) -> None:
    wait(full, cpus=20)
    daemon().follow(3)
    written = full.updates
    sodad = daemon()
    sodad.follow(3)
    assert full.updates == written
    assert len(sodad.actions("rewrite")) == 1
    assert (thought(sodad).asked_cores, thought(sodad).cores) == (20, 3)


def test_memory_stays_what_the_job_would_have_had(full: FakeSlurm, daemon: Start) -> None:
    fewer = wait(full, 2, cpus=20, memory_per_cpu_mib=1000)
    more = wait(full, 3, cpus=1, memory_per_cpu_mib=1000)
    whole = wait(full, 4, cpus=20, memory_mib=8000)
    sodad = daemon()
    sodad.run()
    assert (fewer.cpus, fewer.memory_mib, fewer.memory_per_cpu_mib) == (3, 0, 6_666)
    assert (more.cpus, more.memory_mib, more.memory_per_cpu_mib) == (3, 0, 1000)
    assert (whole.cpus, whole.memory_mib) == (3, 8000)
    by_job = {action.job_id: action for action in sodad.actions("rewrite")}
    assert by_job[2].old["MinMemoryCPU"] == "1000"
    assert "MinMemoryCPU" not in by_job[4].new


def test_memory_stays_the_same_however_often_the_cores_change(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20, memory_per_cpu_mib=1000)
    sodad = daemon()
    for at, cores in enumerate((7, 2, 5)):
        fit(sodad, cores, job_id=901 + at, submit_s=1.0 + at)
        with sodad.store.write() as session:
            session.execute(delete(CpuFitRow).where(CpuFitRow.job_id < 901 + at))
        full.advance(120)
        sodad.follow(2)
        assert (job.cpus, job.memory_per_cpu_mib * job.cpus) == (cores, pytest.approx(20_000, abs=20)), sodad.actions(
            "rewrite"
        )


@pytest.mark.parametrize("settings", [{"mode": "observe"}, {"mode": "advise"}, {"cpu_fit": {"rewrite": "off"}}])
def test_nothing_is_changed_unless_it_may(full: FakeSlurm, daemon: Start, settings: dict[str, Any]) -> None:
    job = wait(full, cpus=20)
    sodad = daemon(**settings)
    sodad.follow(3)
    assert job.cpus == 20
    assert not sodad.actions("rewrite")
    assert [row.cores for row in sodad.rows(CpuProposalRow)] == ([3] if settings.get("mode") == "advise" else [])


def test_only_jobs_that_name_a_category_unless_the_site_wants_all(full: FakeSlurm, daemon: Start) -> None:
    job, without_gpu = wait(full, cpus=20, hints=Hints()), wait(full, 3, gpus=0, cpus=20)
    daemon().follow(2)
    assert job.cpus == 20
    daemon(cpu_fit={"rewrite": "all"}).follow(2)
    assert (job.cpus, without_gpu.cpus) == (5, 20)


def test_the_owners_earlier_jobs_come_first_and_a_new_fit_counts_at_once(full: FakeSlurm, daemon: Start) -> None:
    first = wait(full, 2, cpus=1)
    sodad = daemon()
    sodad.run()
    assert first.cpus == 3
    fit(sodad, 7)
    second, other = wait(full, 3, cpus=1), wait(full, 4, cpus=1, user="bob")
    full.advance(2)
    sodad.run()
    assert (second.cpus, other.cpus) == (7, 3)
    assert first.cpus == 7, "it still waits with the number that was ours"
    assert thought(sodad).asked_cores == 1
    assert "this owner and category" in next(a.reason for a in sodad.actions("rewrite") if a.job_id == 3)


def test_a_history_of_outliers_and_of_ends_that_tell_nothing_is_none(full: FakeSlurm, daemon: Start) -> None:
    sodad = daemon()
    fit(sodad, 64, job_id=901)
    fit(sodad, 9, job_id=902, reason="independent")
    fit(sodad, 9, job_id=903, reason="cut_short")
    job = wait(full, cpus=1)
    sodad.run()
    assert job.cpus == 3


def test_what_its_owner_changes_afterwards_stands(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    sodad = daemon()
    sodad.run()
    full.update([JobUpdate(2, (("NumCPUs", "8"),))])
    full.advance(2)
    sodad.follow(3)
    assert job.cpus == 8
    assert "changed after ours" in thought(sodad).left_alone
    daemon().follow(2)
    assert job.cpus == 8


def test_what_was_taken_back_stays_so(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    sodad = daemon()
    sodad.run()
    (action,) = sodad.actions("rewrite")
    full.update([JobUpdate(2, tuple(action.old.items()))])
    with sodad.store.write() as session:
        session.get_one(type(action), action.id).state = "undone"
    full.advance(2)
    sodad.follow(3)
    assert job.cpus == 20
    assert "taken back" in thought(sodad).left_alone


def test_a_refusal_is_not_tried_again(full: FakeSlurm, daemon: Start) -> None:
    wait(full, cpus=20, refuse="Requested node configuration is not available")
    sodad = daemon()
    sodad.follow(4)
    assert [action.state for action in sodad.actions("rewrite")] == ["failed"]
    assert "node configuration" in thought(sodad).left_alone


def test_a_peculiar_request_is_left_alone_and_says_so(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20, peculiar="--cpus-per-gpu")
    sodad = daemon()
    sodad.follow(2)
    assert job.cpus == 20
    assert "--cpus-per-gpu" in thought(sodad).left_alone
    assert full.calls.count("request") == 1, "it is looked at once"


def test_a_node_with_fewer_cores_bounds_it_until_there_are_others(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=1)
    full.node_cpus = 2
    sodad = daemon()
    sodad.follow(3)
    assert job.cpus == 2
    assert "as far as its nodes" in sodad.actions("rewrite")[0].reason
    full.node_cpus = 28
    full.advance(LIMITS_FOR_S)
    sodad.follow(2)
    assert (job.cpus, thought(sodad).asked_cores) == (3, 1)


def test_a_burst_is_looked_at_in_turns(full: FakeSlurm, daemon: Start) -> None:
    jobs = [wait(full, 2 + i, cpus=20) for i in range(120)]
    sodad = daemon()
    done = []
    for _ in range(3):
        sodad.run()
        done.append(sum(job.cpus == 3 for job in jobs))
        full.advance(2)
    assert done == [50, 100, 120]


def test_slurm_that_does_not_tell_its_limits_stops_nothing_else(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    full.silent.add("partition_limits")
    sodad = daemon()
    assert not sodad.run().error
    assert job.cpus == 20
    full.silent.clear()
    full.advance(2)
    sodad.run()
    assert job.cpus == 3


@pytest.mark.sample(3)
@pytest.mark.parametrize("kill_at", range(1, 9))
def test_a_kill_at_any_point_loses_neither_the_change_nor_the_way_back(
    full: FakeSlurm, fresh_store: Path, kill_at: int
) -> None:
    job = wait(full, cpus=20, memory_per_cpu_mib=1000)
    with pytest.raises(KilledError):
        Daemon(full, fresh_store, settings(), Killer(kill_at)).run()
    full.advance(2)
    sodad = Daemon(full, fresh_store, settings())
    sodad.follow(3)
    assert (job.cpus, job.memory_per_cpu_mib) == (3, 6_666)
    done = [action for action in sodad.actions("rewrite") if action.state == "done"]
    assert [action.old["NumCPUs"] for action in done] == ["20"]
    assert {action.state for action in sodad.actions("rewrite")} <= {"done", "void"}
    assert (thought(sodad).asked_cores, thought(sodad).cores, thought(sodad).left_alone) == (20, 3, "")
