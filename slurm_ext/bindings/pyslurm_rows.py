"""From what pyslurm says of a job to the row that squeue prints of it, so that both are read by the same code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from slurm_soda.slurm_ext.bindings.pyslurm_child import COLUMNS, MORE_COLUMNS
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.squeue_jobs import FIELDS, task_ranges

ROW_LENGTH = len(COLUMNS) + len(MORE_COLUMNS)

_NO_NUMBER = (0, None, 0xFFFF_FFFE, 0xFFFF_FFFF)
"""Nothing, NO_VAL and INFINITE: of a time or an id none at all."""
_REPLACED = "\ufffd"
"""What pyslurm puts for bytes that are not UTF-8."""
_DEPENDENCY_BYTES = 60
_SHARED = {"0": "NO", "1": "YES"}
_MINUTES_A_DAY = 1440
_TASKS = re.compile(r"([0-9]{1,9}(-[0-9]{1,9}(:[0-9]{1,9})?)?)(,[0-9]{1,9}(-[0-9]{1,9}(:[0-9]{1,9})?)?)*")
_MOST_TASKS = 4_000_001
"""The largest MaxArraySize of Slurm."""
_KNOWN_REASONS = {
    text.replace(" ", "_"): text
    for text in (
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "ReqNodeNotAvail, May be reserved for other job",
        "ReqNodeNotAvail, Reserved for maintenance",
        "launch failed requeued held",
        "job requeued in held state",
        "job requeued in special exit state",
    )
}
_UNAVAILABLE_NODES = "ReqNodeNotAvail,_UnavailableNodes:"


class VagueJobError(SlurmReplyError):
    """pyslurm does not tell all of a job: only Slurm's commands do."""


def squeue_row(values: Sequence[Any], now_s: float) -> list[str]:
    """The cells of :data:`.squeue_jobs.FIELDS` for one job, its waiting tasks as ranges.

    Args:
        values: as in :data:`.pyslurm_child.COLUMNS` and :data:`.pyslurm_child.MORE_COLUMNS`.
        now_s: now, in Unix seconds: squeue shows no end in the future of a job without a time limit.

    Raises:
        VagueJobError: something is missing or ambiguous.
        TypeError, ValueError: the values are of another form.
    """
    if len(values) != ROW_LENGTH:
        raise ValueError(f"{len(values)} values of a job, not {ROW_LENGTH}")
    job = dict(zip((*COLUMNS, *MORE_COLUMNS), values, strict=True))
    number = _number(job["job_id"])
    for key in ("user_name", "name", "exit_code", "sharing"):
        if job[key] is None:
            raise VagueJobError(f"pyslurm does not tell {key} of job {number}")
    cells = {
        "JobID": number,
        "ArrayTaskID": _array_task(job),
        "ArrayJobID": _number(job["array_job_id"] or job["job_id"]),
        "HetJobID": _number(job["het_job_id"]) if job["het_job_id"] else "N/A",
        "State": _text(job, "job_state"),
        "Reason": _reason(_text(job, "state_reason")),
        "UserName": _text(job, "user_name"),
        "UserID": _number(job["user_id"]),
        "Account": _text(job, "account"),
        "Partition": _text(job, "partition"),
        "QOS": _text(job, "qos"),
        "Name": _text(job, "name"),
        "Comment": _text(job, "comment"),
        "SubmitTime": _time(job["submit_time"]),
        "EligibleTime": _time(job["eligible_time"]),
        "StartTime": _time(job["start_time"]),
        "EndTime": _end_time(job, now_s),
        "TimeLimit": _time_limit(job["time_limit"]),
        "PriorityLong": _number(job["priority"]),
        "Nice": _number(job["nice"]),
        "RestartCnt": _number(job["restart_cnt"]),
        "tres-alloc": _text(job, "tres_alloc_str") or _text(job, "tres_req_str"),
        "tres-per-job": _text(job, "tres_per_job"),
        "tres-per-node": _text(job, "tres_per_node"),
        "tres-per-task": _text(job, "tres_per_task"),
        "cpus-per-task": str(job["cpus_per_task"]),
        "NumTasks": _number(job["num_tasks"]),
        "NodeList": _text(job, "nodes"),
        "ReqNodes": ",".join(job["req_nodes"]),
        "exit_code": _text(job, "exit_code"),
        "Dependency": _cut(_text(job, "dependency")),
        "Requeue": str(int(bool(job["requeue"]))),
        "BatchFlag": _number(job["batch_flag"]),
        "OverSubscribe": _SHARED.get(_text(job, "sharing"), _text(job, "sharing")),
        "Exclusive": "",
    }
    return [cells[name] for name in FIELDS]


def _text(job: Mapping[str, Any], key: str) -> str:
    text = job[key]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise TypeError(f"{key} is no text")
    if _REPLACED in text:
        raise VagueJobError(f"{key} of job {job['job_id']} has bytes that are not UTF-8")
    return text


def _number(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:40]!r} is no number")
    return str(value)


def _time(value: Any) -> str:
    return "N/A" if value in _NO_NUMBER else _number(value)


def _end_time(job: Mapping[str, Any], now_s: float) -> str:
    end = job["end_time"]
    return "NONE" if job["time_limit"] == "UNLIMITED" and end and end > now_s else _time(end)


@lru_cache(maxsize=4096)
def _time_limit(value: Any) -> str:
    """Minutes, or one of two words."""
    if isinstance(value, str):
        return value
    days, minutes = divmod(int(_number(value)), _MINUTES_A_DAY)
    return f"{days}-{minutes // 60:02}:{minutes % 60:02}:00"


def _array_task(job: Mapping[str, Any]) -> str:
    if tasks := _text(job, "array_task_str"):
        return _expand_steps(tasks.partition("%")[0], job["job_id"])
    return "N/A" if not job["array_job_id"] or job["array_task_id"] in _NO_NUMBER[1:] else _number(job["array_task_id"])


def _expand_steps(tasks: str, job_id: int) -> str:
    """Ranges as they are; those with a step (``0-30:10``), as numbers."""
    if not _TASKS.fullmatch(tasks):
        raise VagueJobError(f"the waiting tasks of job {job_id} are {tasks[:60]!r}")
    if ":" not in tasks:
        return tasks
    numbers: set[int] = set()
    for piece in tasks.split(","):
        first, _, rest = piece.partition("-")
        last, _, step = rest.partition(":")
        if int(last or first) > _MOST_TASKS:
            raise VagueJobError(f"the waiting tasks of job {job_id} are {tasks[:60]!r}")
        numbers.update(range(int(first), int(last or first) + 1, max(int(step or 1), 1)))
    return task_ranges(map(str, numbers))


def _reason(text: str) -> str:
    """For every space of it pyslurm puts an underscore, and a node's name may have one too."""
    if "_" not in text:
        return text
    if text in _KNOWN_REASONS:
        return _KNOWN_REASONS[text]
    if text.startswith(_UNAVAILABLE_NODES):
        return _UNAVAILABLE_NODES.replace("_", " ") + text.removeprefix(_UNAVAILABLE_NODES)
    raise VagueJobError(f"the reason {text[:60]!r} may have had spaces")


def _cut(text: str) -> str:
    """As squeue cuts it, which may be in the middle of a character."""
    return text.encode("utf-8", "surrogateescape")[:_DEPENDENCY_BYTES].decode("utf-8", "surrogateescape")
