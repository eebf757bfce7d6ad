"""Somebody sets the wall clock by hours, at any moment: what lasts is neither cut short nor frozen by that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import update

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.preemptions import load_preemptions
from slurm_soda.daemon.store.tables.scheduling import Action, Preemption
from tests.daemon.fake_slurm import FakeJob, FakeSlurm
from tests.daemon.harness import Daemon
from tests.sampling import examples

HOURS_S = st.floats(-12 * 3600.0, 12 * 3600.0)
GRACE_S = 30


def preempting(slurm: FakeSlurm, daemon: Callable[..., Daemon], on_signal: str = "ignore") -> tuple[Daemon, FakeJob]:
    """A daemon that has just told a job to save its state, for another job."""
    slurm.all.clear()
    host = slurm.submit(1, gpus=4, work_s=1e9, checkpoint="USR1", grace_s=GRACE_S, on_signal=on_signal)
    slurm.tick()
    sodad = daemon()
    sodad.follow(40)
    slurm.submit(2, gpus=4, work_s=20.0)
    for _ in range(90):
        sodad.run()
        if host.signals:
            return sodad, host
        slurm.advance(1.0)
    raise AssertionError("no job was told to save its state")


@given(st.lists(st.tuples(st.integers(0, 60), HOURS_S), max_size=4))
@hypothesis_settings(
    max_examples=examples(2),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_a_grace_lasts_as_long_as_it_was_given(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], steps: list[tuple[int, float]]
) -> None:
    slurm.clock.set_by_s = 0.0
    sodad, host = preempting(slurm, daemon)
    began_s, restarts, left_s = slurm.clock.elapsed_s(), host.restarts, float("nan")
    for second in range(120):
        step_s = sum(by_s for at, by_s in steps if at == second)
        slurm.clock.set_by_s += step_s
        if left_s != left_s or step_s or second % 5 == 0:  # every second counts until it has left, and at each step
            report = sodad.run()
            assert not report.error
            assert report.pause_s <= 10.0
        if host.restarts > restarts and left_s != left_s:
            left_s = slurm.clock.elapsed_s() - began_s
        slurm.advance(1.0)
    assert GRACE_S <= left_s <= GRACE_S + 2
    # It competes again as soon as the other one has started, whenever Slurm believes that it was requeued.
    assert host.reason != "BeginTime"
    sodad.store.close()


@pytest.mark.parametrize("by_s", [-7200.0, 7200.0])
def test_a_job_that_ends_by_our_signal_is_requeued(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], by_s: float
) -> None:
    sodad, host = preempting(slurm, daemon)
    slurm.clock.set_by_s = by_s
    slurm.advance(3)
    slurm._finish(host, "FAILED", "3:0", slurm.clock.now_s())
    sodad.run()
    assert host.restarts == 1


@pytest.mark.parametrize("by_s", [-7200.0, 7200.0])
def test_the_store_is_read_again_without_losing_the_grace(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sodad, host = preempting(slurm, daemon)
    slurm.clock.set_by_s = by_s
    with monkeypatch.context() as patch:
        patch.setattr(slurm, "jobs", lambda: 1 / 0)
        assert "ZeroDivisionError" in sodad.run().error
    sodad.follow(GRACE_S - 5)
    assert host.restarts == 0
    sodad.follow(10)
    assert host.restarts == 1


def test_after_a_mistake_the_stores_word_counts(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cycle that ended half-way left in memory may be wrong: a preemption that is over there is begun anew."""
    sodad, host = preempting(slurm, daemon)
    sodad.follow(GRACE_S / 2, every_s=5.0)
    with sodad.store.write() as session:
        session.execute(update(Preemption).values(phase="lost"))
    with monkeypatch.context() as patch:
        patch.setattr(slurm, "jobs", lambda: 1 / 0)
        assert "ZeroDivisionError" in sodad.run().error
    sodad.follow(GRACE_S / 2 + 10, every_s=5.0)
    assert host.restarts == 0


