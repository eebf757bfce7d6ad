"""``squeue``: all jobs in one call, as :class:`SlurmJob`.

``-O`` alone gives requested TRES of waiting jobs (so every way of asking for GPUs comes out as one number), restart count
and exit code. ``-r`` keeps requeued array tasks visible, which squeue otherwise folds into the array's waiting rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.hints.codec import decode_comment
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.exclusive_nodes import EXCLUSIVE_FIELDS, ExclusiveNodes, parse_exclusive
from slurm_soda.slurm_ext.read.host_ranges import check_ranges
from slurm_soda.slurm_ext.read.hostlist import count_hosts
from slurm_soda.slurm_ext.read.job_states import KNOWN_STATES
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import (
    MAX_COUNT,
    SHARED_GPU_GRES,
    TrackableResources,
    count_shared_gpus,
    parse_gpu_request,
    parse_integer,
    parse_tres,
    span_s,
    task_count,
    text_or_empty,
    time_s,
)

SQUEUE_COMMAND = ("squeue", "--noheader", "--all", "--array", "--states=all", "--sort=i")

FIELDS = (
    "JobID", "ArrayTaskID", "ArrayJobID", "HetJobID", "State", "Reason", "UserName", "UserID", "Account", "Partition",
    "QOS", "Name", "Comment", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeLimit", "PriorityLong", "Nice",
    "RestartCnt", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task", "cpus-per-task", "NumTasks", "NodeList",
    "ReqNodes", "exit_code", "Dependency", "Requeue",
    "BatchFlag", *EXCLUSIVE_FIELDS,
)  # fmt: skip
"""What a row has, by squeue's names."""
_TASK_AT = 1
_ASKED = ("tres-per-node", "tres-per-job", "tres-per-task")
_WIDTHS = {"Dependency": 60}
"""Characters of fields that are only shown, cut and padded by squeue: a job array that waits for a thousand tasks has
100 kB of dependencies, and squeue prints them for each of its own tasks."""


def squeue_environment(framing: ReplyFraming) -> dict[str, str]:
    """The format of :data:`SQUEUE_COMMAND`."""
    return framing.squeue_env(FIELDS, _WIDTHS)


@dataclass
class SqueueReader:
    """Reads replies of squeue; remembers the last one, because from one cycle to the next few jobs change."""

    on_unreadable: Callable[[str], None] = lambda _why: None
    """Told once of each job that is left out, and why."""
    shared_gres: str = SHARED_GPU_GRES
    """The generic resource of guests."""
    addresses: Mapping[int, str] = field(default_factory=dict)
    """:attr:`SlurmJob.address` of those jobs of the last reply that are of arrays, by id."""
    _last: dict[tuple[str, ...], SlurmJob] = field(default_factory=dict)
    _unreadable: frozenset[str] = frozenset()

    def parse(self, stdout: bytes, framing: ReplyFraming) -> list[SlurmJob]:
        """All jobs by id; the waiting tasks of an array are one record. A job that cannot be read is left out.

        Raises:
            SlurmReplyError: the reply is cut short, has a job twice, or has several jobs and none that can be read.
        """
        rows = parse_rows(stdout, framing)
        last, self._last, unreadable = self._last, {}, []
        known_requests = {job.req_node_names for job in last.values()}
        for row in rows.values():
            key = tuple(row)
            try:
                self._last[key] = last.get(key) or self.record(row, known_requests)
            except SlurmReplyError as error:
                unreadable.append(f"job {row[0][:20]} is left out: {error}")
        return self.take(self._last.values(), unreadable)

    def record(self, row: Sequence[str], known_requests: Collection[str] = ()) -> SlurmJob:
        """One job by the cells of :data:`FIELDS`; ``known_requests`` are lists of requested nodes that can be read.

        Raises:
            SlurmReplyError: it cannot be read.
        """
        return _record(dict(zip(FIELDS, row, strict=True)), known_requests, self.shared_gres)

    def take(self, jobs: Collection[SlurmJob], unreadable: Collection[str]) -> list[SlurmJob]:
        """All jobs of a reading by id, which are remembered as the last ones; and why others are left out.

        Raises:
            SlurmReplyError: there are several jobs and none that can be read.
        """
        self.addresses = {job.job_id: job.address for job in jobs if job.array_task}
        self._tell(unreadable)
        if len(unreadable) > 1 and not jobs:
            raise SlurmReplyError(f"squeue's list has no job that can be read: {next(iter(unreadable))}")
        return sorted(jobs, key=lambda job: job.job_id)

    def _tell(self, unreadable: Iterable[str]) -> None:
        told, self._unreadable = self._unreadable, frozenset(unreadable)
        for why in sorted(self._unreadable - told):
            self.on_unreadable(why)


def parse_rows(stdout: bytes, framing: ReplyFraming) -> dict[str, list[str]]:
    """The rows of a reply by job id, the waiting tasks of an array as one, with their ranges.

    Raises:
        SlurmReplyError: the reply is cut short, or has a job twice.
    """
    rows: dict[str, list[str]] = {}
    tasks: dict[str, list[str]] = {}
    for row in framing.records(stdout, len(FIELDS), "squeue's list of jobs"):
        task, row[_TASK_AT] = row[_TASK_AT], "N/A"
        if task != "N/A":
            tasks.setdefault(row[0], []).append(task)
        if rows.setdefault(row[0], row) != row or (task == "N/A" and rows[row[0]] is not row):
            raise SlurmReplyError(f"squeue's list of jobs has job {row[0]!r} twice; nothing is done with it")
    for job_id, numbers in tasks.items():
        rows[job_id][_TASK_AT] = task_ranges(numbers)
    return rows


