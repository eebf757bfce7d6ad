"""Jobs that Slurm requeues into partitions which are being taken back do not wait there for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.pools.pools_record import PoolsPhase
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, settings
from tests.daemon.pool_slurm import BOTH, LEND, OWN, PoolSlurm, put_in_force, table
from tests.daemon.test_pool_aborts import run_in
from tests.daemon.test_pool_returns import look

OURS = (OWN, LEND)


@pytest.fixture
def slurm() -> PoolSlurm:
    return PoolSlurm(FakeClock())


def config(path: Path) -> Settings:
    return settings(policy={"name": "drf"}, state_dir=str(path))


def requeued(slurm: PoolSlurm, path: Path, partition: str, phase: PoolsPhase, left: PoolTable) -> Daemon:
    """A run ends in a partition that goes; sodad had seen it begin."""
    put_in_force(table(), path)
    slurm.submit_cpu(1)
    sodad = Daemon(slurm, path, config(path))
    run_in(slurm, 1, partition)
    sodad.run()
    put_in_force(left, path, phase=phase, sent=OURS)
    slurm.abort(1)
    return sodad


def without(partition: str) -> PoolTable:
    return PoolTable({part.name: part for part in table() if part.name != partition})


def test_an_aborted_job_goes_back_to_the_base_while_pools_are_reverted(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = requeued(slurm, fresh_store, LEND, "reverting", table())
    look(slurm, sodad, 4)
    assert (slurm.lists[1], slurm.all[1].reason) == ("main", "None")
    (action,) = sodad.actions("rewrite")
    assert action.old == {"Partition": f"{LEND},{OWN}"}
    look(slurm, sodad, 3)
    assert len(sodad.actions("rewrite")) == 1


def test_a_job_that_was_not_aborted_waits_as_long_as_slurm_wants(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = requeued(slurm, fresh_store, OWN, "reverting", table())
    look(slurm, sodad, 4)
    assert (slurm.lists[1], slurm.all[1].reason) == ("main", "BeginTime")


def test_partitions_that_stay_are_kept(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = requeued(slurm, fresh_store, LEND, "applied", without(LEND))
    look(slurm, sodad, 4)
    assert (slurm.lists[1], slurm.all[1].reason) == (OWN, "None")


def test_a_list_of_nothing_else_becomes_the_base(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.submit_cpu(1, partitions=LEND)
    slurm.all[1].reason = "PartitionDown"
    put_in_force(without(LEND), fresh_store, phase="applied", sent=OURS)
    look(slurm, Daemon(slurm, fresh_store, config(fresh_store)), 2)
    assert slurm.lists[1] == "main"


def test_while_somebody_changes_pools_nothing_is_moved(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = requeued(slurm, fresh_store, OWN, "applying", without(OWN))
    look(slurm, sodad, 4)
    assert slurm.lists[1] == BOTH


def test_a_refused_move_is_not_tried_each_cycle(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.refused_lists.add("main")
    sodad = requeued(slurm, fresh_store, OWN, "reverting", table())
    look(slurm, sodad, 10)
    assert [action.state for action in sodad.actions("rewrite")] == ["failed"]
