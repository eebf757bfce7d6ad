"""Records that prolog, epilog and agent write and the controller reads.

Every record is one JSON object a line. Unknown keys are ignored by readers, so that nodes and controller can be upgraded
apart; :data:`WIRE_VERSION` changes when a key changes its meaning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

WIRE_VERSION = 1

RecordKind = Literal["open", "close", "sample"]


@dataclass(frozen=True, slots=True)
class JobOpened:
    """Prolog's record: a run of a job began on this node. Times are Unix seconds."""

    job_id: int
    restart: int
    """SLURM_RESTART_COUNT: 0 for the first run. With ``job_id`` it names a run."""
    node: str
    uid: int
    user: str
    partition: str
    at_s: float
    gpus: tuple[int, ...]
    """Absolute indices of the job's GPUs on this node (SLURM_JOB_GPUS)."""
    cpus: int
    hints: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobClosed:
    """Epilog's record: the run ended on this node."""

    job_id: int
    restart: int
    node: str
    at_s: float
    exit_code: str = ""
    """``code:signal`` as Slurm gives it."""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What one run used on one node so far; cumulative, so that a lost or doubled report does no harm."""

    job_id: int
    restart: int
    node: str
    first_s: float
    last_s: float
    samples: int
    gpu_util_ratio: float
    """Time-weighted mean utilisation of the run's GPUs on this node, 0 to 1."""
    gpu_util_last_ratio: float
    gpu_memory_peak_mib: float
    """Largest sum over the run's GPUs on this node."""
    gpu_count: int
    cpu_s: float
    memory_peak_mib: float
    cpu_source: str = ""
    """Where CPU seconds and memory came from: ``cgroup/v1``, ``cgroup/v2`` or ``process tree``."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One upload of an agent: its identity, what happened, and the present usage of every run it knows."""

    node: str
    agent_id: str
    """Random per agent start."""
    seq: int
    sent_s: float
    opened: tuple[JobOpened, ...] = ()
    closed: tuple[JobClosed, ...] = ()
    usage: tuple[JobUsage, ...] = ()
    gpu_count: int = 0
    faults: tuple[str, ...] = ()
    """What prolog, epilog or agent could not do, for ``sodactl status``."""
    version: int = WIRE_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)
