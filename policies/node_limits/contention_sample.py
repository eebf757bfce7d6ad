"""What a decision on contention sees: one node's jobs and memory traffic between two readings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuJob:
    """A job without GPUs on this node."""

    job_id: int
    cores: int
    """Allocated, whatever limit holds now."""
    bytes_per_s: float | None = None
    """None: it has no counter."""


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A job with GPUs on this node."""

    job_id: int
    util_ratio: float | None = None
    stable_util_ratio: float | None = None
    """Undisturbed, from an earlier measurement; None: learned from its first samples here."""


@dataclass(frozen=True, slots=True)
class ContentionSample:
    """The node between two readings. None: not known this time."""

    cpu_jobs: tuple[CpuJob, ...] = ()
    gpu_jobs: tuple[GpuJob, ...] = ()
    node_bytes_per_s: float | None = None
    domain_bytes_per_s: float | None = None
    """The fullest domain's."""
    complete: bool = True
    """False: the rates are lower bounds."""
