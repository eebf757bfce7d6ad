"""How sacct writes times, job ids and resources."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from slurm_soda.policies.snapshot import NEVER, UNLIMITED_S
from slurm_soda.slurm_ext.read.slurm_values import memory_mib, parse_gpu_request, parse_tres, span_s

_NO_TIME = frozenset({"", "Unknown", "None", "N/A", "NONE", "(null)", "0"})
_NO_NUMBER = frozenset({"", "N/A", "None"})
_LATEST_S = 253_402_300_799.0
"""The year 9999."""
_MOST = 2**40
"""CPUs, GPUs or MiB that a job may be said to hold."""
_JOB_ID = re.compile(r"(?P<job>\d{1,18})(?:_(?P<task>\d{1,9}|\[.*))?(?:\+(?P<part>\d{1,9}))?(?P<step>\..+)?", re.DOTALL)
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class SacctJobId:
    """A JobID taken apart: ``4711``, ``4711_3``, ``4711_[5-9%2]``, ``4711+1`` or, with a step, ``4711.batch``."""

    text: str
    """Without the step."""
    step: bool
    het_leader: str
    """Id of the heterogeneous job that this is a component of; empty: of none."""
    tasks: int
    """Array tasks that this record stands for."""


def parse_job_id(text: str) -> SacctJobId:
    """Take a JobID apart.

    Raises:
        ValueError: it is none.
    """
    match = _JOB_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"JobID {_shown(text)} is no job id such as 4711, 4711_3 or 4711.batch")
    step, task = match["step"] or "", match["task"] or ""
    return SacctJobId(
        text=text[: len(text) - len(step)],
        step=bool(step),
        het_leader=match["job"] if match["part"] is not None else "",
        tasks=_task_count(task) if task.startswith("[") else 1,
    )


def _task_count(text: str) -> int:
    """Tasks in ``[0-9:2,20%5]``, as far as they are named: sacct ends a long list with dots."""
    total = 0
    for piece in text.strip("[]").partition("%")[0].split(","):
        if (match := _TASKS.fullmatch(piece)) is not None:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1) or 1
            total += max(0, (last - first) // step + 1)
    return max(total, 1)


def parse_time_s(text: str, column: str) -> float:
    """A point in time as Unix seconds; NaN where sacct has none.

    A time without a zone (sacct's own form) is taken as if it were UTC: differences are right but for the hour that is
    put in or left out twice a year.

    Raises:
        ValueError: neither ``2026-11-21T01:54:54`` nor Unix seconds.
    """
    if text in _NO_TIME:
        return NEVER
    try:
        if text.isdecimal():
            value = float(text)
        else:
            when = datetime.fromisoformat(text)
            value = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        value = NEVER
    if not 0 < value <= _LATEST_S:
        raise ValueError(
            f"{column} is {_shown(text)}, no time such as 2026-11-21T01:54:54 or 1795226094; run sacct with"
            " SLURM_TIME_FORMAT=%s"
        )
    return value


def parse_elapsed_s(text: str, column: str) -> float:
    """Seconds (``ElapsedRaw``) or ``1-02:03:04`` (``Elapsed``); NaN where sacct has none.

    Raises:
        ValueError: neither.
    """
    if text in _NO_TIME and text != "0":
        return NEVER
    value = float(text) if text.isdecimal() else span_s(text, column)
    if not 0 <= value <= _LATEST_S:
        raise ValueError(f"{column} is {_shown(text)}, no time span such as 1-02:03:04")
    return value


@lru_cache(maxsize=4096)
def parse_limit_s(text: str, column: str, minutes: bool) -> float:
    """A time limit: whole minutes (``TimelimitRaw``) or ``1-02:03:04``; infinite where there is none.

    Raises:
        ValueError: neither.
    """
    value = float(text) * 60 if minutes and text.isdecimal() else span_s(text, column)
    if value > _LATEST_S and value != UNLIMITED_S:
        raise ValueError(f"{column} is {_shown(text)}, which is too long for a time limit")
    return value or UNLIMITED_S


def parse_count(text: str, column: str) -> int:
    """A count, with sacct's ``1.50K`` for large ones; 0 where there is none.

    Raises:
        ValueError: it is none.
    """
    if text in _NO_NUMBER:
        return 0
    value = int(text) if text.isdecimal() and len(text) < 16 else round(memory_mib(text, column))
    return _checked(value, text, column)


@dataclass(frozen=True, slots=True)
class AllocatedTres:
    """What a TRES text says of one job, over all its nodes."""

    cpus: int = 0
    memory_mib: int = 0
    nodes: int = 0
    gpus: int = 0
    gpu_type: str = ""
    shares: bool = False
    """It names parts of GPUs: gres/shard, gres/mps, or slurm-soda's gres/sharedgpu."""
    shared_gpus: int = 0
    """Of :attr:`gpus`, those that it names as gres/sharedgpu."""


@lru_cache(maxsize=65536)
def parse_allocated_tres(text: str, column: str) -> AllocatedTres:
    """``billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=2``.

    Raises:
        ValueError: an amount is out of range.
        SlurmReplyError: it is no such text.
    """
    found = parse_tres(text)
    for value in (found.cpus, found.memory_mib, found.nodes, found.gpus):
        _checked(value, text, column)
    shares = any(f"gres/{name}" in text for name in ("shard", "mps", "sharedgpu"))
    return AllocatedTres(
        found.cpus, found.memory_mib, found.nodes, found.gpus, found.gpu_type, shares, found.shared_gpus
    )


@lru_cache(maxsize=65536)
def parse_gres(text: str, column: str) -> tuple[int, str]:
    """GPUs and their type of a list in the form before TRES: ``gpu:a100:2`` or ``gres:gpu:2``."""
    gpus, gpu_type = parse_gpu_request(text)
    return _checked(gpus, text, column), gpu_type


@lru_cache(maxsize=4096)
def parse_requested_mib(text: str, nodes: int, cpus: int) -> int:
    """``ReqMem``: ``4G`` for the whole job, ``4Gn`` for each node, ``2Gc`` for each CPU; 0 where there is none.

    Raises:
        SlurmReplyError: it is no amount.
    """
    factor = {"n": max(nodes, 1), "c": max(cpus, 1)}.get(text[-1:], 1)
    amount = text[:-1] if text[-1:] in ("n", "c") else text
    return _checked(memory_mib(amount, "ReqMem") * factor, text, "ReqMem") if amount else 0


def _checked(value: float, text: str, column: str) -> int:
    if not (math.isfinite(value) and 0 <= value <= _MOST):
        raise ValueError(f"{column} is {_shown(text)}, which is out of range")
    return int(value)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
