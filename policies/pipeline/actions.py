"""What a plan asks to be done to jobs: small values, each with an id and the reason for people.

An action says what shall be, in the words of the policy; how Slurm is told is the actuator's work. Its id is unique in its
plan, and the same from cycle to cycle as long as the same is wanted of the same job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.services.service import Device
from slurm_soda.policies.snapshot_file.identifiers import (
    GpuTypeName,
    JobId,
    JobIdColumn,
    ModelName,
    NodeName,
    PartitionName,
    PoolName,
    Sentence,
    UserName,
)

WHOLE_QUEUE = ""
"""Stands for all jobs that are in no pool; without pools, for all jobs."""


def preemption_id(job_id: int) -> str:
    """Id of everything that is done to preempt one job; at most one preemption of a job is on its way."""
    return f"preempt:{job_id}"


@dataclass(frozen=True, slots=True, eq=False)
class OrderJobs:
    """The order in which Slurm shall try the waiting jobs of one pool, or of the one queue."""

    reason: Sentence
    """The policy's name: each job's place in the order follows it in what people read."""
    pool: PoolName = WHOLE_QUEUE
    job_ids: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Eligible jobs, most urgent first."""
    others: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Waiting jobs of the same queue that are not eligible: an old order of theirs must not put them in front."""
    unranked: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Eligible jobs about which the policy has nothing to say: they keep Slurm's own priority."""
    guests: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Waiting jobs whose request is that of a guest: nobody else can have their seats, so they go before all."""
    first: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Tasks of services that go before all jobs that are not overdue: what they take nobody else has."""
    reserving: int = 0
    """So many at the head of :attr:`job_ids` pass smaller jobs too, although they wait; counts in a pool alone."""
    fence: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Waiting jobs, of any queue, that nobody is put before and nothing is changed of: they are not in scope."""

    @property
    def id(self) -> str:
        """Unique in its plan: a queue has one order."""
        return f"order:{self.pool}"

    def led_by(self, first: JobIdColumn) -> OrderJobs:
        """The order in which those of these jobs that are in it go before all others that are not overdue."""
        columns = {name: getattr(self, name) for name in ("job_ids", "others", "unranked")}
        mine = first[np.isin(first, np.concatenate(list(columns.values())))]
        if not len(mine):
            return self
        rest = {name: column[~np.isin(column, mine)] for name, column in columns.items()}
        return replace(self, **rest, first=np.concatenate((self.first, mine)))


@dataclass(frozen=True, slots=True)
class PreemptJob:
    """Requeue a running job after its checkpoint; ``for_jobs`` get its GPUs."""

    job_id: JobId
    for_jobs: tuple[JobId, ...]
    reason: Sentence
    parted_from: tuple[JobId, ...] = ()
    """Jobs on its GPUs with which it is never to share again, ascending; empty where that is not why it leaves."""
    moves: bool = False
    """It leaves only because the plan has other places for it at once."""

    @property
    def id(self) -> str:
        """Unique in its plan."""
        return preemption_id(self.job_id)


@dataclass(frozen=True, slots=True)
class RequestedCpus:
    """What a waiting job asks for in CPUs and memory, as Slurm has it; 0 where the request does not say."""

    cpus: int
    """Over all nodes."""
    cpus_per_task: int
    least_cpus_per_node: int
    memory_per_cpu_mib: int = 0
    memory_per_node_mib: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """Give every task of a waiting job another number of CPUs."""

    job_id: JobId
    tasks_per_node: int
    cpus_per_task: int
    cpus: int
    """Over all nodes."""
    least_cpus_per_node: int
    before: RequestedCpus
    """The request that this was decided on."""
    reason: Sentence
    memory_per_cpu_mib: int | None = None
    """Memory for each CPU that shall hold from now on; ``None`` leaves the request for memory as it is."""

    @property
    def id(self) -> str:
        """Unique in its plan."""
        return f"resize:{self.job_id}"


@dataclass(frozen=True, slots=True)
class RouteJob:
    """Where a waiting job that Slurm requeued may start, and whether it is the next of its pool."""

    job_id: JobId
    reason: Sentence
    partitions: PartitionName | None = None
    """Slurm's list of partitions; ``None`` leaves the present one."""
    before: PartitionName = ""
    """The present list."""
    first_in: PoolName | None = None
    """Pool before whose other jobs it goes; ``None`` leaves its place. Of several, those first in the plan go first."""
    ends_wait: bool = False
    """Slurm's wait after the requeue ends now."""

    @property
    def id(self) -> str:
        """Unique in its plan."""
        return f"route:{self.job_id}"


@dataclass(frozen=True, slots=True)
class JoinGpus:
    """Let a waiting job start on GPUs of running ones, as their guest."""

    job_id: JobId
    hosts: tuple[JobId, ...]
    """Ascending."""
    nodes: tuple[NodeName, ...]
    """All its nodes, in the order of the snapshot."""
    gpus: tuple[int, ...]
    """Indices that it shares, the same on each of its nodes; ascending."""
    own: int
    """Idle GPUs on each node that it gets beside them."""
    reason: Sentence
    sub_batch: int = 0
    """Samples a GPU and forward pass; 0: its whole batch."""
    steps: int = 1
    """Forward passes before an optimiser step."""

    @property
    def id(self) -> str:
        """Unique in its plan."""
        return f"join:{self.job_id}"


@dataclass(frozen=True, slots=True)
class ScaleService:
    """How many tasks of a service shall run on one device (docs/design/0015-services.md)."""

    owner: UserName
    service: ModelName
    device: Device
    instances: int
    """Those that run already are counted, those that drain are not."""
    first: bool
    """Its waiting tasks go before all other jobs of their partition."""
    reason: Sentence
    gpu_type: GpuTypeName = ""
    """Tasks that ask for this type start before those that ask for another one: the least used of the types that it is
    profiled on. Where its tasks take any type, Slurm decides which they get. Empty: any.
    """

    @property
    def id(self) -> str:
        """Unique in its plan: there is one for each device of a service."""
        return f"scale:{self.owner}/{self.service}:{self.device.name.lower()}"


@dataclass(frozen=True, slots=True)
class DrainInstance:
    """An instance gets no new queries, and is requeued when it has answered what it had."""

    job_id: JobId
    owner: UserName
    service: ModelName
    reason: Sentence

    @property
    def id(self) -> str:
        """Unique in its plan."""
        return f"drain:{self.job_id}"


Action = OrderJobs | PreemptJob | ResizeRequest | RouteJob | JoinGpus | ScaleService | DrainInstance
