"""What the store keeps, for how long, and how long others wait while it lets go of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.store_pruner import DAY_S, PRUNE_EVERY_S, StorePruner
from slurm_soda.daemon.store.retention import PRUNED_TABLES, ROWS_AT_A_TIME, find_old_rows
from slurm_soda.daemon.store.tables.cpu_fit import CpuMeasurementRow
from slurm_soda.daemon.store.tables.scheduling import Action, Cycle, Job, Preemption
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.sampling import examples

KEEP_DAYS = 90.0


def pruner(sodad: Daemon) -> StorePruner:
    return sodad.cycles._recorder.pruner


def prune(sodad: Daemon, clock: Any) -> None:
    """As many cycles as it takes."""
    for _ in PRUNED_TABLES:
        clock.at_s += PRUNE_EVERY_S
        pruner(sodad).step(KEEP_DAYS)


def action(number: int, at_s: float, **more: Any) -> dict[str, Any]:
    columns = {"job_id": number, "submit_s": at_s, "kind": "order", "state": "done", "created_s": at_s}
    return {"id": number, "new": {"SiteFactor": "5"}, "old": {"SiteFactor": "0"}, **columns, **more}


def kept(sodad: Daemon, table: Any) -> set[int]:
    with sodad.store.read() as session:
        return set(session.scalars(select(table.id)))


def write(sodad: Daemon, table: Any, *rows: dict[str, Any]) -> None:
    with sodad.store.write() as session:
        session.execute(insert(table), list(rows))


def cycle(number: int, at_s: float, sent: int) -> dict[str, Any]:
    return {"id": number, "epoch_id": 1, "started_s": at_s, "mode": "enforce", "policy": "p", "sent": sent}


def preemption(number: int, at_s: float, phase: str) -> dict[str, Any]:
    times = {"created_s": at_s, "deadline_s": at_s, "updated_s": at_s, "submit_s": at_s}
    return {"id": number, "job_id": number, "restart": 0, "phase": phase, **times}


def live_job(session: Session, job_id: int, submit_s: float) -> None:
    session.add(Job(job_id=job_id, submit_s=submit_s, user="alice", state="PENDING"))


def test_old_rows_go_and_what_is_needed_stays(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    sodad, now_s = daemon(), slurm.clock.now_s()
    old_s, new_s = now_s - 91 * DAY_S, now_s - 89 * DAY_S
    write(sodad, Cycle, cycle(1, old_s, 1), cycle(2, old_s, 1), cycle(3, new_s, 1), cycle(4, now_s - 2 * DAY_S, 0))
    write(sodad, Cycle, cycle(5, now_s - 0.5 * DAY_S, 0), cycle(6, old_s, 0))
    write(
        sodad, Preemption, preemption(1, old_s, "done"), preemption(2, old_s, "signalled"), preemption(3, old_s, "lost")
    )
    write(
        sodad,
        Action,
        action(1, old_s, cycle_id=1),
        action(2, old_s, cycle_id=2, state="sent"),
        action(3, old_s, kind="requeue", preemption_id=1),
        action(4, old_s, kind="requeue", preemption_id=2),
        action(5, old_s, state="intended"),
        action(6, old_s),
        action(7, old_s, state="failed", kind="rewrite"),
        action(8, new_s, kind="signal"),
        action(9, old_s),
    )
    with sodad.store.write() as session:
        live_job(session, 6, old_s)
    prune(sodad, slurm.clock)
    # 2 and 5 are open, 4 belongs to a preemption on its way, 6 to a job that waits; 9 tells that sodad changed something.
    assert kept(sodad, Action) == {2, 4, 5, 6, 8, 9}
    assert kept(sodad, Preemption) == {2}
    assert kept(sodad, Cycle) == {2, 3, 5}


def test_only_what_is_older_than_the_limit_is_old(daemon: Callable[..., Daemon]) -> None:
    sodad = daemon()
    write(sodad, Cycle, cycle(1, 99.0, 0), cycle(2, 100.0, 0))
    with sodad.store.read() as session:
        assert find_old_rows(session, Cycle, 0, before_s=100.0, idle_before_s=100.0).ids == [1]


def test_measurements_go_too(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    sodad, now_s = daemon(), slurm.clock.now_s()
    with sodad.store.write() as session:
        for number, days in ((1, 91), (2, 89)):
            session.add(CpuMeasurementRow(**_measurement(number, now_s - days * DAY_S)))
    prune(sodad, slurm.clock)
    assert kept(sodad, CpuMeasurementRow) == {2}


def _measurement(number: int, at_s: float) -> dict[str, Any]:
    columns = CpuMeasurementRow.__table__.columns
    values = {c.name: ("" if c.type.python_type is str else 0) for c in columns if not c.nullable}
    return values | {"id": number, "job_id": number, "at_s": at_s}


def test_a_large_backlog_goes_in_small_pieces(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    sodad, rows = daemon(), 5 * ROWS_AT_A_TIME
    old_s = slurm.clock.now_s() - 100 * DAY_S
    write(sodad, Action, *(action(number, old_s) for number in range(1, rows + 1)))
    deleted: list[int] = []

    def one_piece(session: Session, table: Any, ids: list[int]) -> None:
        session.execute(delete(table).where(table.id.in_(ids)))
        deleted.append(len(ids))
        slurm.clock.at_s += 0.06

    monkeypatch.setattr("slurm_soda.daemon.cycle.store_pruner.delete_rows", one_piece)
    pruner(sodad).step(KEEP_DAYS)
    assert deleted == [ROWS_AT_A_TIME] * 2  # a cycle's share
    for _ in range(4):
        pruner(sodad).step(KEEP_DAYS)
    assert sum(deleted) == rows - 1
    before = slurm.clock.at_s
    pruner(sodad).step(KEEP_DAYS)  # all is done for a while
    assert slurm.clock.at_s == before
    assert max(deleted) <= ROWS_AT_A_TIME


def test_a_clock_that_is_set_ahead_costs_no_history(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    sodad = daemon()
    write(sodad, Action, *(action(number, slurm.clock.now_s() - DAY_S) for number in (1, 2)))
    slurm.clock.set_by_s = 20 * 365 * DAY_S
    prune(sodad, slurm.clock)
    assert kept(sodad, Action) == {1, 2}


def test_a_daemon_prunes_by_itself_and_lives_on_where_that_fails(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    sodad, old_s = daemon(), slurm.clock.now_s() - 100 * DAY_S
    write(sodad, Action, *(action(number, old_s) for number in (1, 2)))
    assert not sodad.run().error
    assert kept(sodad, Action) == {2}
    with sodad.store.write() as session:
        session.execute(delete(Action))
        session.connection().exec_driver_sql("ALTER TABLE cpu_measurement RENAME TO elsewhere")
    slurm.advance(PRUNE_EVERY_S, step_s=60)
    assert not sodad.run().error


@given(
    st.lists(
        st.tuples(st.sampled_from(("done", "sent", "failed", "void")), st.integers(0, 200), st.booleans()), max_size=40
    )
)
@hypothesis_settings(
    max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_no_needed_row_ever_goes(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], rows: list[tuple[str, int, bool]]
) -> None:
    sodad, now_s = daemon(), slurm.clock.now_s()
    with sodad.store.write() as session:
        session.execute(delete(Action))
        session.execute(delete(Job))
        for number, (state, days, live) in enumerate(rows, start=1):
            session.add(Action(**action(number, now_s - days * DAY_S, state=state)))
            if live:
                live_job(session, number, now_s - days * DAY_S)
    prune(sodad, slurm.clock)
    needed = {
        number
        for number, (state, days, live) in enumerate(rows, start=1)
        if state == "sent" or live or days < KEEP_DAYS or number == len(rows)
    }
    assert kept(sodad, Action) == needed
    with sodad.store.read() as session:
        assert session.scalar(select(func.count()).select_from(Action)) == len(needed)
