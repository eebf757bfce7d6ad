"""What a waiting job's request for CPUs should be, and why others are left as they are (SODA, Section V-B).

Slurm shows a job's request in detail only one job at a time. So :func:`fit_without_detail` says first what follows from what
every reading shows; only where that may be a change is the detail worth a query (:func:`fit_with_detail`). What its owner
does to the request after us, or an admin by ``sodactl undo``, stands (:func:`after_earlier`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from slurm_soda.policies.cpu_fit.request_resize import ResizedRequest, WaitingRequest, resize_request
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, FitHistory, NodeCapacity, StartCores
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import Sentence, Word

MOST_REMEMBERED = 100_000
"""Answers kept by their questions; a job that waits asks the same in every cycle."""


class JobForm(IntEnum):
    """Whether a request belongs to one job that may be changed."""

    PLAIN = 0
    ARRAY = 1
    """Several waiting tasks of a job array."""
    UNTOUCHABLE = 2
    """Part of a heterogeneous job, or one that insists on nodes that are not there."""


_NEVER_CHANGED = {
    JobForm.ARRAY: "it stands for several waiting tasks of an array, which share one request",
    JobForm.UNTOUCHABLE: "it is part of a heterogeneous job, or insists on nodes that are not there",
}


_LIFTED = "after a change by slurm-soda Slurm would no longer enforce limits of accounting on it"


class CpuFitCandidate(NamedTuple):
    """What every reading of Slurm shows of a waiting job, as far as its CPUs depend on it; numbers are over all nodes."""

    gpus: int
    nodes: int
    tasks: int
    cpus_per_task: int
    cpus: int
    pipelined: bool = False
    large_weights: bool = False
    heavy_preprocessing: bool = False
    form: int = JobForm.PLAIN
    category: str | None = None
    model: str | None = None
    limit: str = ""
    """What :func:`~.limits.binding_limit` says of it."""


class RequestDetail(NamedTuple):
    """What Slurm shows of one waiting job's request when it is asked."""

    nodes: int
    tasks_per_node: int
    """0: nobody can say before the job starts."""
    cpus: int
    """Over all nodes."""
    cpus_per_task: int
    least_cpus_per_node: int
    memory_per_cpu_mib: int = 0
    memory_per_node_mib: int = 0
    tied_to: str = ""
    """What its CPUs are tied to, in Slurm's words; empty: nothing."""


class EarlierResize(IntEnum):
    """What became of a change of ours."""

    STANDS = 0
    IN_FLIGHT = 1
    """Nobody knows yet."""
    UNDONE = 2
    """Somebody took it back."""
    REFUSED = 3
    """Slurm refused it."""


class EarlierChange(NamedTuple):
    """The newest change of ours of one job's CPUs."""

    outcome: EarlierResize
    cpus: int
    """What it asked for, over all nodes."""
    cpus_per_task: int
    least_cpus_per_node: int
    memory_per_cpu_mib: int = 0
    """0: it left the request for memory as it was."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class CpuFitNote:
    """What is said of one job's CPUs, for people."""

    cores: int | None = None
    """What it should have on each node."""
    source: Word = ""
    """Where that comes from: :attr:`.StartCores.source`."""
    left_alone: Sentence = ""
    """Why its request is not touched; empty: it is right, or shall be changed."""


@dataclass(frozen=True, slots=True)
class RequestFit:
    """What follows for one job."""

    note: CpuFitNote
    resized: ResizedRequest | None = None
    """What it shall ask for; ``None``: nothing else than it does."""


UNREADABLE = RequestFit(CpuFitNote(left_alone="Slurm's answer about its request cannot be read (see sodad's log)"))


