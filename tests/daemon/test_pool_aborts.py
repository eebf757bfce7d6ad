"""sodad and jobs that Slurm aborts because they borrowed: recognised, counted once, first in line again, never for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.store.jobs.pool_runs import pool_logs
from slurm_soda.daemon.store.tables.pools import PoolRunRow
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, KilledError, Killer, settings
from tests.daemon.pool_slurm import BOTH, LEND, NODE, OWN, PoolSlurm, put_in_force, table
from tests.sampling import some


@pytest.fixture
def slurm() -> PoolSlurm:
    return PoolSlurm(FakeClock())


def start(slurm: PoolSlurm, path: Path, killer: Killer | None = None, **more: Any) -> Daemon:
    put_in_force(table(), path)
    return Daemon(slurm, path, settings(policy={"name": "drf"}, state_dir=str(path), **more), killer)


def run_in(slurm: PoolSlurm, job_id: int, partition: str) -> None:
    slurm.start_in(job_id, partition)
    slurm.advance(3)
    assert slurm.all[job_id].state == "RUNNING"


def returns(sodad: Daemon, job_id: int) -> list[Action]:
    return [a for a in sodad.actions("rewrite") if a.job_id == job_id and "Partition" in a.new]


def tenancies(sodad: Daemon, job_id: int) -> list[PoolRunRow]:
    return [row for row in sodad.rows(PoolRunRow) if row.job_id == job_id]


def test_an_aborted_job_is_first_in_line_again(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    sodad.run()
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    for job_id in (2, 3):
        slurm.submit_cpu(job_id).reason = "Resources"
        slurm.all[job_id].eligible_s = slurm.clock.at_s
    report = sodad.run()
    assert not returns(sodad, 1), "a new start within two seconds would fail"
    assert report.next_s <= slurm.clock.at_s + 2.5
    slurm.clock.at_s += 2.5
    sodad.run()
    (action,) = returns(sodad, 1)
    assert action.new["Partition"] == BOTH
    assert action.new["StartTime"] == "now"
    assert action.old["Partition"] == f"{LEND},{OWN}"
    assert (action.state, "aborted 1 of at most 3 times" in action.reason) == ("done", True)
    waiting = {j.job_id: j.priority for j in slurm.jobs() if j.state == "PENDING"}
    assert max(waiting, key=lambda job_id: waiting[job_id]) == 1
    sodad.run()
    assert len(returns(sodad, 1)) == 1, "nothing is sent twice"
    assert sodad.job(1).preemptions == 1


def test_after_so_many_aborts_a_job_borrows_no_more(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    for _ in range(3):
        sodad.run()
        run_in(slurm, 1, LEND)
        sodad.run()
        slurm.abort(1)
        sodad.follow(4)
    assert slurm.lists[1] == OWN
    assert sum(row.aborted for row in tenancies(sodad, 1)) == 3
    assert "borrows no more" in returns(sodad, 1)[-1].reason


def test_a_job_that_its_own_pool_cannot_hold_goes_to_the_site_s_partition(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1, cpus=20)
    sodad = start(slurm, fresh_store, pools={"max_aborts": 1})
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    sodad.follow(4)
    assert slurm.lists[1] == "main"


@pytest.mark.parametrize(("shares", "verdict"), [({}, "wait"), ({NODE: PoolShare(16, 0)}, "start")])
def test_coda_shares_nodes_out_as_the_pools_in_force_do(
    slurm: PoolSlurm, fresh_store: Path, shares: dict[NodeClass, PoolShare], verdict: str
) -> None:
    put_in_force(table(), fresh_store, shares)
    sodad = Daemon(slurm, fresh_store, settings(policy={"name": "coda"}, state_dir=str(fresh_store)))
    slurm.submit_cpu(1, cpus=6, partitions=OWN)
    slurm.advance(1)
    slurm.submit_cpu(2, cpus=6, partitions=OWN)
    sodad.run()
    assert sodad.job(2).note["verdict"] == verdict


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_without_enforcing_aborts_are_counted_and_nothing_is_sent(
    slurm: PoolSlurm, fresh_store: Path, mode: str
) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store, mode=mode)
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    sodad.follow(5)
    sodad.run()  # accounting has told
    assert not sodad.actions()
    assert [row.aborted for row in tenancies(sodad, 1)] == [True]


def test_an_abort_is_recognised_by_the_next_life(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1)
    first = start(slurm, fresh_store)
    run_in(slurm, 1, LEND)
    first.run()
    slurm.abort(1)  # nobody looks
    slurm.advance(5)
    second = start(slurm, fresh_store)
    second.follow(4)
    assert next((row.restart, row.aborted) for row in tenancies(second, 1)) == (0, True)
    third = start(slurm, fresh_store)
    third.follow(3)
    assert sum(row.aborted for row in tenancies(third, 1)) == 1
    assert third.job(1).preemptions == 1


def test_an_abort_that_nobody_saw_begin_is_told_by_the_list(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1)
    run_in(slurm, 1, LEND)
    slurm.abort(1)
    sodad = start(slurm, fresh_store)
    sodad.run()
    sodad.run()  # accounting has told
    (row,) = tenancies(sodad, 1)
    assert (row.restart, row.partition, row.aborted, row.start_s) == (0, LEND, True, None)


def test_a_run_before_the_pools_is_no_abort(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1, partitions="main")
    sodad = start(slurm, fresh_store)
    run_in(slurm, 1, "main")
    sodad.run()
    slurm.abort(1)
    slurm.lists[1] = LEND  # an admin moved it
    sodad.follow(3)
    assert not tenancies(sodad, 1)
    assert not returns(sodad, 1)


def test_a_job_requeued_from_its_own_pool_is_left_alone(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    run_in(slurm, 1, OWN)
    sodad.run()
    slurm.abort(1)
    sodad.follow(4)
    assert not returns(sodad, 1)
    assert [row.aborted for row in tenancies(sodad, 1)] == [False]


def play(path: Path, kill_at: int) -> tuple[Daemon, PoolSlurm, int]:
    """Two aborts with one death of the daemon on the way."""
    slurm, killer = PoolSlurm(FakeClock()), Killer(kill_at)
    slurm.submit_cpu(1)
    sodad, passed = start(slurm, path, killer), 0
    for turn in range(11):
        try:
            sodad.run()
        except KilledError:
            passed = killer.passed
            slurm.clock.at_s += 1
            sodad = start(slurm, path)
        if turn in (1, 6):
            run_in(slurm, 1, LEND)
            slurm.abort(1)
        else:
            slurm.clock.at_s += 1
    return sodad, slurm, passed or killer.passed


def test_killed_at_any_point_every_abort_counts_once(tmp_path: Path, made_store: Path) -> None:
    points = play(_store(tmp_path / "whole", made_store), -1)[2]
    assert points > 20
    # Points come in threes and eights (transactions, cycles): a step of five meets all kinds.
    for at in some(range(1, points - 8, 5), 4):
        sodad, slurm, _ = play(_store(tmp_path / str(at), made_store), at)
        rows = tenancies(sodad, 1)
        assert [(row.restart, row.aborted) for row in rows if row.aborted] == [(0, True), (1, True)], at
        assert sodad.job(1).preemptions == 2, at
        assert slurm.lists[1] == BOTH, at
        assert {action.state for action in sodad.actions()} <= {"done", "void"}, at


def _store(path: Path, made: Path) -> Path:
    path.mkdir()
    (path / "soda.db").write_bytes(made.read_bytes())
    return path


def test_the_log_of_a_pool(slurm: PoolSlurm, fresh_store: Path) -> None:
    began_s = slurm.clock.at_s
    slurm.submit_cpu(1, cpus=4)
    slurm.submit_cpu(2, cpus=8)
    sodad = start(slurm, fresh_store)
    sodad.run()
    slurm.start_in(1, LEND)
    slurm.start_in(2, OWN)
    slurm.advance(1)
    sodad.run()
    slurm.advance(10)
    slurm.abort(1)
    sodad.run()
    sodad.run()  # accounting has told
    with sodad.store.read() as session:
        (found,) = pool_logs(session, since_s=began_s - 10, now_s=slurm.clock.at_s)
    assert (found.base, found.kind, found.runs, found.running) == ("main", "cpu", 2, 1)
    assert (found.aborts, found.most_aborts) == (1, 1)
    assert found.borrowed_core_s == pytest.approx(4 * 11, abs=8)
    assert found.core_s - found.borrowed_core_s == pytest.approx(8 * 11, abs=16)
