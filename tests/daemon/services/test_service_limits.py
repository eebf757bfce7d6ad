"""Services within limits: of sodad on its changes, and of an array on the tasks that run at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.daemon.clock import Instant
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon
from tests.daemon.services.array_slurm import ArraySlurm
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad
from tests.daemon.services.service_site import report


def later(slurm: ArraySlurm, daemon: Daemon, *routers: Router, seconds: int) -> None:
    """A report of each router and a cycle every five seconds."""
    for _ in range(seconds // 5):
        for router in routers:
            router.report(daemon)
        daemon.run()
        slurm.advance(5)


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
    later(slurm, daemon, router, seconds=30)
    assert len(slurm.running(CPU)) == 2
    sent = slurm.updates
    later(slurm, daemon, router, seconds=60)
    assert (len(slurm.running(CPU)), slurm.updates <= sent + 4) == (2, True)
    for limit, runs in ((3, 3), (1, 3)):  # what runs stays
        slurm.array_limits = {CPU: limit}
        later(slurm, daemon, router, seconds=30)
        assert len(slurm.running(CPU)) == runs
    slurm.array_limits = {}
    later(slurm, daemon, router, seconds=30)
    assert len(slurm.running(CPU)) == 4, "its owner took the limit away"
    asked = slurm.calls.count("array_throttles")
    later(slurm, daemon, router, seconds=30)
    assert slurm.calls.count("array_throttles") == asked, "nothing limits it now"


def test_without_slurms_word_on_a_limit_it_is_tried_again_after_a_while(fresh_store: Path) -> None:
    slurm = ArraySlurm(FakeClock())
    slurm.submit_array(CPU, 8, begin_s=60.0)
    slurm.array_limits = {CPU: 2}
    slurm.silent = {"array_throttles"}
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=60.0)
    later(slurm, daemon, router, seconds=30)
    slurm.array_limits = {}
    for seconds, runs in ((300, 2), (330, 4)):
        later(slurm, daemon, router, seconds=seconds)
        assert len(slurm.running(CPU)) == runs


def test_tasks_that_accounting_does_not_let_start_take_no_cores_from_other_services(fresh_store: Path) -> None:
    """28 cores: alice's service wants 20 of them and gets 2 by her account, so that those that bob's needs are there."""
    slurm = ArraySlurm(FakeClock())
    slurm.submit_array(CPU, 20, begin_s=60.0)
    slurm.submit_array(300, 12, user="bob", begin_s=60.0)
    slurm.submit_array(400, 1, user="bob", gpus=1, begin_s=60.0)
    slurm.account_limits = {CPU: 2}
    daemon = sodad(slurm, fresh_store)
    hers, his = Router(slurm, load_qps=320.0, most=20), Router(slurm, load_qps=160.0, owner="bob", most=12)
    later(slurm, daemon, hers, his, seconds=80)
    assert (len(slurm.running(CPU)), len(slurm.running(300)), slurm.running(400)) == (2, 10, [])


def test_a_limit_of_accounting_that_is_gone_is_found_gone(fresh_store: Path) -> None:
    slurm = cluster(tasks=8)
    slurm.account_limits = {CPU: 1}
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=50.0)
    later(slurm, daemon, router, seconds=60)
    assert len(slurm.running(GPU)) == 1, "what cannot run on cores runs on a GPU"
    sent = slurm.updates
    later(slurm, daemon, router, seconds=60)
    assert slurm.updates <= sent + 4, "nothing goes to and fro"
    slurm.account_limits = {}
    later(slurm, daemon, router, seconds=600)
    assert (len(slurm.running(CPU)), slurm.running(GPU)) == (4, [])
