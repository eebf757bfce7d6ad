"""Why a run on borrowed cores ended: only accounting tells Slurm's own requeue from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.daemon.pools.pool_runs import EXPLAINED_WITHIN_S, PoolRunTracker
from slurm_soda.daemon.store.jobs.pool_runs import PoolRun
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.pool_slurm import LEND, PoolSlurm
from tests.daemon.test_pool_aborts import returns, run_in, start, tenancies


@pytest.fixture
def slurm() -> PoolSlurm:
    return PoolSlurm(FakeClock())


@pytest.mark.parametrize("how", ["REQUEUED", "NODE_FAIL"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_requeue_by_its_owner_or_a_lost_node_aborts_nobody(
    slurm: PoolSlurm, fresh_store: Path, how: str, seen: bool
) -> None:
    """slurmctld shows the same for them: an owner could requeue himself to the head of the queue, and out of preemption."""
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    if seen:
        sodad.run()
    run_in(slurm, 1, LEND)
    if seen:
        sodad.run()
    slurm.abort(1, how)
    for job_id in (2, 3):
        slurm.submit_cpu(job_id).reason = "Resources"
    sodad.follow(6)
    assert [row.aborted for row in tenancies(sodad, 1)] == [False]
    assert not returns(sodad, 1)
    assert slurm.all[1].reason == "BeginTime"
    assert sodad.job(1).preemptions == 0
    assert slurm.calls.count("sacct") == 1


def test_while_accounting_does_not_tell_nobody_is_aborted_and_later_it_counts_once(
    slurm: PoolSlurm, fresh_store: Path
) -> None:
    slurm.silent.add("sacct")
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    sodad.follow(4)
    assert (returns(sodad, 1), sodad.job(1).preemptions) == ([], 0)
    slurm.silent.clear()
    for _ in range(3):
        sodad.follow(4)
    assert [row.aborted for row in tenancies(sodad, 1) if row.end_s is not None] == [True]
    assert (len(returns(sodad, 1)), sodad.job(1).preemptions) == (1, 1)


def test_accounting_that_does_not_know_of_the_end_is_asked_again_but_not_for_ever(
    slurm: PoolSlurm, fresh_store: Path
) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store)
    run_in(slurm, 1, LEND)
    sodad.run()
    running, asked = slurm.sacct([1]), list[Sequence[int]]()

    def sacct(job_ids: Sequence[int]) -> list[JobAccounting]:
        asked.append(job_ids)
        return running

    slurm.abort(1)
    slurm.accounting = sacct
    slurm.all[1].eligible_s += 2 * EXPLAINED_WITHIN_S
    sodad = start(slurm, fresh_store)
    for at_s, asks in ((0.0, True), (EXPLAINED_WITHIN_S, False)):
        slurm.clock.at_s += at_s
        asked.clear()
        for _ in range(3):
            sodad.run()
        assert bool(asked[1:]) is asks
    assert [row.aborted for row in tenancies(sodad, 1)] == [False]


def test_accounting_of_an_earlier_job_of_the_same_id_explains_nothing() -> None:
    run = PoolRun(1, 1000.0, 0, "alice", "main", "cpu", LEND, True, 0, 4, start_s=1000.0, end_s=1050.0)
    runs = PoolRunTracker()
    runs.adopt([run])
    earlier = RunAccounting(100.0, 900.0, "PREEMPTED", "0:0", 0.0, 0.0, 0, 4, 1, "n1", 0)
    for told, aborted in ((earlier, []), (replace(earlier, end_s=1049.0), [1]), (replace(earlier, end_s=1049.0), [])):
        assert runs.explain([JobAccounting(1, "alice", 0.0, "PENDING", "0:0", (told,))]) == aborted
