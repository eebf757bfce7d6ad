"""sodad lives but completes no cycle: its lifts end all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurm_soda.daemon.cycle.plan_execution import PlanExecutor
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]
SILENT_S = 3 * 35.0
"""Three leases."""


def lifted(slurm: FakeSlurm) -> None:
    """Job 1 fills the node; 2 was first and 3 has the higher priority."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=4)
    slurm.tick()
    slurm.submit(3, gpus=4, priority=500)


def live(sodad: Daemon, seconds: float, every_s: float = 5.0) -> None:
    """Failing cycles."""
    for _ in range(round(seconds / every_s)):
        sodad.slurm.advance(every_s)
        assert sodad.run().error


def factors(slurm: FakeSlurm) -> dict[int, int]:
    return {job_id: job.site_factor for job_id, job in slurm.all.items() if job.site_factor}


def test_they_end_after_some_leases_without_a_complete_cycle(slurm: FakeSlurm, daemon: Start) -> None:
    lifted(slurm)
    sodad = daemon()
    sodad.run()
    before = factors(slurm)
    assert list(before) == [2]
    slurm.silent = {"nodes"}
    live(sodad, SILENT_S - 5)
    assert factors(slurm) == before, "cycles fail now and then"
    live(sodad, 10)
    assert factors(slurm) == {}
    (ended,) = sodad.actions("release")
    assert (ended.job_id, ended.state, ended.new, ended.epoch_id) == (2, "done", {"SiteFactor": "0"}, 1)
    assert "no cycle was complete for 105 s" in ended.reason
    assert "lifts are taken back until a cycle is complete again" in sodad.last_cycle().error
    slurm.all[2].site_factor = 7  # by a change that was on its way
    live(sodad, 40)
    assert factors(slurm) == {}
    slurm.silent = set()
    slurm.advance(61)
    assert not sodad.run().error
    assert list(factors(slurm)) == [2]


def test_a_lift_that_slurm_does_not_tell_ends_too(slurm: FakeSlurm, daemon: Start) -> None:
    lifted(slurm)
    sodad = daemon()
    sodad.run()
    slurm.all[2].reason = "JobHeldUser"
    slurm.silent = {"nodes"}
    live(sodad, SILENT_S + 5)
    assert factors(slurm) == {}


def test_one_that_observes_leaves_site_factors_alone(slurm: FakeSlurm, daemon: Start) -> None:
    lifted(slurm)
    slurm.all[3].site_factor = 77
    sodad = daemon(mode="observe")
    sodad.run()
    slurm.silent = {"nodes"}
    live(sodad, SILENT_S + 40)
    assert factors(slurm) == {3: 77}


def test_one_that_enforces_with_a_new_store_takes_back_what_no_record_explains(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=1).site_factor = 9000
    slurm.submit(3, gpus=0).site_factor = 9000
    sodad = daemon()
    sodad.run()
    assert factors(slurm) == {}


def test_what_slurm_refuses_is_said_and_tried_again(slurm: FakeSlurm, daemon: Start) -> None:
    lifted(slurm)
    sodad = daemon()
    sodad.run()
    slurm.silent = {"nodes", "update"}
    live(sodad, SILENT_S + 5)
    assert "Slurm did not take 1 of 1 lifts back" in sodad.last_cycle().error
    slurm.silent = {"nodes"}
    live(sodad, 40)
    assert factors(slurm) == {}


def test_what_the_change_limits_hold_back_is_said_and_sent_in_the_next_cycle(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(change_limits={"min_change_interval_s": 0.0, "max_changes_per_cycle": 2})
    sodad.run()
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.silent = {"nodes"}
    live(sodad, SILENT_S - 5)
    for job_id in range(2, 7):
        slurm.submit(job_id, gpus=1).site_factor = 9000
    left = []
    for _ in range(4):
        live(sodad, 5)
        left.append(len(factors(slurm)))
        if left[-1] == 3:
            assert "3 of 5 lifts are left for the next cycle" in sodad.last_cycle().error
    assert sorted(set(left) - {5}, reverse=True) == [3, 1, 0]
    assert "left" not in sodad.last_cycle().error


def test_whatever_goes_wrong_there_does_not_end_sodad(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifted(slurm)
    sodad = daemon()
    sodad.run()
    slurm.silent = {"nodes"}

    def fail(*_args: object, **_more: object) -> None:
        raise KeyError(2)

    with monkeypatch.context() as patched:
        patched.setattr(PlanExecutor, "send_outside_plan", fail)
        live(sodad, SILENT_S + 5)
    live(sodad, 40)
    assert factors(slurm) == {}
