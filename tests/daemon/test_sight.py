"""Reading Slurm when it tells one thing badly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_soda.daemon.cycle.slurm_state import UNREADABLE_ALLOCATION_S
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from tests.daemon.fake_slurm import FakeClock, FakeJob, FakeSlurm
from tests.daemon.harness import Daemon, settings


class Wide(FakeSlurm):
    """All running jobs are on two nodes, of which one is listed."""

    def _record(self, job: FakeJob) -> SlurmJob:
        record = super()._record(job)
        return replace(record, nodes=2, node_names="n[1-2]") if job.state == "RUNNING" else record

    def allocation(self, job_id: int) -> list[tuple[str, int, int]]:
        self._answer("allocation")
        if job_id in self.odd:
            raise SlurmReplyError(f"scontrol's picture of job {job_id} cannot be read")
        return super().allocation(job_id)


def test_an_allocation_that_cannot_be_read_blinds_nobody(fresh_store: Path) -> None:
    slurm = Wide(FakeClock())
    for job_id in (1, 2):
        slurm.submit(job_id, gpus=2, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.odd.add(1)
    sodad = Daemon(slurm, fresh_store, settings())
    assert not sodad.run().error
    sodad.follow(5)
    assert slurm.calls.count("allocation") == 2
    slurm.odd.clear()
    slurm.advance(UNREADABLE_ALLOCATION_S)
    sodad.follow(3)
    assert slurm.calls.count("allocation") == 3


def test_slurm_that_does_not_answer_is_no_sight(fresh_store: Path) -> None:
    slurm = Wide(FakeClock())
    slurm.submit(1, gpus=2, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.silent.add("allocation")
    assert "contact" in Daemon(slurm, fresh_store, settings()).run().error
