"""Reading Slurm when it tells one thing badly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slurm_soda.daemon.cycle.slurm_state import ALLOCATIONS_WITHIN_S, RUNS_PER_QUESTION, UNREADABLE_ALLOCATION_S
from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from tests.daemon.fake_slurm import FakeClock, FakeJob, FakeSlurm
from tests.daemon.harness import Daemon, settings


class Wide(FakeSlurm):
    """All running jobs are on two nodes, of which one is listed."""

    def _record(self, job: FakeJob) -> SlurmJob:
        record = super()._record(job)
        return replace(record, nodes=2, node_names="n[1-2]") if job.state == "RUNNING" else record

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        found = super().allocations(job_ids)
        odd: dict[int, Allocation | SlurmReplyError] = {
            i: SlurmReplyError(f"scontrol's picture of job {i} cannot be read") for i in job_ids if i in self.odd
        }
        return found | odd


def test_an_allocation_that_cannot_be_read_blinds_nobody(fresh_store: Path) -> None:
    slurm = Wide(FakeClock())
    for job_id in (1, 2):
        slurm.submit(job_id, gpus=2, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.odd.add(1)
    sodad = Daemon(slurm, fresh_store, settings())
    assert not sodad.run().error
    sodad.follow(5)
    assert slurm.calls.count("allocations") == 1
    slurm.odd.clear()
    slurm.advance(UNREADABLE_ALLOCATION_S)
    sodad.follow(3)
    assert slurm.calls.count("allocations") == 2


def test_slurm_that_does_not_answer_is_no_sight(fresh_store: Path) -> None:
    slurm = Wide(FakeClock())
    slurm.submit(1, gpus=2, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.silent.add("allocations")
    assert "contact" in Daemon(slurm, fresh_store, settings()).run().error


class Slow(Wide):
    """Slurm takes its time for each question about allocations, and for each job in it."""

    QUESTION_S, JOB_S = 0.03, 0.02

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        self.clock.at_s += self.QUESTION_S + self.JOB_S * len(job_ids)
        return super().allocations(job_ids)


class Few(Wide):
    """Slurm is so busy that it answers about seven jobs in time and not about more."""

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        if len(job_ids) > 7:
            raise SlurmCommandError(("scontrol",), None, "", "wait until slurmctld is back")
        self.clock.at_s += 1.0
        return super().allocations(job_ids)


def test_a_start_on_a_cluster_full_of_multi_node_jobs_is_spread_over_cycles(fresh_store: Path) -> None:
    slurm, jobs = Slow(FakeClock(), gpus=400), 400
    for job_id in range(1, jobs + 1):
        slurm.submit(job_id, gpus=1, work_s=1e6, checkpoint=None)
    slurm.tick()
    sodad = Daemon(slurm, fresh_store, settings(mode="observe"))
    reader = sodad.cycles._observer._slurm_reader
    cycles = 0
    while cycles == 0 or reader.unknown:
        before, began_s = slurm.calls.count("allocations"), slurm.clock.at_s
        assert not sodad.run().error
        assert slurm.clock.at_s - began_s < ALLOCATIONS_WITHIN_S + 1
        assert slurm.calls.count("allocations") > before
        cycles += 1
    assert cycles >= 2
    assert slurm.calls.count("allocations") == jobs / RUNS_PER_QUESTION
    sodad.run()
    assert slurm.calls.count("allocations") == jobs / RUNS_PER_QUESTION


def test_a_question_that_is_too_long_for_slurm_is_made_shorter(fresh_store: Path) -> None:
    slurm = Few(FakeClock(), gpus=60)
    for job_id in range(1, 61):
        slurm.submit(job_id, gpus=1, work_s=1e6, checkpoint=None)
    slurm.tick()
    sodad = Daemon(slurm, fresh_store, settings(mode="observe"))
    assert [bool(sodad.run().error) for _ in range(7)] == [True] * 3 + [False] * 4
    assert not sodad.cycles._observer._slurm_reader.unknown
