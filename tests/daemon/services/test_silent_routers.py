"""A service whose router is silent, for a while, for long or always."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.daemon.services.known_service import ServiceKey
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad


def test_without_a_router_what_runs_stays_and_what_waits_keeps_its_lease(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    for _ in range(40):
        slurm.advance(10)
        daemon.run()
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])
    assert min(job.eligible_s - slurm.clock.now_s() for job in slurm.tasks(GPU)) > 100.0
    assert "load is not known" in daemon.cycles._context.services.statuses["alice", "answers"].reason  # type: ignore[index]


def test_a_service_that_no_router_reports_runs_as_an_ordinary_array(fresh_store: Path) -> None:
    slurm = cluster(begin_s=0.0)
    daemon = sodad(slurm, fresh_store)
    slurm.tick()
    daemon.follow(5)
    assert (slurm.running(CPU), slurm.running(GPU), daemon.actions()) == ([0, 1, 2], [0, 1, 2], [])


def test_after_an_hour_without_a_router_its_tasks_run_as_those_of_any_array(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    for _ in range(58):
        slurm.advance(60.0, step_s=10.0)
        daemon.run()
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])
    for _ in range(9):
        slurm.advance(60.0, step_s=10.0)
        daemon.run()
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0, 1, 2], [0, 1, 2])
    key = ServiceKey("alice", "answers")
    assert "run as those of any array" in daemon.cycles._context.services.statuses[key].reason
    live(slurm, daemon, router, 70)
    assert len(slurm.running(CPU) + slurm.running(GPU)) == 1, "it reports again"
