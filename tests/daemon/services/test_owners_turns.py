"""Whose tasks are changed first where not all can be."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.daemon.services.owners_turns import take_turns
from tests.daemon.services.service_daemon import CPU, Router, cluster, live, sodad


def test_owners_take_turns_each_in_his_own_order() -> None:
    items = ["bob 1", "ann 1", "bob 2", "bob 3", "eve 1", "ann 2"]
    turns = take_turns(items, lambda one: one.split()[0])
    assert turns == ["ann 1", "bob 1", "eve 1", "ann 2", "bob 2", "bob 3"]
    assert take_turns([], str) == []


def test_one_with_many_tasks_keeps_neither_leases_nor_starts_from_others(fresh_store: Path) -> None:
    """All of alice's tasks are jobs of their own, and few changes may be sent: those of bob are among the first."""
    slurm = cluster(tasks=20)
    for task in slurm._all_tasks():
        task.apart = True
    slurm.submit_array(300, 3, user="bob", begin_s=60.0)
    limits = {"max_changes_per_cycle": 6}
    daemon = sodad(slurm, fresh_store, change_limits=limits)
    alice, bob = Router(slurm, load_qps=300.0, most=15), Router(slurm, load_qps=5.0, owner="bob")
    for _ in range(3):
        alice.report(daemon)
        live(slurm, daemon, bob, 1)
    assert slurm.running(300) == [0]
    assert all(task.eligible_s > slurm.clock.now_s() + 60.0 for task in slurm.tasks(300)[1:])
    assert [task for task in slurm.tasks(CPU) if task.eligible_s < slurm.clock.now_s() + 120.0], "alice's own wait yet"
