"""The board: what is worth a cycle, and what is written when."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services import service_load
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_board import FORGOTTEN_AFTER_S, ServiceBoard
from slurm_soda.daemon.services.service_table import build_service_table
from slurm_soda.daemon.settings.services import ServicesSettings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.services import add_minutes, minutes_of
from slurm_soda.wire.services.router_report import ReportedInstance
from tests.daemon.services.service_site import report

KEY = ServiceKey("alice", "answers")


def at(seconds: float) -> Instant:
    return Instant(1_700_000_000.0 + seconds, seconds)


@pytest.fixture
def board() -> ServiceBoard:
    """With one report, on which a cycle has decided."""
    board = ServiceBoard()
    board.take("alice", report(load_qps=10.0, instances=[(7, "cpu", "ready")]), at(0))
    board.answer({}, board.known())
    return board


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        ({}, False),
        ({"load_qps": 28.0}, False),
        ({"load_qps": 30.0}, True),
        ({"load_qps": 1.0}, False),
        ({"instances": [(7, "cpu", "draining")]}, True),
        ({"instances": [(7, "cpu", "ready"), (8, "cpu", "starting")]}, True),
        ({"instances": []}, True),
    ],
)
def test_what_may_change_a_decision_wakes_sodad(board: ServiceBoard, change: dict[str, Any], wakes: bool) -> None:
    woken = []
    board.wake = lambda: woken.append(1)
    values: dict[str, Any] = {"load_qps": 10.0, "instances": [(7, "cpu", "ready")]}
    board.take("alice", report(**(values | change)), at(1))
    assert bool(woken) == wakes


def test_a_draining_instance_that_has_answered_all_wakes_sodad() -> None:
    board, woken = ServiceBoard(), list[int]()
    for second, queries in enumerate((3, 2, 0)):
        one = ReportedInstance(7, "cpu", "draining", 0.0, queries=queries)
        board.take("alice", report(instances=[one]), at(second))
        board.wake = lambda: woken.append(1)
        assert bool(woken) == (second == 2)
        board.answer({}, board.known())


def test_nobody_wakes_sodad_more_than_once_a_second() -> None:
    """A cycle asks Slurm for all its jobs; with as many services as a user may have, each reported five times a second."""
    board, woken = ServiceBoard(), list[float]()
    for step in range(20):
        now_s = step * 0.25
        board.wake = lambda now_s=now_s: woken.append(now_s)
        for service in range(4):
            board.take("mallory", report(name=f"s{service}", load_qps=10.0 * step**4), at(now_s))
        board.answer({}, board.known())
    assert woken == [0.0, 1.0, 2.0, 3.0, 4.0]
    board.wake = lambda: woken.append(-1.0)
    board.take("bob", report(), at(4.1))
    assert woken[-1] == -1.0, "others wake it as before"


def test_reports_are_written_now_and_then_and_at_once_where_the_service_is_another(board: ServiceBoard) -> None:
    def written(second: float, **more: Any) -> int:
        board.take("alice", report(**more), at(second))
        changed = board.changed()
        board.saved(changed)
        return len(changed)

    assert [written(second) for second in range(1, 14)] == [1] + 9 * [0] + [1] + 2 * [0]
    assert [written(20, most=7), written(21, most=7)] == [1, 0]
    board.scale(KEY, 2, 2)
    assert len(board.changed()) == 1


def test_a_service_without_tasks_is_forgotten_long_after_its_last_report(board: ServiceBoard) -> None:
    late = at(FORGOTTEN_AFTER_S + 1)
    assert board.forget([KEY], late) == []
    assert board.forget([], at(FORGOTTEN_AFTER_S - 1)) == []
    assert board.forget([], late) == [KEY]
    assert board.known() == []


def test_minutes_are_given_until_they_are_saved(board: ServiceBoard) -> None:
    for second in range(1, 61):
        board.take("alice", report(load_qps=float(second), instances=[(7, "cpu", "ready")]), at(second))
    (minute, *_) = first = board.finished_minutes(at(70).now_s)
    assert (minute.most_qps, minute.cpu, minute.gpu) == (39.0, 1, 0)
    assert minute.load_qps == pytest.approx((10.0 + sum(range(1, 40))) / 40)
    assert board.finished_minutes(at(70).now_s) == first
    board.saved_minutes(first)
    assert board.finished_minutes(at(70).now_s) == []


def test_while_the_store_is_away_no_more_minutes_are_kept_than_are_bounded(
    board: ServiceBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_load, "MOST_UNSAVED", 5)
    for minute in range(1, 20):
        board.take("alice", report(load_qps=float(minute)), at(60.0 * minute))
        kept = board.finished_minutes(at(60.0 * minute + 59.0).now_s)
    assert [one.most_qps for one in kept] == [15.0, 16.0, 17.0, 18.0, 19.0]


def test_counts_that_no_router_sees_do_not_reach_the_store(board: ServiceBoard, fresh_store: Path) -> None:
    """An INTEGER of PostgreSQL ends at 2^31 - 1; beyond it the whole cycle's transaction would fail, again and again."""
    lie = replace(report(), queries=10**12, errors=10**12, violations=10**12)
    for second in range(1, 5):
        board.take("alice", lie, at(second))
    (minute,) = board.finished_minutes(at(70).now_s)
    assert (minute.queries, minute.errors, minute.violations) == (2**31 - 1,) * 3
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    for _ in range(2):  # by two daemons
        with store.write() as session:
            add_minutes(session, [minute])
    with store.read() as session:
        (row,) = minutes_of(session, ServiceKey("alice", "answers"), 0.0)
        assert (row.queries, row.errors, row.violations) == (2**31 - 1,) * 3
    store.close()


def test_a_rise_wakes_sodad_once_it_counts() -> None:
    """Not with its first report, whose cycle would decide as the one before, and be the last for a while."""
    board, woken = ServiceBoard(), list[float]()

    def decide() -> None:
        board.answer({}, board.known())
        woken.append(board.known()[0].load_qps)

    board.wake = decide
    for second in range(120):
        board.take("alice", report(load_qps=100.0 if second < 60 else 160.0), at(second))
    assert woken == [100.0, 160.0]


def test_the_load_of_a_service_from_the_store_is_not_known_until_its_router_reports(board: ServiceBoard) -> None:
    """It may be of before a burst, or of before a take-over: by it, instances would leave that are needed."""
    successor, woken = ServiceBoard(), list[float]()
    successor.recall(board.known())
    (recalled,) = successor.known()
    assert math.isnan(recalled.load_qps)
    table = build_service_table(
        [recalled], {}, steady_s=1.0, settings=ServicesSettings(), low_since_s={}, forecast_qps={}, draining=()
    )
    assert math.isnan(table.load_qps[0])
    successor.answer({}, successor.known())
    successor.wake = lambda: woken.append(successor.known()[0].load_qps)
    successor.take("alice", report(load_qps=10.0, instances=[(7, "cpu", "ready")]), at(1))
    assert woken == [10.0]
