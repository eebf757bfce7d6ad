"""Many agents come back at once, each with much to tell: sodad's heartbeat gets the store between, and each is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import report_writer
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.store.agent_reports import count_records, split_report, store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobNodeUsage, NodeEvent
from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport


@pytest.fixture
def writer(store: Store) -> Iterator[ReportWriter]:
    made = ReportWriter(store, SystemClock(), on_close=lambda: None)
    yield made
    made.close()


def report(number: int, runs: int = 0, seq: int = 1) -> NodeReport:
    node, ids = f"n{number}", range(number * 1000 + 1, number * 1000 + 1 + runs)
    return NodeReport(
        node,
        "a",
        seq,
        1.0,
        tuple(JobOpened(job_id, 0, node, 1000, "alice", "main", 100.0, (0,), 4) for job_id in ids),
        tuple(JobClosed(job_id, 0, node, 160.0, "0:0") for job_id in ids),
        tuple(JobUsage(job_id, 0, node, 100.0, 160.0, 5, 0.5, 0.5, 1.0, 1, 3.0, 4.0) for job_id in ids),
    )


@contextmanager
def held(store: Store) -> Iterator[None]:
    """The lock of writers, which a transaction takes with its first statement."""
    with store.write() as session:
        session.connection()
        yield


def until_written(future: Future[ReportAnswer]) -> None:
    """Wait until the writer is about to write a report."""
    while not future.running():
        time.sleep(0.001)


def stored(session: Session) -> tuple[int, int, int]:
    """Reports, openings and closings, usages."""
    tables: tuple[type, ...] = (AgentHeartbeat, NodeEvent, JobNodeUsage)
    reports, events, usages = (session.scalar(select(func.count()).select_from(table)) or 0 for table in tables)
    return reports, events, usages


def test_others_get_the_store_between_reports_and_within_a_long_one(
    store: Store, writer: ReportWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    between: list[tuple[tuple[int, int, int], list[bool]]] = []

    def pause(_seconds: float) -> None:
        with store.write() as session:  # as the heartbeat does
            between.append((stored(session), [future.done() for future in rest]))

    monkeypatch.setattr(report_writer, "time", SimpleNamespace(sleep=pause))
    monkeypatch.setattr(report_writer, "HOLD_LOCK_S", 0.0)
    monkeypatch.setattr(report_writer, "MAX_RECORDS_PER_COMMIT", 6)
    rest = []
    with held(store):  # so that all of them wait together
        until_written(first := writer.submit(report(0)))
        rest += [writer.submit(report(1, 1)), writer.submit(report(2, 1)), writer.submit(report(3, 3))]
    assert first.result(30).node == "n0"
    assert [future.result(30).node for future in rest] == ["n1", "n2", "n3"]
    assert between[-2:] == [
        ((3, 4, 2), [True, True, False]),  # the first two are on disk, and told so
        ((3, 10, 2), [True, True, False]),  # the last one is not before it is there as a whole
    ]
    with store.read() as session:
        assert stored(session) == (4, 10, 5)


def test_a_report_in_parts_is_the_report(store: Store) -> None:
    whole = report(1, 5)
    parts = list(split_report(whole, 4))
    assert [count_records(part) for part in parts] == [4, 4, 4, 3]
    for name in ("opened", "closed", "usage"):
        assert sum((getattr(part, name) for part in parts), ()) == getattr(whole, name)


def test_a_report_that_nobody_waits_for_is_not_written(store: Store, writer: ReportWriter) -> None:
    with held(store):
        until_written(first := writer.submit(report(0)))
        given_up = writer.submit(report(1))
        assert given_up.cancel()
    assert first.result(30).node == "n0"
    assert writer.submit(report(2)).result(30).node == "n2"
    with store.read() as session:
        assert set(session.scalars(select(AgentHeartbeat.node))) == {"n0", "n2"}


def test_a_report_that_is_stored_is_answered_and_not_written_again(
    store: Store, writer: ReportWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def store_and_note(session: Session, told: NodeReport, now_s: float, *more: Any, **named: Any) -> None:
        written.append(count_records(told))
        store_report(session, told, now_s, *more, **named)

    monkeypatch.setattr(report_writer, "store_report", store_and_note)
    for seq in (1, 1, 2, 2):
        assert writer.submit(report(1, 2, seq)).result(30).seq == seq
    assert written == [6, 0, 6, 0], "of the second one only the sign of life"


def test_a_long_report_costs_few_statements(store: Store) -> None:
    """One statement for each row took a second for 500 runs, with the lock of all writers held."""
    statements: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    for seq in (1, 2):
        statements.clear()
        with store.write() as session:
            store_report(session, report(1, 200, seq), 1.0)
        assert len(statements) < 10
        with store.read() as session:
            assert stored(session) == (1, 400, 200)