def _record(f: Mapping[str, str], known_requests: Collection[str], shared_gres: str) -> SlurmJob:
    """One job; ``known_requests`` are lists of requested nodes that can be read."""
    what = f"job {f['JobID']}"
    if f["State"] not in KNOWN_STATES:
        raise SlurmReplyError(f"{what} is in state {f['State'][:60]!r}, which this version does not know")
    asks_shared = any(count_shared_gpus(f[name], shared_gres) for name in _ASKED)
    held = parse_tres(f["tres-alloc"], shared_gres).given(as_guest=asks_shared)
    count = task_count(f["NumTasks"], what)
    gpus_per_node, gpu_type = parse_gpu_request(f["tres-per-node"])
    shared_per_node = count_shared_gpus(f["tres-per-node"], shared_gres)
    shared = (
        held.shared_gpus or shared_per_node * max(1, held.nodes) or count_shared_gpus(f["tres-per-job"], shared_gres)
    )
    gpus = (held.gpus - held.shared_gpus or _gpus_asked(f, held, count)) + shared
    count_hosts(f["NodeList"])  # so that nobody who expands it later finds that it cannot be read
    if f["ReqNodes"] not in known_requests:
        check_ranges(f["ReqNodes"])
    if gpus > MAX_COUNT:
        raise SlurmReplyError(f"{what} asks for {gpus} GPUs, more than {MAX_COUNT}")
    return SlurmJob(
        job_id=parse_integer(f["JobID"], "job id"),
        array_job_id=parse_integer(f["ArrayJobID"], what),
        array_task=text_or_empty(f["ArrayTaskID"]),
        state=f["State"],
        reason=f["Reason"],
        user=f["UserName"],
        uid=parse_integer(f["UserID"], what),
        account=text_or_empty(f["Account"]),
        partition=f["Partition"],
        qos=text_or_empty(f["QOS"]),
        name=f["Name"],
        comment="" if f["Comment"] == "(null)" else f["Comment"],
        submit_s=time_s(f["SubmitTime"], what),
        eligible_s=time_s(f["EligibleTime"], what),
        start_s=time_s(f["StartTime"], what),
        end_s=time_s(f["EndTime"], what),
        time_limit_s=span_s(f["TimeLimit"], "time limit"),
        priority=parse_integer(f["PriorityLong"], what),
        nice=parse_integer(f["Nice"], what),
        restarts=parse_integer(f["RestartCnt"], what),
        nodes=max(1, held.nodes),
        cpus=held.cpus,
        memory_mib=held.memory_mib,
        gpus=gpus,
        gpus_per_node=gpus_per_node + shared_per_node,
        gpu_type=gpu_type or parse_gpu_request(f["tres-per-job"])[1] or parse_gpu_request(f["tres-per-task"])[1],
        node_names=text_or_empty(f["NodeList"]),
        exit_code=_exit_code(f["exit_code"]),
        dependency=text_or_empty(f["Dependency"].rstrip()),
        hints=_hints(f["Comment"]),
        req_node_names=text_or_empty(f["ReqNodes"]),
        tres_per_node=text_or_empty(f["tres-per-node"]),
        tres_per_job=text_or_empty(f["tres-per-job"]),
        tres_per_task=text_or_empty(f["tres-per-task"]),
        cpus_per_task=task_count(f["cpus-per-task"], what),
        tasks=count,
        het_job_id=parse_integer(text_or_empty(f["HetJobID"]) or "0", what),
        requeue=f["Requeue"] == "1",
        batch=f["BatchFlag"] == "1",
        shared_gpus=shared,
        exclusive=_exclusive(f["OverSubscribe"], f["Exclusive"]),
    )


def _exit_code(text: str) -> str:
    """``STATUS:SIGNAL``; Slurm 22.05 prints the status of wait(2)."""
    return f"{int(text) >> 8 & 255}:{int(text) & 127}" if text.isascii() and text.isdigit() and len(text) < 10 else text


@lru_cache
def _exclusive(oversubscribe: str, exclusive: str) -> ExclusiveNodes:
    """Nobody else fits beside a job of which that cannot be told."""
    try:
        return parse_exclusive(oversubscribe, exclusive, "a job")
    except SlurmReplyError:
        return ExclusiveNodes.ALL


def _gpus_asked(f: Mapping[str, str], held: TrackableResources, tasks: int) -> int:
    """GPUs over all nodes where the site does not account them (no ``gres/gpu`` in AccountingStorageTRES)."""
    per_node = parse_gpu_request(f["tres-per-node"])[0] * max(1, held.nodes)
    return parse_gpu_request(f["tres-per-job"])[0] or per_node or parse_gpu_request(f["tres-per-task"])[0] * tasks


def _hints(comment: str) -> Hints:
    return _decoded(comment.rpartition(" ")[2]) if "soda:" in comment else _NO_HINTS


_NO_HINTS = Hints()


@lru_cache(maxsize=16384)
def _decoded(tag: str) -> Hints:
    return decode_comment(tag).hints


def task_ranges(tasks: Iterable[str]) -> str:
    """Task numbers as Slurm writes them: ``1,4-9``."""
    numbers = sorted(parse_integer(task, "array task") for task in tasks)
    pieces: list[str] = []
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            first, last = numbers[start], numbers[at - 1]
            pieces.append(str(first) if first == last else f"{first}-{last}")
            start = at
    return ",".join(pieces)
