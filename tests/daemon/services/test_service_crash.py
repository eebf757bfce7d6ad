"""kill -9 at every point of the cycles that lease, start, drain and requeue: it ends as without a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.postgresql import new_store_url
from slurm_soda.daemon.store.tables.services import ServiceDrainRow
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.harness import Daemon, KilledError, Killer
from tests.daemon.services.array_slurm import ArraySlurm
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad
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
