"""kill -9 at every point of the cycles that lease, start, drain and requeue: it ends as without a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.postgresql import new_store_url
from slurm_soda.daemon.store.tables.services import ServiceDrainRow
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.harness import Daemon, KilledError, Killer
from tests.daemon.services.array_slurm import ArraySlurm
from tests.daemon.services.service_daemon import CPU, GPU, SERVICES, Router, cluster, live, sodad
from tests.postgresql import postgresql_server

POINTS = 190
"""More than a hand-over passes."""


def play(path: Path, kill_at: int) -> tuple[ArraySlurm, Daemon, Router, int]:
    """A load that needs cores, then a GPU, with one death on the way; gives the points that the first life passed."""
    slurm, killer, passed = cluster(), Killer(kill_at), 0
    daemon, router = sodad(slurm, path, killer), Router(slurm, load_qps=5.0)
    for second in range(26):
        router.load_qps = 5.0 if second < 6 else 300.0
        try:
            router.report(daemon)
            daemon.run()
        except KilledError:
            passed = killer.passed
            daemon = sodad(slurm, path)
        slurm.advance(1)
    return slurm, daemon, router, passed or killer.passed


def check_end(slurm: ArraySlurm, daemon: Daemon) -> None:
    """One instance on a GPU runs, each other task waits with a lease, one was requeued once, and the store says so."""
    assert (slurm.running(CPU), slurm.running(GPU)) == ([], [0])
    waiting = [job for array in (CPU, GPU) for job in slurm.tasks(array) if job.state == "PENDING"]
    assert len(waiting) == 5
    assert all(job.eligible_s > slurm.clock.now_s() and job.eligible_s % 60 == MARK_S for job in waiting)
    assert sum(job.restarts for job in waiting) == 1
    assert [row.phase for row in daemon.rows(ServiceDrainRow)] == ["over"]
    requeues = [action for action in daemon.actions() if action.kind == "requeue"]
    assert [action.state for action in requeues if action.state != "void"] == ["done"]
    assert {action.state for action in daemon.actions()} <= {"done", "void"}


def test_without_a_kill(fresh_store: Path) -> None:
    slurm, daemon, _, passed = play(fresh_store, -1)
    check_end(slurm, daemon)
    assert 150 < passed < POINTS


@pytest.mark.sample(6)
@pytest.mark.parametrize("kill_at", range(1, POINTS))
def test_a_kill_at_every_point(fresh_store: Path, kill_at: int) -> None:
    slurm, daemon, _, _ = play(fresh_store, kill_at)
    check_end(slurm, daemon)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kill_at", [30, 60, 90, 120, 150])
def test_a_kill_over_a_store_on_postgresql(tmp_path: Path, kill_at: int) -> None:
    postgresql_server()
    (tmp_path / "store.url").write_text(new_store_url())
    slurm, daemon, _, _ = play(tmp_path, kill_at)
    check_end(slurm, daemon)


def test_a_new_sodad_goes_on_with_the_cool_down_of_the_one_before(fresh_store: Path) -> None:
    """Until its router reports, the load of a service is not known; nothing says that it was high meanwhile."""
    slurm = cluster()
    settings = {"services": {"cool_down_s": 30.0, "lease_s": 300.0}}
    daemon, router = sodad(slurm, fresh_store, **settings), Router(slurm, load_qps=300.0)
    live(slurm, daemon, router, 15)
    router.load_qps = 5.0
    live(slurm, daemon, router, 45)
    assert (len(slurm.running(CPU)), len(slurm.running(GPU))) == (0, 1)
    daemon = sodad(slurm, fresh_store, **settings)
    for _ in range(2):
        daemon.run()
        slurm.advance(1)
    live(slurm, daemon, router, 20)
    assert len(slurm.running(CPU)) == 1


FIRST_POINTS = 300


def play_first(path: Path, kill_at: int) -> tuple[ArraySlurm, Daemon, int]:
    """The only GPU is held, another job waits before the service's task, and the task goes first; one death on the way."""
    slurm, killer, passed = cluster(gpus=1), Killer(kill_at), 0
    for job_id, work_s in ((1, 12.0), (2, 100.0)):
        slurm.submit(job_id, gpus=1, work_s=work_s, checkpoint=None)
        slurm.tick()
    services = SERVICES | {"first_in": ["main"]}
    daemon, router = sodad(slurm, path, killer, services=services), Router(slurm, load_qps=300.0)
    for second in range(36):
        router.load_qps = 300.0 if second < 16 else 5.0
        try:
            router.report(daemon)
            daemon.run()
        except KilledError:
            passed = killer.passed
            daemon = sodad(slurm, path, services=services)
        slurm.advance(1)
    return slurm, daemon, passed or killer.passed


def check_first(slurm: ArraySlurm, daemon: Daemon) -> None:
    """Cores serve, the GPU was given to the other job, and no lift is left, recorded or not."""
    assert (len(slurm.running(CPU)), slurm.running(GPU)) == (1, [])
    assert slurm.all[2].state == "RUNNING"
    assert [task.site_factor for task in slurm.tasks(GPU)] == [0, 0, 0]
    lifts = [one for one in daemon.actions() if one.kind == "order" and one.new["SiteFactor"] != "0"]
    assert {"goes first for its service" in one.reason for one in lifts} == {True}
    assert {action.state for action in daemon.actions()} <= {"done", "void"}


def test_going_first_without_a_kill(fresh_store: Path) -> None:
    slurm, daemon, passed = play_first(fresh_store, -1)
    check_first(slurm, daemon)
    assert 150 < passed < FIRST_POINTS


@pytest.mark.sample(4)
@pytest.mark.parametrize("kill_at", range(1, FIRST_POINTS))
def test_a_kill_at_every_point_while_a_task_goes_first(fresh_store: Path, kill_at: int) -> None:
    check_first(*play_first(fresh_store, kill_at)[:2])
