"""Figures from accounting arrive beside the cycle, whether slurmdbd is well, late or down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]


def run_to_its_end(slurm: FakeSlurm, sodad: Daemon) -> None:
    slurm.submit(1, gpus=1, work_s=10.0)
    sodad.follow(20)


def settle(slurm: FakeSlurm, sodad: Daemon, cycles: int = 20) -> None:
    """Cycles with real time in between, for the thread that asks."""
    for _ in range(cycles):
        sodad.run()
        slurm.advance(10)
        threading.Event().wait(0.01)


def answer(slurm: FakeSlurm) -> Callable[[Sequence[int]], Iterable[JobAccounting]]:
    def ask(job_ids: Sequence[int]) -> list[JobAccounting]:
        found = []
        for job_id in job_ids:
            job = slurm.all[job_id]
            run = RunAccounting(job.start_s, job.end_s, job.state, "0:0", 7.5, 512.0, 1, 1, 1, "n1")
            found.append(JobAccounting(job_id, "alice", job.submit_s, job.state, "0:0", (run,)))
        return found

    return ask


def test_an_ended_job_gets_its_figures(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(ask=answer(slurm))
    run_to_its_end(slurm, sodad)
    settle(slurm, sodad)
    job = sodad.job(1)
    assert (job.accounted, job.cpu_s, job.memory_peak_mib) == (True, 7.5, 512.0)


def test_while_slurmdbd_is_down_cycles_go_on_and_the_figures_come_later(slurm: FakeSlurm, daemon: Start) -> None:
    down = [True]

    def ask(job_ids: Sequence[int]) -> Iterable[JobAccounting]:
        if down[0]:
            raise SlurmCommandError(("sacct",), 1, "connection refused", "asked again later")
        return answer(slurm)(job_ids)

    sodad = daemon(ask=ask)
    run_to_its_end(slurm, sodad)
    settle(slurm, sodad)
    assert not sodad.job(1).accounted
    assert not sodad.last_cycle().error
    down[0] = False
    settle(slurm, sodad)
    assert sodad.job(1).accounted


def test_a_hanging_question_holds_nothing_up(slurm: FakeSlurm, daemon: Start) -> None:
    release = threading.Event()

    def ask(_job_ids: Sequence[int]) -> Iterable[JobAccounting]:
        release.wait(30)
        return []

    sodad = daemon(ask=ask)
    run_to_its_end(slurm, sodad)
    settle(slurm, sodad, cycles=5)
    assert not sodad.last_cycle().error
    release.set()
