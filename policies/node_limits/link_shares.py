"""Who gets which part of the link (SODA, Section V-E). Pure: no interface is touched here.

An HTB tree: CPU jobs on one side; GPU jobs on the other, together with all that belongs to no job (ssh, NFS, Slurm, the
agent), which has a class of its own so that no job can starve it. What one class leaves the others may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

ROOT, NOT_CPU, GPU, CPU, OTHER = 0x1, 0x2, 0x10, 0x20, 0x30
OTHER_PERCENT_OF_GPUS = 10
"""Of the GPU jobs' part this much is kept for what belongs to no job."""
GPU_PERCENT = 75.0
"""Kept for GPU jobs while one of several nodes is here (SODA, Section V-E)."""
CPU_PERCENT_BESIDE = 1
"""CPU jobs' part of the GPU jobs' interface where they have an interface of their own."""
_BITS_PER_MBIT = 1e6


class ShareSettings(Protocol):
    """What a site may set about shares."""

    @property
    def gpu_percent(self) -> float:
        """Kept for GPU jobs, of the link."""
        ...

    @property
    def cpu_may_borrow(self) -> bool:
        """CPU jobs may use more while the link has room."""
        ...

    @property
    def separate(self) -> bool:
        """CPU jobs have an interface of their own."""
        ...


class NodeJob(Protocol):
    """What matters here of a job on the node."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Its GPUs on this node."""
        ...

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        ...


JobT = TypeVar("JobT", bound=NodeJob)


@dataclass(frozen=True, slots=True)
class ShareClass:
    """One class of the tree; rates are bytes a second."""

    minor: int
    parent: int
    """Minor number of the class above, 0: the qdisc."""
    rate: int
    """Kept for it."""
    ceiling: int
    """The most it gets while others leave some."""
    priority: int = 0
    """Who borrows first: lower numbers."""


@dataclass(frozen=True, slots=True)
class CompetingJobs(Generic[JobT]):
    """Jobs on this node whose traffic is told apart."""

    gpu: tuple[JobT, ...] = ()
    cpu: tuple[JobT, ...] = ()


def find_competing_jobs(jobs: Iterable[JobT]) -> CompetingJobs[JobT] | None:
    """The jobs to tell apart, or None while there is nothing to share out.

    There is, while a GPU job of several nodes and a CPU job are both here: only the former wait for the network (Section
    IV-C2). GPU jobs of one node count among the GPU jobs then.
    """
    known = tuple(jobs)
    gpu = tuple(job for job in known if job.gpus)
    cpu = tuple(job for job in known if not job.gpus)
    return CompetingJobs(gpu, cpu) if cpu and any(job.nodes > 1 for job in gpu) else None


def build_share_classes(settings: ShareSettings, link_mbit_per_s: float) -> tuple[ShareClass, ...]:
    """The tree for a link of this speed, parents first."""
    link = link_mbit_per_s * _BITS_PER_MBIT / 8
    cpu_percent = CPU_PERCENT_BESIDE if settings.separate else 100 - settings.gpu_percent
    borrows = settings.cpu_may_borrow and not settings.separate
    rest = 100 - cpu_percent
    other = rest * OTHER_PERCENT_OF_GPUS / 100

    def rate(percent: float) -> int:
        return max(int(link * percent / 100), 1)

    return (
        ShareClass(ROOT, 0, rate(100), rate(100)),
        ShareClass(NOT_CPU, ROOT, rate(rest), rate(100)),
        ShareClass(OTHER, NOT_CPU, rate(other), rate(100), priority=0),
        ShareClass(GPU, NOT_CPU, rate(rest - other), rate(100), priority=1),
        ShareClass(CPU, ROOT, rate(cpu_percent), rate(100 if borrows else cpu_percent), priority=2),
    )
