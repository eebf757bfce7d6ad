"""The run_records over a real spool: every event once, nothing forgotten before the controller has it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from slurm_soda.agent.job_events.run_event import RunKey, parse_run_event
from slurm_soda.agent.reporting.run_records import (
    MAX_RUNS_PER_REPORT,
    RunRecords,
)
from slurm_soda.wire.spool import Spool, record_name
from tests.agent.recorded_runs import NOW_S, Node, event


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "spool")


def test_a_run_is_reported_once_and_then_forgotten(node: Node) -> None:
    node.take(event("open"))
    assert node.deliver() == ["open 10.0", "usage 10.0"]
    assert node.deliver() == []
    node.end()
    assert node.deliver() == ["usage 10.0"]
    node.take(event("close"))
    assert node.deliver() == ["close 10.0", "usage 10.0"]
    assert set(node.spool.names()) >= {"10.500.open", "10.500.close"}
    node.end()
    assert node.deliver() == ["usage 10.0"]
    assert (node.run_records.runs, node.spool.names()) == ({}, [])


def test_second_copies_change_nothing(node: Node) -> None:
    for _ in range(2):
        node.take(event("open"))
        node.take(event("close"))
    node.end()
    assert node.deliver() == ["open 10.0", "close 10.0", "usage 10.0"]
    node.take(event("close"))
    node.spool.write("10.500.close", event("close"))
    node.run_records.adopt(NOW_S)
    assert node.deliver() == []
    assert node.spool.names() == []


def test_a_spool_that_was_replaced_under_the_agent_is_read(node: Node, tmp_path: Path) -> None:
    """As where it was moved away, or something was mounted there while the agent started, and is not any more."""
    node.take(event("open"))
    (tmp_path / "spool").rename(tmp_path / "gone")
    left = Spool(str(tmp_path / "spool"))
    left.write("11.600.open", event("open", 11, 600))
    node.run_records.adopt(NOW_S)
    assert node.deliver() == ["open 10.0", "open 11.0", "usage 10.0", "usage 11.0"]
    node.take(event("close", 11, 600))
    assert "11.600.close" in left.names()
    (tmp_path / "spool").rename(tmp_path / "gone too")
    (tmp_path / "spool").write_text("no directory")
    node.run_records.adopt(NOW_S)
    assert "spool" in node.faults.recent(NOW_S)[-1]
    assert node.deliver() == ["close 11.0", "usage 11.0"]


def test_what_prolog_and_epilog_left_is_adopted_in_order(node: Node) -> None:
    node.spool.write("11.600.close", event("close", 11, 600, fault="agent was away"))
    node.spool.write("11.600.open", event("open", 11, 600))
    node.spool.write("10.500.open", event("open"))
    node.restart()
    assert [run.key for run in node.run_records.active()] == [RunKey(10, 500), RunKey(11, 600)]
    assert "close 11.0" in node.deliver()
    assert node.faults.recent(NOW_S) == ("epilog: agent was away",)


def test_a_restart_goes_on_with_the_sums_and_reports_all_again(node: Node) -> None:
    node.take(event("open"))
    usage = node.run_records.runs[RunKey(10, 500)].usage
    assert usage is not None
    usage.add_cpu(510.0, "cgroup/v1", {"c": 7.5}, 30.0)
    node.end()
    node.deliver()
    node.restart()
    run = node.run_records.runs[RunKey(10, 500)]
    assert run.usage is not None
    run.usage.add_cpu(520.0, "cgroup/v1", {"c": 9.0}, 20.0)
    assert (run.usage.cpu_s, run.usage.memory_peak_mib, run.usage.first_s) == (9.0, 30.0, 500.0)
    assert node.deliver() == ["open 10.0", "usage 10.0"]


def test_the_epilog_of_a_requeued_run_counts_the_next_restart_already(node: Node) -> None:
    node.take(event("open", restart=0))
    node.take(event("close", restart=1))
    node.take(event("open", start_s=504, restart=1))
    node.end()
    assert node.deliver() == ["open 10.0", "open 10.1", "close 10.0", "usage 10.0", "usage 10.1"]


def test_an_epilog_without_a_start_closes_the_only_open_run(node: Node) -> None:
    """The run's restart count is that of its opening."""
    node.take(event("open", restart=2))
    node.take(event("close", start_s=0, at_s=600.0, restart=3))
    node.end()
    assert node.deliver() == ["open 10.2", "close 10.2", "usage 10.2"]


def test_the_epilog_of_an_earlier_run_closes_no_later_one(node: Node) -> None:
    node.take(event("open"))
    node.take(event("close", start_s=400, at_s=600.0))
    assert [(run.key.start_s, run.closed) for run in node.run_records.active()] == [(500, None)]


def test_a_close_without_an_opening_is_reported_alone(node: Node) -> None:
    node.take(event("close"))
    assert node.deliver() == ["close 10.0"]
    assert (node.run_records.runs, node.spool.names()) == ({}, [])


def test_a_new_run_of_a_job_ends_the_one_before(node: Node) -> None:
    node.take(event("open"))
    node.take(event("open", start_s=700, restart=1))
    assert [run.key.start_s for run in node.run_records.active()] == [700]


def test_what_comes_between_report_and_answer_is_not_lost(node: Node) -> None:
    node.take(event("open"))
    batch = node.run_records.news()
    node.take(event("close"))
    node.end()
    node.run_records.reported(batch)
    assert node.deliver() == ["close 10.0", "usage 10.0"]
    assert node.spool.names() == []


