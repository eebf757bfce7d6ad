"""How many tasks of an array may run at a time, as scontrol's JSON has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_array_throttles

REPLIES = Path(__file__).parent / "replies"


def reply(*jobs: dict[str, Any], version: str = "24.11.5") -> bytes:
    """A recorded picture of a waiting job, once for each of these, with other values."""
    recorded = json.loads((REPLIES / version / "request-2.txt").read_text().partition("\n}\n")[0] + "\n}")
    return json.dumps(recorded | {"jobs": [recorded["jobs"][0] | one for one in jobs]}).encode()


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def rest(array: int, tasks: str, most: int) -> dict[str, Any]:
    """The tasks of an array that wait together."""
    return {"array_job_id": number(array), "array_task_string": tasks, "array_max_tasks": number(most)}


def apart(array: int, task: int) -> dict[str, Any]:
    return {"array_job_id": number(array), "array_task_id": number(task)}


@pytest.mark.parametrize("version", ["24.11.5", "26.05.5"])
def test_throttles_of_several_arrays(version: str) -> None:
    told = (
        reply(apart(7, 0), rest(7, "1-3,6%4", 4), version=version) + b"\n" + reply(rest(20, "0-9", 0), version=version)
    )
    assert parse_array_throttles(told, [7, 20]) == {7: 4, 20: 0}


def test_older_versions_have_plain_numbers() -> None:
    old = {"array_job_id": 7, "array_task_string": "1-3%2", "array_max_tasks": 2}
    assert parse_array_throttles(reply(old), [7]) == {7: 2}


def test_of_tasks_that_are_jobs_of_their_own_nothing_is_told() -> None:
    told = reply(apart(7, 0), apart(7, 1)) + reply(rest(20, "0-9%3", 3))[:-300]
    found = parse_array_throttles(told, [7, 20, 30])
    assert all(isinstance(one, SlurmReplyError) for one in found.values())
    assert sorted(found) == [7, 20, 30]
    assert "array 7 may run" in str(found[7])


@pytest.mark.parametrize("most", [{"set": True, "number": -1}, {"set": True, "number": "many"}, {"set": True}])
def test_what_is_no_number_is_not_believed(most: object) -> None:
    told = reply(rest(7, "0-1%1", 1) | {"array_max_tasks": most})
    assert isinstance(parse_array_throttles(told, [7])[7], SlurmReplyError)
