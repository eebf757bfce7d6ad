"""Services within limits: of sodad on its changes, and of an array on the tasks that run at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.daemon.clock import Instant
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.services.array_slurm import ArraySlurm
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad
from tests.daemon.services.service_site import report


def test_the_limit_on_changes_holds(fresh_store: Path) -> None:
    slurm = cluster()
    limits: dict[str, Any] = {"max_changes_per_cycle": 1, "min_change_interval_s": 0.0}
    daemon, router = sodad(slurm, fresh_store, change_limits=limits), Router(slurm, load_qps=5.0)
    router.report(daemon)
    for sent in (1, 2, 3):
        daemon.run()
        assert slurm.updates == sent
        slurm.advance(1)
    assert slurm.running(CPU) == [0]


def test_no_service_loses_its_leases_to_the_starts_of_another(fresh_store: Path) -> None:
    """Where the limit on changes is short, tasks are kept from starting first, those of all services."""
    slurm = ArraySlurm(FakeClock())
    slurm.submit_array(CPU, 9, begin_s=60.0)
    slurm.submit_array(300, 3, service="later", begin_s=60.0)
    limits: dict[str, Any] = {"max_changes_per_cycle": 2, "min_change_interval_s": 0.0}
    daemon, router = sodad(slurm, fresh_store, change_limits=limits), Router(slurm, least=8, most=8)
    router.report(daemon)
    daemon.cycles._context.services.take("alice", report(name="later", least=0), Instant.read(slurm.clock))
    daemon.run()
    assert {job.eligible_s % 60 for array in (CPU, 300) for job in slurm.tasks(array)} == {MARK_S}


def test_what_an_array_may_not_run_by_its_own_limit_runs_on_the_other_device(fresh_store: Path) -> None:
    """The load needs four instances on cores, of which the owner allows two (``--array=0-7%2``)."""
    slurm = cluster(tasks=8)
    slurm.array_limits = {CPU: 2}
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=60.0)
    live(slurm, daemon, router, 30)
    assert len(slurm.running(GPU)) == 1
    sent = slurm.updates
    live(slurm, daemon, router, 60)
    assert len(slurm.running(GPU)) == 1
    assert slurm.updates <= sent + 4, "nothing goes to and fro"


def test_an_array_at_its_own_limit_is_left_in_peace(fresh_store: Path) -> None:
    slurm = ArraySlurm(FakeClock())
    slurm.submit_array(CPU, 8, begin_s=60.0)
    slurm.array_limits = {CPU: 2}
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=60.0)
    live(slurm, daemon, router, 30)
    assert len(slurm.running(CPU)) == 2
    sent = slurm.updates
    live(slurm, daemon, router, 60)
    assert (len(slurm.running(CPU)), slurm.updates <= sent + 4) == (2, True)
    slurm.array_limits = {}
    live(slurm, daemon, router, 660)
    assert len(slurm.running(CPU)) == 4, "its owner took the limit away"