def test_what_was_dropped_while_a_report_was_under_way_does_no_harm(node: Node) -> None:
    node.take(event("close"))
    batch = node.run_records.news()
    node.run_records.reported(batch)
    node.run_records.reported(batch)
    assert not node.run_records.has_unreported()


def test_large_backlogs_go_in_parts(node: Node) -> None:
    for job_id in range(1, MAX_RUNS_PER_REPORT + 11):
        node.take(event("close", job_id))
    assert [len(node.deliver()) for _ in range(3)] == [MAX_RUNS_PER_REPORT, 10, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("10.500.open", b"{"),
        ("10.500.open", event("open", 11)),
        ("10.500.usage", b"{}"),
        ("10.500.close", b"\x00" * 9),
        ("10.500.open", event("open").replace(b'"uid": 1000', b'"uid": 1' + b"0" * 5000)),
        ("10.500.open", event("open", at_s=None).replace(b"null", b"1e999")),
        ("10.500.close", event("close").replace(b'"restart": 0', b'"restart": 1' + b"0" * 5000)),
    ],
)
def test_spoiled_files_are_dropped_and_said(node: Node, name: str, content: bytes) -> None:
    node.spool.write(name, content)
    node.spool.write("12.1.open", event("open", 12, 1))
    node.restart()
    assert [run.key.job_id for run in node.run_records.active()] == [12]
    assert node.spool.names() == ["12.1.open"]
    assert f"spool: {name} is dropped" in node.faults.recent(NOW_S)[0]


@pytest.mark.parametrize(
    "more",
    [
        {"node_names": f"n[1-{'9' * 5000}]"},
        {"node_names": f"n[{'9' * 5000}]"},
        {"node_names": "n" + "[1-999]" * 9},
        {"cpus_per_node": f"{'9' * 4000}(x2)"},
    ],
)
def test_numbers_of_thousands_of_digits_in_an_opening_cost_at_most_their_field(
    node: Node, more: dict[str, str]
) -> None:
    node.spool.write("10.500.open", event("open", 10, **more))
    node.restart()
    assert [run.key.job_id for run in node.run_records.active()] == [10]


def test_a_record_that_nobody_thought_of_is_dropped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_line: bytes) -> None:
        raise ZeroDivisionError

    node.spool.write("10.500.open", event("open"))
    monkeypatch.setattr(f"{RunRecords.__module__}.parse_run_event", fail)
    node.restart()
    assert node.spool.names() == []
    assert "spool: 10.500.open is dropped" in node.faults.recent(NOW_S)[0]


def test_a_file_that_cannot_be_read_at_the_moment_is_read_later(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.take(event("open"))
    usage = node.run_records.runs[RunKey(10, 500)].usage
    assert usage is not None
    usage.samples = 7
    node.run_records.save(node.run_records.runs[RunKey(10, 500)], NOW_S)
    node.take(event("open", 12, 600))
    opened = os.open

    def too_many(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if str(path) == "10.500.open":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", too_many)
    node.restart()
    assert [run.key.job_id for run in node.run_records.active()] == [12]
    assert "10.500.open is read later" in node.faults.recent(NOW_S)[0]
    monkeypatch.undo()
    node.run_records.adopt(NOW_S)
    found = node.run_records.runs[RunKey(10, 500)].usage
    assert found is not None
    assert found.samples == 7
    assert sorted(node.spool.names()) == ["10.500.open", "10.500.usage", "12.600.open"]


def test_a_full_spool_drops_usage_first_and_says_so(node: Node) -> None:
    run_records = RunRecords(node.spool, node.faults, 64)
    for start_s in range(40):
        line = event("open", start_s + 1, start_s)
        run_records.take(parse_run_event(line), line, NOW_S)
        run_records.save(run_records.runs[RunKey(start_s + 1, start_s)], NOW_S)
    run_records.trim(NOW_S)
    assert sum(name.endswith(".open") for name in node.spool.names()) == 40
    assert "oldest records dropped" in node.faults.recent(NOW_S)[0]


def test_a_controller_that_never_comes_back_does_not_fill_the_memory(node: Node) -> None:
    run_records = RunRecords(node.spool, node.faults, 64)
    for start_s in range(100):
        for line in (event("open", start_s + 1, start_s), event("close", start_s + 1, start_s))[: 1 + start_s % 2]:
            run = run_records.take(parse_run_event(line), line, NOW_S)
        assert run is not None
        run.over = run.closed is not None
    run_records.trim(NOW_S)
    assert len(run_records.runs) == 64
    assert len(run_records.active()) == 50
    assert any("36 oldest runs dropped" in fault for fault in node.faults.recent(NOW_S))


def test_without_a_disk_the_agent_goes_on_in_memory(node: Node, tmp_path: Path) -> None:
    (tmp_path / "spool").rmdir()
    line = event("open")
    with pytest.raises(Exception, match="cannot be written"):
        node.take(line)
    node.end()
    assert node.deliver() == ["open 10.0", "usage 10.0"]
    assert "cannot be written" in node.faults.recent(NOW_S)[0]


def test_names_of_runs_are_names_of_files() -> None:
    assert record_name(10, 500, "open") == "10.500.open"


def test_a_full_spool_is_read_in_a_time_that_grows_with_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the agent compares each opening with all others, it answers nobody."""
    jobs = 300
    for job_id in range(1, jobs + 1):
        node.spool.write(record_name(job_id, 500, "open"), event("open", job_id))
    looked: list[str] = []

    def look(key: RunKey, name: str) -> object:
        looked.append(name)
        return object.__getattribute__(key, name)

    monkeypatch.setattr(RunKey, "__getattribute__", look)
    node.restart()
    assert len(node.run_records.runs) == jobs
    assert len(looked) < 20 * jobs
