"""One allocation record of sacct: a run of a job, or the wait for one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_soda.simulator.traces.sacct import values
from slurm_soda.simulator.traces.sacct.columns import SACCT_COMMAND, SacctHeader
from slurm_soda.simulator.traces.sacct.values import AllocatedTres, SacctJobId
from slurm_soda.slurm_ext.read.job_states import KNOWN_STATES as STATES

_REQUIRED = (
    ("JobID", "JobIDRaw"), ("Submit",), ("Start",), ("End", "Elapsed", "ElapsedRaw"), ("State",),
    ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "AllocCPUS", "NCPUS", "ReqCPUS"),
)  # fmt: skip
_PARTITION = "main"
"""Of jobs whose dump names none."""
_NOT_STARTED = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})


@dataclass(frozen=True, slots=True)
class SacctRow:
    """One record. Times are Unix seconds, NaN where there is none; resources are over all nodes."""

    line: int
    id: SacctJobId
    cluster: str
    user: str
    partition: str
    """The first one where a job named several."""
    qos: str
    state: str
    submit_s: float
    ready_s: float
    """When it became eligible; the submission where sacct was not asked."""
    start_s: float
    end_s: float
    ran_s: float
    """From start to end without the time that it was suspended; NaN if it did not run or has not ended."""
    limit_s: float
    gpus: int
    gpu_type: str
    """Type that was asked for, or where sacct was not asked, that was got."""
    got_gpu_type: str
    shares: bool
    """It held parts of GPUs."""
    nodes: int
    least_nodes: int
    cpus: int
    memory_mib: int
    node_list: str
    restarts: int
    """-1: unknown."""
    comment: str

    @property
    def started(self) -> bool:
        """It ran, or runs."""
        return not math.isnan(self.start_s)


class SacctRowReader:
    """Reads records under one header."""

    def __init__(self, header: SacctHeader) -> None:
        """Find the columns.

        Raises:
            ValueError: one that is needed is not there.
        """
        for names in _REQUIRED:
            if header.at(*(name.lower() for name in names)) is None:
                raise ValueError(f"there is no column {' or '.join(names)}; make the dump with: {SACCT_COMMAND}")
        self._header = header
        self._id = self._cell("jobid", "jobidraw")
        self._state, self._submit = self._cell("state"), self._cell("submit")
        self._eligible, self._start, self._end = self._cell("eligible"), self._cell("start"), self._cell("end")
        self._elapsed = self._cell("elapsedraw", "elapsed")
        self._limit = self._cell("timelimitraw", "timelimit")
        self._limit_in_minutes = header.at("timelimitraw") is not None
        self._alloc, self._request = self._cell("alloctres"), self._cell("reqtres")
        self._alloc_gres, self._request_gres = self._cell("allocgres"), self._cell("reqgres")
        self._nodes, self._least_nodes = self._cell("nnodes", "allocnodes"), self._cell("reqnodes")
        self._cpus, self._memory = self._cell("alloccpus", "ncpus", "reqcpus"), self._cell("reqmem")
        self._cluster, self._user, self._qos = self._cell("cluster"), self._cell("user"), self._cell("qos")
        self._partition, self._node_list = self._cell("partition"), self._cell("nodelist")
        self._restarts = self._cell("restarts")
        self._comment = self._cell("comment")

    def _cell(self, *names: str) -> Callable[[Sequence[str]], str]:
        at = self._header.at(*names)
        return (lambda _: "") if at is None else (lambda cells: cells[at])

    def has(self, *names: str) -> bool:
        """Whether one of these columns is there (names in lower case)."""
        return self._header.at(*names) is not None

    def read(self, line: int, cells: Sequence[str]) -> SacctRow | None:
        """The row, or ``None`` for a step of a job.

        Raises:
            ValueError, SlurmReplyError: a cell cannot be read; the message names its column and what is allowed.
        """
        job = values.parse_job_id(self._id(cells))
        if job.step:
            return None
        state = self._state(cells).partition(" ")[0].rstrip("+")
        if state not in STATES:
            raise ValueError(f"State is {self._state(cells)[:40]!r}, which is no state of Slurm")
        submit_s = values.parse_time_s(self._submit(cells), "Submit")
        if math.isnan(submit_s):
            raise ValueError(f"job {job.text} has no Submit time")
        ready_s = values.parse_time_s(self._eligible(cells), "Eligible")
        start_s, end_s, ran_s = self._times(cells, job.text, state)
        held, gpu_type, least_nodes = self._resources(cells)
        return SacctRow(
            line=line,
            id=job,
            cluster=self._cluster(cells),
            user=self._user(cells),
            partition=self._partition(cells).partition(",")[0] or _PARTITION,
            qos=self._qos(cells),
            state=state,
            submit_s=submit_s,
            ready_s=submit_s if math.isnan(ready_s) else ready_s,
            start_s=start_s,
            end_s=end_s,
            ran_s=ran_s,
            limit_s=values.parse_limit_s(self._limit(cells), "Timelimit", self._limit_in_minutes),
            gpus=held.gpus,
            gpu_type=gpu_type,
            got_gpu_type=held.gpu_type,
            shares=held.shares,
            nodes=held.nodes,
            least_nodes=least_nodes,
            cpus=held.cpus,
            memory_mib=held.memory_mib,
            node_list=self._node_list(cells),
            restarts=int(text) if (text := self._restarts(cells)).isdecimal() and len(text) < 10 else -1,
            comment=self._comment(cells),
        )

    def _times(self, cells: Sequence[str], job: str, state: str) -> tuple[float, float, float]:
        """Start, end, and how long it ran."""
        start_s = values.parse_time_s(self._start(cells), "Start")
        end_s = values.parse_time_s(self._end(cells), "End")
        if math.isnan(start_s) or state in _NOT_STARTED:
            return math.nan, end_s, math.nan
        elapsed_s = values.parse_elapsed_s(self._elapsed(cells), "Elapsed")
        if not self.has("end") and state not in ("RUNNING", "SUSPENDED"):
            end_s = start_s + elapsed_s
        if end_s < start_s:
            raise ValueError(
                f"job {job} has its End {start_s - end_s:.0f} s before its Start; where the clock was set back, run sacct"
                " with SLURM_TIME_FORMAT=%s"
            )
        ran_s = end_s - start_s
        return start_s, end_s, elapsed_s if elapsed_s <= ran_s else ran_s

    def _resources(self, cells: Sequence[str]) -> tuple[AllocatedTres, str, int]:
        """What it held (or, where that is not said, asked for), the type of GPU asked for, and its least nodes."""
        asked, got = (
            values.parse_allocated_tres(self._request(cells), "ReqTRES"),
            values.parse_allocated_tres(self._alloc(cells), "AllocTRES"),
        )
        # Who asked for no part of a GPU, and got all of them with --exclusive, shares with nobody.
        shares = asked.shares if self._request(cells) else got.shares
        nodes = got.nodes or values.parse_count(self._nodes(cells), "NNodes") or asked.nodes or 1
        cpus = got.cpus or values.parse_count(self._cpus(cells), "AllocCPUS") or asked.cpus
        memory_mib = got.memory_mib or asked.memory_mib
        if not memory_mib and (text := self._memory(cells)):
            memory_mib = values.parse_requested_mib(text, nodes, cpus)
        own = got.gpus if shares else got.gpus - got.shared_gpus
        gpus, gpu_type = (own, got.gpu_type) if self._alloc(cells) else (asked.gpus, asked.gpu_type)
        if not gpus and (text := self._alloc_gres(cells)):
            gpus, gpu_type = values.parse_gres(text, "AllocGRES")
        elif not gpus and (text := self._request_gres(cells)):
            each, gpu_type = values.parse_gres(text, "ReqGRES")
            gpus = each * nodes
        wanted_type = asked.gpu_type if self._request(cells) else gpu_type
        least = asked.nodes or values.parse_count(self._least_nodes(cells), "ReqNodes") or nodes
        held = AllocatedTres(cpus, memory_mib, nodes, gpus, gpu_type, shares)
        return held, wanted_type, min(least, nodes)