def test_a_restarted_daemon_prolongs_no_grace(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    """It waits for the rest; where the clock was set back meanwhile, for no longer than the whole."""
    sodad, _ = preempting(slurm, daemon)
    for advance_s, set_by_s, longest_s in ((GRACE_S / 2, 0.0, GRACE_S / 2), (5.0, -7200.0, GRACE_S)):
        slurm.clock.set_by_s = set_by_s
        slurm.advance(advance_s)
        with sodad.store.read() as session:
            at = Instant.read(slurm.clock)
            (found,) = load_preemptions(session, at)
        assert longest_s - 6 <= found.deadline_s - at.steady_s <= longest_s


@pytest.mark.parametrize("by_s", [-7200.0, 7200.0])
def test_an_open_breaker_closes_after_its_pause(slurm: FakeSlurm, daemon: Callable[..., Daemon], by_s: float) -> None:
    sodad = daemon(change_limits={"breaker_failures": 2, "breaker_pause_s": 60.0, "min_change_interval_s": 0.0})
    slurm.down = True
    for _ in range(2):
        sodad.run()
    slurm.down = False
    slurm.clock.set_by_s = by_s
    slurm.advance(30)
    assert not sodad.run().acts
    facts = sodad.last_cycle().facts
    assert facts["breaker_open_until_s"] - slurm.clock.now_s() == pytest.approx(30.0, abs=1.0)
    slurm.advance(31)
    assert sodad.run().acts


@pytest.mark.parametrize("by_s", [-7200.0, 7200.0])
def test_a_job_may_be_changed_again_after_the_interval(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], by_s: float
) -> None:
    interval_s = 20.0
    sodad = daemon(change_limits={"min_change_interval_s": interval_s})
    # Two jobs wait; the one behind is lifted. Somebody takes the lift away, so that it is due again.
    host = slurm.submit(1, gpus=4, work_s=1e9)
    slurm.tick()
    sodad.follow(40)
    behind = slurm.submit(9, gpus=4, work_s=50.0)
    host.state, host.reason, host.restarts, host.submit_s = "PENDING", "Priority", 1, slurm.clock.now_s()
    slurm.submit(5, gpus=4, work_s=1e9, checkpoint=None)
    slurm.all[5].state, slurm.all[5].start_s = "RUNNING", slurm.clock.now_s()
    sodad.run()
    assert behind.site_factor > 0
    behind.site_factor, slurm.clock.set_by_s = 0, by_s
    sodad.run()
    assert behind.site_factor == 0
    slurm.advance(interval_s + 1)
    sodad.run()
    assert behind.site_factor > 0
    assert len([row for row in sodad.actions("order") if isinstance(row, Action) and row.job_id == 9]) == 2


def test_accounting_is_asked_after_the_clock_was_set_back() -> None:
    asked: list[int] = []

    class Cache:
        jobs: Mapping[int, CachedJob] = MappingProxyType({})

        def unaccounted(self, listed: set[int]) -> list[CachedJob]:
            ended = CachedJob(7, 0.0)
            ended.end_s = 9000.0
            return [ended]

    def ask(job_ids: object) -> list[object]:
        asked.append(1)
        return []

    lookup = AccountingLookup(ask, 5.0)  # type: ignore[arg-type]
    for steady_s in (100.0, 103.0, 106.0):
        lookup.step(Cache(), set(), Instant(1800.0 + steady_s, steady_s))  # type: ignore[arg-type]
        if lookup._asked is not None:
            lookup._asked.result()
    lookup.close()
    assert len(asked) == 2


def test_an_instant_is_told_by_both_clocks() -> None:
    at = Instant(1000.0, 50.0)
    assert at.wall(60.0) == 1010.0
    assert at.steady_since(990.0, 30.0) == 40.0
    assert at.steady_since(2000.0, 30.0) == 50.0
    assert at.steady_since(0.0, 30.0) == 20.0
