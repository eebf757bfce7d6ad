"""The board: what is worth a cycle, and what is written when."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_board import FORGOTTEN_AFTER_S, ServiceBoard
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
