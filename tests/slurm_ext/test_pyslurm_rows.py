"""From pyslurm's words to squeue's."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.slurm_ext.bindings import pyslurm_child
from slurm_soda.slurm_ext.bindings.pyslurm_child import COLUMNS, MORE_COLUMNS
from slurm_soda.slurm_ext.bindings.pyslurm_rows import VagueJobError, squeue_row
from slurm_soda.slurm_ext.read.squeue_jobs import FIELDS, SqueueReader, task_ranges
from tests.sampling import examples
from tests.slurm_ext.pyslurm_site import squeue_cells, told

NOW_S = 1_795_300_000.0


def row(**fields: Any) -> list[str]:
    job = {**told(1), "user_name": "root", "sharing": "OK", **fields}
    return squeue_row([job[key] for key in (*COLUMNS, *MORE_COLUMNS)], NOW_S)


def cell(name: str, **fields: Any) -> str:
    return row(**fields)[FIELDS.index(name)]


def test_both_are_read_as_the_same_job() -> None:
    reader = SqueueReader()
    assert repr(reader.record(row())) == repr(reader.record(squeue_cells(1)))


@pytest.mark.parametrize(
    ("field", "fields", "shown"),
    [
        ("ArrayJobID", {"array_job_id": 7, "array_task_id": 3}, "7"),
        ("ArrayTaskID", {"array_job_id": 7, "array_task_id": 3}, "3"),
        ("ArrayTaskID", {"array_job_id": 7, "array_task_id": 0}, "0"),
        ("ArrayTaskID", {"array_job_id": 1, "array_task_str": "1,4-9%2"}, "1,4-9"),
        ("ArrayTaskID", {"array_job_id": 1, "array_task_str": "0-30:10%1"}, "0,10,20,30"),
        ("HetJobID", {"het_job_id": 1}, "1"),
        ("EndTime", {"end_time": int(NOW_S) + 9, "time_limit": "UNLIMITED"}, "NONE"),
        ("EndTime", {"end_time": int(NOW_S) - 9, "time_limit": "UNLIMITED"}, str(int(NOW_S) - 9)),
        ("EndTime", {"end_time": int(NOW_S) + 9}, str(int(NOW_S) + 9)),
        ("StartTime", {"start_time": 0xFFFF_FFFE}, "N/A"),
        ("TimeLimit", {"time_limit": 1564}, "1-02:04:00"),
        ("TimeLimit", {"time_limit": "Partition_Limit"}, "Partition_Limit"),
        ("tres-alloc", {"tres_alloc_str": "cpu=4"}, "cpu=4"),
        ("cpus-per-task", {"cpus_per_task": "N/A"}, "N/A"),
        ("ReqNodes", {"req_nodes": ["n[1", "3]"]}, "n[1,3]"),
        ("Requeue", {"requeue": False}, "0"),
        ("BatchFlag", {"batch_flag": 0}, "0"),
        ("OverSubscribe", {"sharing": "0"}, "NO"),
        ("OverSubscribe", {"sharing": "USER"}, "USER"),
        ("Dependency", {"dependency": "afterok:1," * 9}, ("afterok:1," * 9)[:60]),
        ("Reason", {"state_reason": "ReqNodeNotAvail,_UnavailableNodes:n_[1-3]"},
         "ReqNodeNotAvail, UnavailableNodes:n_[1-3]"),
        ("Reason", {"state_reason": "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority"
         "_partitions"},
         "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"),
    ],
)  # fmt: skip
def test_cells(field: str, fields: dict[str, Any], shown: str) -> None:
    assert cell(field, **fields) == shown


@pytest.mark.parametrize(
    "fields",
    [
        {"user_name": None},
        {"name": None},
        {"exit_code": None},
        {"sharing": None},
        {"comment": "x\ufffdy"},
        {"state_reason": "launch_of_n_1 failed"},
        {"array_job_id": 1, "array_task_str": "1,3,5..."},
        {"array_job_id": 1, "array_task_str": "0-999999999:2"},
    ],
)
def test_what_pyslurm_does_not_tell_is_for_squeue(fields: dict[str, Any]) -> None:
    with pytest.raises(VagueJobError):
        row(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "1"},
        {"priority": None},
        {"partition": 7},
        {"req_nodes": None},
        {"start_time": "soon"},
        {"num_tasks": True},
        {"time_limit": []},
    ],
)
def test_another_form_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        row(**fields)


def test_another_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="3 values"):
        squeue_row([1, 2, 3], NOW_S)


@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.sampled_from([1, 2, 5]),
    st.integers(0, 50),
    st.sampled_from(["", "%3"]),
)
def test_waiting_tasks_in_any_form(tasks: set[int], step: int, first: int, limit: str) -> None:
    steps = set(range(first, first + 5 * step, step))
    text = f"{task_ranges(map(str, tasks))},{first}-{max(steps)}:{step}{limit}"
    found = cell("ArrayTaskID", array_job_id=1, array_task_str=text)
    assert found == task_ranges(map(str, sorted(tasks | steps)))


def _written(statuses: list[tuple[int, int]]) -> list[tuple[str, str]]:
    """What pyslurm writes of derived_ec and exit_code of one job after the other, by wait(2)'s statuses."""
    exited = died = 0
    written = []
    for pair in statuses:
        texts = []
        for status in pair:
            if os.WIFSIGNALED(status):
                died = os.WTERMSIG(status)
            elif os.WIFEXITED(status):
                exited = os.WEXITSTATUS(status)
            texts.append(f"{exited}:{died}")
        written.append((texts[0], texts[1]))
    return written


STATUS = st.sampled_from([0, 0, 1 << 8, 2 << 8, 137 << 8, 9, 15])


@given(st.lists(st.tuples(STATUS, STATUS, st.booleans()), max_size=12))
@settings(max_examples=examples(300))
def test_exit_codes_are_true_or_none(jobs: list[tuple[int, int, bool]]) -> None:
    statuses = [(derived, 0 if waits else status) for derived, status, waits in jobs]
    for (derived, shown), (_, status), (_, _, waits) in zip(_written(statuses), statuses, jobs, strict=True):
        state = {"job_state": "PENDING" if waits else "FAILED", "restart_cnt": 0}
        found = pyslurm_child.exit_code({**state, "exit_code": shown, "derived_ec": derived})
        true = f"0:{os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"{os.WEXITSTATUS(status)}:0"
        assert found in ({true} if waits else {true, None})
