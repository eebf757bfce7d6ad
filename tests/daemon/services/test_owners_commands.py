"""What an owner does with Slurm's own commands to tasks of his service: scancel, requeue, hold and release."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.daemon.store.tables.services import ServiceDrainRow
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad


def test_a_waiting_task_and_a_running_one_are_cancelled(fresh_store: Path) -> None:
    slurm = cluster(tasks=4)
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    assert slurm.running(CPU) == [0]
    for job in (slurm.tasks(CPU)[2], slurm.tasks(CPU)[0], slurm.tasks(GPU)[1]):
        job.state, job.apart, job.end_s = "CANCELLED", True, slurm.clock.now_s()
    live(slurm, daemon, router, 10)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([1], [])
    waiting = [job for array in (CPU, GPU) for job in slurm.tasks(array) if job.state == "PENDING"]
    assert {job.eligible_s % 60 for job in waiting} == {MARK_S}
    assert len(waiting) == 4


def test_a_requeued_instance_is_replaced_at_once_and_waits(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    slurm.requeue(slurm._shown_id(slurm.tasks(CPU)[0]))
    live(slurm, daemon, router, 15)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([1], [])
    live(slurm, daemon, router, 180)
    assert slurm.running(CPU) == [1]
    assert slurm.tasks(CPU)[0].eligible_s % 60 == MARK_S
    assert daemon.rows(ServiceDrainRow) == []


def test_a_leased_task_that_is_held_is_left_alone_and_leased_again_once_released(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    held = slurm.tasks(GPU)[2]
    held.apart, held.reason, held.never_starts = True, "JobHeldUser", True
    ends_s = held.eligible_s
    live(slurm, daemon, router, 400)
    assert held.eligible_s == ends_s
    held.reason, held.never_starts = "BeginTime", False
    daemon.run()
    assert held.eligible_s % 60 == MARK_S
    assert held.eligible_s > slurm.clock.now_s()
    live(slurm, daemon, router, 5)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])
