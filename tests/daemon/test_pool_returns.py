"""Where aborted jobs are sent back to when Slurm refuses, says nothing, or nobody can read it; and out of it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.pools.refused_updates import FIRST_PAUSE_S, RefusedPoolUpdates
from slurm_soda.policies.pools.stages.in_force import SAME_LIST
from slurm_soda.slurm_ext.write.job_changes import release_changes
from slurm_soda.slurm_ext.write.lifts import PRIORITY_SPACING
from slurm_soda.slurm_ext.write.sending import apply_changes
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon
from tests.daemon.pool_slurm import BOTH, LEND, OWN, PoolSlurm
from tests.daemon.test_pool_aborts import returns, run_in, start


@pytest.fixture
def slurm() -> PoolSlurm:
    return PoolSlurm(FakeClock())


def aborted(slurm: PoolSlurm, path: Path, max_aborts: int = 1, **more: Any) -> Daemon:
    """A daemon that has seen the run of a job that was aborted a moment ago."""
    slurm.submit_cpu(1, **more)
    sodad = start(slurm, path, pools={"max_aborts": max_aborts})
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    return sodad


def look(slurm: PoolSlurm, sodad: Daemon, seconds: int) -> None:
    """Cycle after cycle while nothing starts."""
    for _ in range(seconds):
        slurm.clock.at_s += 1
        sodad.run()


@pytest.mark.parametrize(
    ("more", "partitions"),
    [
        ({}, OWN),
        ({"cpus": 16}, OWN),
        ({"cpus": 17}, "main"),
        ({"least_cpus": 17}, "main"),
        ({"peculiar": "--exclusive"}, "main"),
    ],
)
def test_a_job_that_borrows_no_more_goes_where_all_of_its_request_fits(
    slurm: PoolSlurm, fresh_store: Path, more: dict[str, Any], partitions: str
) -> None:
    sodad = aborted(slurm, fresh_store, **more)
    look(slurm, sodad, 5)
    assert slurm.lists[1] == partitions
    assert slurm.calls.count("request") == 1
    assert slurm.all[1].reason != "BeginTime"


def test_it_borrows_no_more_even_where_the_base_has_no_node_now(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.bases = ()
    sodad = aborted(slurm, fresh_store, cpus=20)
    look(slurm, sodad, 5)
    assert slurm.lists[1] == "main"


def test_a_request_that_cannot_be_read_goes_to_the_base(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.odd.add(1)
    sodad = aborted(slurm, fresh_store)
    look(slurm, sodad, 5)
    assert slurm.lists[1] == "main"


def test_a_list_without_a_place_to_borrow_is_left_as_it_is(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = aborted(slurm, fresh_store, cpus=20)
    slurm.lists[1] = OWN
    look(slurm, sodad, 5)
    assert not returns(sodad, 1)
    assert (slurm.lists[1], slurm.all[1].reason, slurm.calls.count("request")) == (OWN, "None", 0)


def test_while_slurm_does_not_tell_the_request_the_job_does_not_borrow_again(
    slurm: PoolSlurm, fresh_store: Path
) -> None:
    slurm.silent.add("request")
    sodad = aborted(slurm, fresh_store)
    look(slurm, sodad, 10)
    assert not returns(sodad, 1)
    assert slurm.all[1].reason == "BeginTime", "it is not sent off into the partition where it borrows"
    assert slurm.calls.count("request") <= 3
    slurm.silent.clear()
    look(slurm, sodad, 20)
    assert slurm.lists[1] == OWN


def test_a_refused_list_keeps_nobody_from_being_first_in_line(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.refused_lists.add(BOTH)
    sodad = aborted(slurm, fresh_store, max_aborts=3)
    slurm.submit_cpu(2, priority=500).reason = "Resources"
    look(slurm, sodad, 10)
    tried = [(action.state, "StartTime" in action.new) for action in sodad.actions("rewrite") if action.job_id == 1]
    assert tried == [("failed", True), ("done", True)]
    assert "Slurm refused" in sodad.actions("rewrite")[-1].reason
    assert slurm.all[1].reason != "BeginTime"
    first, second = (slurm.all[job_id].priority + slurm.all[job_id].site_factor for job_id in (1, 2))
    assert first > second > 400
    slurm.refused_lists.clear()
    look(slurm, sodad, int(FIRST_PAUSE_S))
    assert slurm.lists[1] == BOTH, "asked for again after the pause"


def test_where_its_own_pool_is_refused_the_base_is_next(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.refused_lists.add(OWN)
    sodad = aborted(slurm, fresh_store)
    look(slurm, sodad, 6)
    assert slurm.lists[1] == "main"
    assert [action.state for action in returns(sodad, 1)] == ["failed", "done"]


def test_where_everything_is_refused_it_is_first_in_line_as_it_is(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.refused_lists |= {OWN, "main"}
    sodad = aborted(slurm, fresh_store)
    look(slurm, sodad, 12)
    states = [action.state for action in sodad.actions("rewrite")]
    assert states == ["failed", "failed", "done"]
    assert slurm.all[1].reason != "BeginTime"


def test_a_place_in_line_that_slurm_refuses_is_not_asked_for_each_second(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.refuses_start = True
    sodad = aborted(slurm, fresh_store, max_aborts=3)
    look(slurm, sodad, 30)
    assert ["Partition" in action.new for action in sodad.actions("rewrite")] == [True, False]


@pytest.mark.parametrize(("mode", "soon"), [("enforce", True), ("advise", False), ("observe", False)])
def test_only_who_acts_looks_again_soon(slurm: PoolSlurm, fresh_store: Path, mode: str, soon: bool) -> None:
    slurm.submit_cpu(1)
    sodad = start(slurm, fresh_store, mode=mode)
    run_in(slurm, 1, LEND)
    sodad.run()
    slurm.abort(1)
    assert (sodad.run().next_s < slurm.clock.at_s + 3) is soon


def test_while_slurm_does_not_tell_nobody_looks_every_moment(slurm: PoolSlurm, fresh_store: Path) -> None:
    slurm.silent.add("request")
    sodad = aborted(slurm, fresh_store)
    look(slurm, sodad, 4)
    assert sodad.run().next_s > slurm.clock.at_s + 5


def test_refusals_are_remembered_longer_each_time() -> None:
    refusals, tries, now_s = RefusedPoolUpdates(), [], 0.0
    refusals.note(1, {"SiteFactor": "7"}, now_s)
    while now_s < 3600.0:
        if OWN not in refusals.standing(1, now_s):
            tries.append(now_s)
            refusals.note(1, {"Partition": OWN, "StartTime": "now"}, now_s)
        now_s += 1.0
    assert tries == [0.0, 60.0, 180.0, 420.0, 900.0, 1860.0]
    assert BOTH not in refusals.standing(1, now_s)
    assert SAME_LIST not in refusals.standing(1, now_s)
    refusals.keep({2})
    assert OWN not in refusals.standing(1, now_s)


def test_release_all_takes_the_place_in_line_back(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = aborted(slurm, fresh_store, max_aborts=3)
    slurm.submit_cpu(2, priority=500).reason = "Resources"
    look(slurm, sodad, 4)
    assert slurm.all[1].site_factor > 0
    apply_changes(slurm, release_changes(slurm.jobs(), slurm.site_factors()))
    assert slurm.all[1].site_factor == 0


def test_release_all_also_knows_it_before_slurm_tells(slurm: PoolSlurm, fresh_store: Path) -> None:
    sodad = aborted(slurm, fresh_store, max_aborts=3)
    look(slurm, sodad, 4)
    slurm.advance(3)
    slurm.abort(1)
    jobs = slurm.jobs()
    assert jobs[0].reason == "BeginTime"
    apply_changes(slurm, release_changes(jobs, {}))
    assert slurm.all[1].site_factor == 0


def test_no_job_goes_higher_than_just_above_its_pool(slurm: PoolSlurm, fresh_store: Path) -> None:
    for job_id in range(1, 8):
        slurm.submit_cpu(job_id, cpus=1)
    top = slurm.submit_cpu(9, cpus=1)
    sodad = start(slurm, fresh_store)
    for job_id in range(1, 8):
        slurm.start_in(job_id, LEND)
    slurm.tick()
    sodad.run()
    top.state, top.reason, top.priority = "PENDING", "Resources", 999_999_998
    for job_id in range(1, 8):
        slurm.abort(job_id)
    look(slurm, sodad, 4)
    sent = [int(action.new["SiteFactor"]) for action in sodad.actions("rewrite")]
    assert len(sent) == 7
    assert 999_999_998 < max(sent) <= 999_999_998 + 7 * PRIORITY_SPACING
