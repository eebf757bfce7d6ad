"""What Slurm's accounting says about jobs, run by run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One run of a job by sacct: from start to end or requeue. Times are Unix seconds, NaN where there is none."""

    start_s: float
    end_s: float
    state: str
    exit_code: str
    cpu_s: float
    """User and system CPU seconds of all steps."""
    memory_peak_mib: float
    """Largest MaxRSS of any step; NaN if accounting has none."""
    gpus: int
    cpus: int
    nodes: int
    node_names: str


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """One job by sacct, with every run, oldest first."""

    job_id: int
    user: str
    name: str
    submit_s: float
    """First submission."""
    state: str
    exit_code: str
    runs: tuple[AccountedRun, ...]
