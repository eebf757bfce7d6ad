"""The writer of reports outlives whatever a report, the store or a search does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import report_writer
from slurm_soda.daemon.api.report_writer import SHOW_ERRORS_FOR_S, ReportNotWrittenError, ReportWriter
from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.wire.records import NodeReport
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon, settings

TOO_LARGE = 2**70
"""No database takes such a number, and no error of a database says so."""


@pytest.fixture
def writer(store: Store) -> Iterator[ReportWriter]:
    made = ReportWriter(store, FakeClock(), on_close=lambda: None)
    yield made
    made.close()


def report(node: str, seq: int = 1) -> NodeReport:
    return NodeReport(node, "a", seq, 1.0)


def nodes(store: Store) -> list[str]:
    with store.read() as session:
        return list(session.scalars(select(AgentHeartbeat.node).order_by(AgentHeartbeat.node)))


def test_an_odd_report_is_refused_and_counted_and_the_next_is_taken(store: Store, writer: ReportWriter) -> None:
    assert writer.problems() == ()
    with pytest.raises(ReportNotWrittenError, match="log"):
        writer.submit(report("odd", TOO_LARGE)).result(30)
    assert writer.submit(report("n1")).result(30).node == "n1"
    (complaint,) = writer.problems()
    assert complaint.startswith("1 reports of nodes")
    assert "OverflowError" in complaint
    assert nodes(store) == ["n1"]


def test_an_odd_report_takes_nobody_with_it(store: Store, writer: ReportWriter) -> None:
    with store.write():  # so that all of them are written together
        first = writer.submit(report("n0"))
        rest = [writer.submit(report(f"n{i}", TOO_LARGE if i == 3 else 1)) for i in range(1, 6)]
    assert first.result(30).node == "n0"
    assert [future.exception(30) is None for future in rest] == [True, True, False, True, True]
    assert nodes(store) == ["n0", "n1", "n2", "n4", "n5"]


def test_complaints_end(store: Store) -> None:
    clock = FakeClock()
    writer = ReportWriter(store, clock, on_close=lambda: None)
    assert writer.submit(report("odd", TOO_LARGE)).exception(30)
    assert writer.problems()
    clock.at_s += SHOW_ERRORS_FOR_S + 1
    assert not writer.problems()
    writer.close()
    assert "no longer written" in writer.problems()[0]
    writer.close()


def test_a_wake_that_fails_ends_nothing(store: Store) -> None:
    def fail() -> None:
        raise OSError("no file")

    writer = ReportWriter(store, FakeClock(), on_close=fail)
    closed = NodeReport.from_json(
        b'{"node": "n1", "agent_id": "a", "seq": 1, "sent_s": 1.0,'
        b' "closed": [{"job_id": 7, "restart": 0, "node": "n1", "at_s": 160.0, "exit_code": "0:0"}]}'
    )
    assert writer.submit(closed).result(30).seq == 1
    assert writer.submit(report("n2")).result(30).seq == 1
    writer.close()


def test_a_search_that_fails_keeps_no_report_out(store: Store) -> None:
    class Broken(MultiNodeSearches):
        def take(self, session: Session, report: NodeReport, now_s: float) -> None:
            raise ZeroDivisionError

    writer = ReportWriter(store, FakeClock(), on_close=lambda: None, gangs=Broken())
    assert writer.submit(report("n1")).result(30).cores == ()
    assert nodes(store) == ["n1"]
    assert "ZeroDivisionError" in writer.problems()[0]
    writer.close()


def test_a_store_that_is_busy_refuses_all_and_is_no_surprise(
    store: Store, writer: ReportWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_once(session: Session, told: NodeReport, *more: Any, **named: Any) -> None:
        if told.node == "n1":
            session.connection().exec_driver_sql("INSERT INTO gone VALUES (1)")
        store_report(session, told, *more, **named)

    monkeypatch.setattr(report_writer, "store_report", break_once)
    assert "no such table" in str(writer.submit(report("n1")).exception(30))
    assert writer.submit(report("n2")).result(30).node == "n2"
    assert writer.problems() == ()


def test_complaints_are_shown_with_the_cycles(slurm: FakeSlurm, fresh_store: Path) -> None:
    sodad = Daemon(slurm, fresh_store, settings())
    sodad.run()
    assert "problems" not in sodad.last_cycle().facts
    told: Callable[[], tuple[str, ...]] = lambda: ("reports are odd",)  # noqa: E731
    sodad.cycles.problems = told
    sodad.run()
    assert sodad.last_cycle().facts["problems"] == ["reports are odd"]
