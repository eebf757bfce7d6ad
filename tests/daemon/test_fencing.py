"""A daemon that lost its epoch or its lease in the middle of a batch sends at most the chunk that is under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle import plan_execution
from slurm_soda.daemon.cycle.epoch import DaemonEpoch, SupersededError, begin_epoch
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult
from slurm_soda.slurm_ext.write.job_changes import JobChange
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]

JOBS = range(2, 182)


@pytest.fixture
def sodad(slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """A daemon with 180 jobs to lift in one cycle."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    for job_id in JOBS:
        slurm.submit(job_id)

    def lift_all(*_: object, **__: object) -> list[JobChange]:
        lifted = [i for i in JOBS if not slurm.all[i].site_factor]
        return [JobChange(i, "order", {"SiteFactor": "7"}, {"SiteFactor": "0"}, "test") for i in lifted]

    monkeypatch.setattr(plan_execution, "order_changes", lift_all)
    return daemon()


def during_first_chunk(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object]) -> None:
    """Let something happen while the first updates are on their way."""
    send = slurm.update

    def update(updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        monkeypatch.setattr(slurm, "update", send)
        answers = send(updates)
        happen()
        return answers

    monkeypatch.setattr(slurm, "update", update)


def lifted(slurm: FakeSlurm) -> int:
    return sum(job.site_factor != 0 for job in slurm.all.values())


def test_a_batch_without_a_successor_is_sent_whole(slurm: FakeSlurm, sodad: Daemon) -> None:
    assert sodad.run().sent == lifted(slurm) == len(JOBS)


def test_a_successor_in_the_middle_of_a_batch_ends_it(
    slurm: FakeSlurm, sodad: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_first_chunk(
        slurm,
        monkeypatch,
        lambda: begin_epoch(sodad.store, host="h", pid=2, version="0", now_s=slurm.clock.now_s()),
    )
    with pytest.raises(SupersededError, match="superseded by epoch 2"):
        sodad.run()
    assert 0 < lifted(slurm) <= 50
    assert {action.state for action in sodad.actions()} == {"intended"}, "the successor finds out what became of them"


def test_a_pause_longer_than_the_lease_ends_the_batch(
    slurm: FakeSlurm, sodad: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took the lifts back meanwhile may not have been able to write to the store."""
    during_first_chunk(slurm, monkeypatch, lambda: slurm.advance(61, step_s=61))
    assert "without a heartbeat" in sodad.run().error
    assert 0 < lifted(slurm) <= 50
    assert sodad.run().error == "", "the next cycle begins anew, from what Slurm then shows"
    assert lifted(slurm) == len(JOBS)


def test_a_pause_between_decision_and_record_sends_nothing(
    slurm: FakeSlurm, sodad: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = slurm.site_factors

    def site_factors() -> dict[int, int]:
        monkeypatch.setattr(slurm, "site_factors", read)
        slurm.advance(61, step_s=61)
        return read()

    monkeypatch.setattr(slurm, "site_factors", site_factors)
    assert "without a heartbeat" in sodad.run().error
    assert lifted(slurm) == 0


def test_a_long_batch_keeps_its_own_lease(slurm: FakeSlurm, sodad: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    send = slurm.update

    def slow(updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        slurm.clock.at_s += 25
        return send(updates)

    monkeypatch.setattr(slurm, "update", slow)
    report = sodad.run()
    assert (report.error, lifted(slurm)) == ("", len(JOBS))


def test_a_store_that_was_long_in_answering_ends_the_batch(
    slurm: FakeSlurm, sodad: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = DaemonEpoch.check

    def late(self: DaemonEpoch, session: Session) -> None:
        check(self, session)
        if sodad.actions():
            slurm.clock.at_s += 61

    monkeypatch.setattr(DaemonEpoch, "check", late)
    assert "without a heartbeat" in sodad.run().error
    assert lifted(slurm) == 0
