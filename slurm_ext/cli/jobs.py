"""``squeue``: all jobs in one call, as :class:`JobRecord`.

``-O`` alone gives requested TRES of waiting jobs (so every way of asking for GPUs comes out as one number), restart count
and exit code. ``-r`` keeps requeued array tasks visible, which squeue otherwise folds into the array's waiting rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from slurm_soda.slurm_ext.cli.framing import Framing
from slurm_soda.slurm_ext.cli.values import Tres, gpu_request, integer, plain, span_s, task_count, time_s, tres
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.codec import decode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.hints import Hints
from slurm_soda.slurm_ext.states import KNOWN

SQUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all", "--sort=i")

_FIELDS = (
    "JobID", "ArrayTaskID", "ArrayJobID", "HetJobID", "State", "Reason", "UserName", "UserID", "Account", "Partition",
    "QOS", "Name", "Comment", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeLimit", "PriorityLong", "Nice",
    "RestartCnt", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task", "cpus-per-task", "NumTasks", "NodeList",
    "ReqNodes", "exit_code", "Dependency", "Requeue",
)  # fmt: skip
_TASK_AT = 1


def squeue_env(framing: Framing) -> dict[str, str]:
    """The format, in the environment because arguments are public."""
    separators = [framing.field] * (len(_FIELDS) - 1) + [framing.record]
    spec = ",".join(f"{name}:{separator}" for name, separator in zip(_FIELDS, separators, strict=True))
    return {"SQUEUE_FORMAT2": spec}


@dataclass
class JobReader:
    """Reads replies of squeue; remembers the last one, because from one cycle to the next few jobs change."""

    _last: dict[tuple[str, ...], JobRecord] = field(default_factory=dict)

    def parse(self, stdout: bytes, framing: Framing) -> list[JobRecord]:
        """All jobs by id; the waiting tasks of an array are one record.

        Raises:
            SlurmReplyError: the reply is cut short or has something that this version cannot read.
        """
        rows: dict[str, list[str]] = {}
        tasks: dict[str, list[str]] = {}
        for row in framing.records(stdout, len(_FIELDS), "squeue's list of jobs"):
            task, row[_TASK_AT] = row[_TASK_AT], "N/A"
            if task != "N/A":
                tasks.setdefault(row[0], []).append(task)
            if rows.setdefault(row[0], row) != row or (task == "N/A" and rows[row[0]] is not row):
                raise SlurmReplyError(f"squeue's list of jobs has job {row[0]!r} twice; nothing is done with it")
        for job_id, numbers in tasks.items():
            rows[job_id][_TASK_AT] = _ranges(numbers)
        last, self._last = self._last, {}
        for row in rows.values():
            key = tuple(row)
            self._last[key] = last.get(key) or _record(dict(zip(_FIELDS, row, strict=True)))
        return sorted(self._last.values(), key=lambda job: job.job_id)


def _record(f: Mapping[str, str]) -> JobRecord:
    what = f"job {f['JobID']}"
    if f["State"] not in KNOWN:
        raise SlurmReplyError(f"{what} is in state {f['State']!r}, which this version does not know")
    held = tres(f["tres-alloc"])
    count = task_count(f["NumTasks"], what)
    gpus_per_node, gpu_type = gpu_request(f["tres-per-node"])
    return JobRecord(
        job_id=integer(f["JobID"], "job id"),
        array_job_id=integer(f["ArrayJobID"], what),
        array_task=plain(f["ArrayTaskID"]),
        state=f["State"],
        reason=f["Reason"],
        user=f["UserName"],
        uid=integer(f["UserID"], what),
        account=plain(f["Account"]),
        partition=f["Partition"],
        qos=plain(f["QOS"]),
        name=f["Name"],
        comment="" if f["Comment"] == "(null)" else f["Comment"],
        submit_s=time_s(f["SubmitTime"], what),
        eligible_s=time_s(f["EligibleTime"], what),
        start_s=time_s(f["StartTime"], what),
        end_s=time_s(f["EndTime"], what),
        time_limit_s=span_s(f["TimeLimit"], "time limit"),
        priority=integer(f["PriorityLong"], what),
        nice=integer(f["Nice"], what),
        restarts=integer(f["RestartCnt"], what),
        nodes=max(1, held.nodes),
        cpus=held.cpus,
        memory_mib=held.memory_mib,
        gpus=held.gpus or _gpus_asked(f, held, count),
        gpus_per_node=gpus_per_node,
        gpu_type=gpu_type or gpu_request(f["tres-per-job"])[1] or gpu_request(f["tres-per-task"])[1],
        node_names=plain(f["NodeList"]),
        exit_code=f["exit_code"],
        dependency=plain(f["Dependency"]),
        hints=_hints(f["Comment"]),
        req_node_names=plain(f["ReqNodes"]),
        tres_per_node=plain(f["tres-per-node"]),
        cpus_per_task=task_count(f["cpus-per-task"], what),
        tasks=count,
        het_job_id=integer(plain(f["HetJobID"]) or "0", what),
        requeue=f["Requeue"] == "1",
    )


def _gpus_asked(f: Mapping[str, str], held: Tres, tasks: int) -> int:
    """GPUs over all nodes where the site does not account them (no ``gres/gpu`` in AccountingStorageTRES)."""
    per_node = gpu_request(f["tres-per-node"])[0] * max(1, held.nodes)
    return gpu_request(f["tres-per-job"])[0] or per_node or gpu_request(f["tres-per-task"])[0] * tasks


def _hints(comment: str) -> Hints:
    return _decoded(comment.rpartition(" ")[2]) if "soda:" in comment else _NO_HINTS


_NO_HINTS = Hints()


@lru_cache(maxsize=16384)
def _decoded(tag: str) -> Hints:
    return decode(tag).hints


def _ranges(tasks: Iterable[str]) -> str:
    """Task numbers as Slurm writes them: ``1,4-9``."""
    numbers = sorted(integer(task, "array task") for task in tasks)
    pieces: list[str] = []
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            first, last = numbers[start], numbers[at - 1]
            pieces.append(str(first) if first == last else f"{first}-{last}")
            start = at
    return ",".join(pieces)