@lru_cache(maxsize=MOST_REMEMBERED)
def fit_without_detail(job: CpuFitCandidate, node: NodeCapacity | None, history: FitHistory) -> RequestFit | None:
    """What can be said without the detail of the request; ``None`` if the request may have to change.

    Args:
        job: what every reading shows.
        node: the smallest node that it may run on; ``None``: no node has its GPUs.
        history: of its owner.
    """
    if job.form != JobForm.PLAIN:
        return _left_alone(_NEVER_CHANGED[JobForm(job.form)])
    if node is None:
        return _left_alone("no node has its GPUs")
    tasks = -(-job.tasks // job.nodes)
    try:
        waiting = WaitingRequest(_request(job), tasks, tasks * job.cpus_per_task)
        resized = resize_request(waiting, history, NodeCapacity(node.cores))
    except PolicyError as error:
        return _makes_no_sense(error)
    if resized.cores * job.nodes != job.cpus:
        return _left_alone(f"{_LIFTED} ({job.limit})") if job.limit else None
    return RequestFit(CpuFitNote(resized.cores, resized.start.source))


@lru_cache(maxsize=MOST_REMEMBERED)
def fit_with_detail(job: CpuFitCandidate, detail: RequestDetail, node: NodeCapacity, history: FitHistory) -> RequestFit:
    """What follows from all that the job asks for."""
    if refusal := _inconsistent(job, detail) or _refused(detail):
        return _left_alone(refusal)
    present = detail.tasks_per_node * detail.cpus_per_task
    try:
        resized = resize_request(WaitingRequest(_request(job, detail), detail.tasks_per_node, present), history, node)
    except PolicyError as error:
        return _makes_no_sense(error)
    note = CpuFitNote(resized.cores, resized.start.source)
    return RequestFit(note, None if resized.cores == present else resized)


def after_earlier(fit: RequestFit, detail: RequestDetail, earlier: EarlierChange | None) -> RequestFit | None:
    """What is left of a change in the light of the one before; ``None`` while nobody knows what became of that."""
    if fit.resized is None or earlier is None:
        return fit
    if earlier.outcome == EarlierResize.IN_FLIGHT:
        return None
    refusal = _refused_by_past(wanted_of(fit.resized, detail), detail, earlier)
    if refusal:
        return RequestFit(CpuFitNote(fit.note.cores, fit.note.source, refusal))
    if earlier.memory_per_cpu_mib and earlier.memory_per_cpu_mib == detail.memory_per_cpu_mib:
        # Memory by core is ours: what it is in all is what the owner asked for, with more cores as with fewer.
        whole_mib = detail.memory_per_cpu_mib * detail.tasks_per_node * detail.cpus_per_task
        return replace(fit, resized=replace(fit.resized, memory_per_core_mib=whole_mib // fit.resized.cores))
    return fit


def wanted_of(resized: ResizedRequest, detail: RequestDetail) -> tuple[int, int, int, int]:
    """CPUs over all nodes, CPUs per task, least CPUs per node, and memory per CPU in MiB (0: as it is) to ask for."""
    per_node = resized.cores_per_task * detail.tasks_per_node
    return per_node * detail.nodes, resized.cores_per_task, per_node, resized.memory_per_core_mib


def resize_reason(resized: ResizedRequest, detail: RequestDetail) -> str:
    """Why a request shall change, for people."""
    present = detail.tasks_per_node * detail.cpus_per_task
    return f"cores: {resized.cores} instead of {present} on each node, {source_text(resized.start)}"


_SOURCES = {
    "model": "what earlier jobs of this owner and model needed",
    "category": "what earlier jobs of this owner and category needed",
    "owner": "what earlier jobs of this owner needed",
    "default": "usual for its category, as its owner has no earlier job like it",
}


def source_text(start: StartCores) -> str:
    """Where N_start comes from."""
    capped = "; as far as its nodes and memory allow" if start.capped else ""
    return _SOURCES[start.source] + capped


def _left_alone(why: str) -> RequestFit:
    return RequestFit(CpuFitNote(left_alone=why))


def _makes_no_sense(error: PolicyError) -> RequestFit:
    return _left_alone(f"its request makes no sense: {error}")


def _refused(detail: RequestDetail) -> str:
    """Why this request must not be changed; empty if it may."""
    if detail.tied_to:
        return f"its CPUs are tied to something else ({detail.tied_to})"
    if not detail.tasks_per_node:
        return "how many tasks each node gets is open: --nodes and --ntasks-per-node would say it"
    if detail.least_cpus_per_node > detail.tasks_per_node * detail.cpus_per_task:
        return "it asks for a minimum of CPUs on each node (--mincpus)"
    return ""


def _inconsistent(job: CpuFitCandidate, detail: RequestDetail) -> str:
    """A request that changed since all jobs were read is looked at again as soon as they show that."""
    if detail.cpus == job.cpus:
        return ""
    return f"Slurm says {job.cpus} CPUs in one place and {detail.cpus} in another"


def _refused_by_past(wanted: tuple[int, int, int, int], detail: RequestDetail, earlier: EarlierChange) -> str:
    """Why a change must not be made after what was done before; empty if it may."""
    if earlier.outcome == EarlierResize.UNDONE:
        return "a change of ours was taken back by hand"
    if earlier.outcome == EarlierResize.REFUSED:
        return f"Slurm refused: {earlier.error}" if wanted == earlier[1:5] else ""
    return "" if earlier.cpus == detail.cpus else "its request was changed after ours, and that stands"


def _request(job: CpuFitCandidate, detail: RequestDetail | None = None) -> CoreRequest:
    return CoreRequest(
        gpus=-(-job.gpus // job.nodes),
        category=job.category,
        model=job.model,
        pipelined=bool(job.pipelined),
        large_weights=bool(job.large_weights),
        heavy_preprocessing=bool(job.heavy_preprocessing),
        memory_mib=detail.memory_per_node_mib if detail else 0,
        memory_per_core_mib=detail.memory_per_cpu_mib if detail else 0,
    )
