"""The port to Slurm: what the rest of slurm-soda may ask of it. Back ends implement :class:`SlurmClient`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob


class HeldOnNode(NamedTuple):
    """What a job holds on one node."""

    node: str
    gpus: int
    """Those that others hold as well too."""
    cpus: int
    gpu_indices: tuple[int, ...] = ()
    """GPUs of the node that it holds as ``gpu``; fewer than :attr:`gpus` where Slurm does not tell."""
    shared_indices: tuple[int, ...] = ()
    """GPUs of the node that it holds as a guest."""

    @property
    def devices(self) -> tuple[int, ...] | None:
        """All its GPUs, ascending; ``None`` where Slurm does not tell which."""
        devices = tuple(sorted({*self.gpu_indices, *self.shared_indices}))
        return devices if len(devices) == self.gpus else None


MAX_ADDRESS_BYTES = 4000

Allocation = list[HeldOnNode]
"""What a job holds, node by node."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job as Slurm tells it, already typed. User-given text is kept with undecodable bytes as surrogate escapes."""

    job_id: int
    array_job_id: int
    array_task: str
    """Task index, a range for the pending rest of an array (``4-9``), or empty."""
    state: str
    """Slurm's base state, such as ``PENDING`` or ``RUNNING`` or ``COMPLETING``."""
    reason: str
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    name: str
    comment: str
    submit_s: float
    """Slurm sets it anew at every requeue: the first one is :attr:`JobRunHistory.submit_s`'s to remember."""
    eligible_s: float
    start_s: float
    """Start of the present or last run, or Slurm's estimate while pending; NaN if unknown."""
    end_s: float
    time_limit_s: float
    priority: int
    nice: int
    restarts: int
    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    gpus_per_node: int
    gpu_type: str
    node_names: str
    """Slurm's compressed host list (``n[1-2]``), empty while pending."""
    exit_code: str
    dependency: str
    """As Slurm writes it; a long one may be cut."""
    hints: Hints = field(default_factory=Hints)
    req_node_names: str = ""
    """Nodes the user asked for by name, as a host list."""
    tres_per_node: str = ""
    """What each node must give, in Slurm's words (``gres/gpu:2``); a rewrite's old value."""
    tres_per_job: str = ""
    """What all its nodes together must give."""
    tres_per_task: str = ""
    cpus_per_task: int = 1
    tasks: int = 1
    het_job_id: int = 0
    """Leader of the heterogeneous job that this is a component of, or 0."""
    requeue: bool = True
    """Slurm may requeue it (``--no-requeue`` says no)."""
    batch: bool = True
    """Submitted with sbatch. Slurm cannot requeue what salloc or srun started."""
    shared_gpus: int = 0
    """Of :attr:`gpus`, those that it has, or waits for, beside another job: then it is a guest there."""
    exclusive: ExclusiveNodes = ExclusiveNodes.NOBODY
    """From whom it keeps its nodes."""

    @property
    def array_rest(self) -> bool:
        """Whether it stands for several tasks of an array that still wait."""
        return bool(self.array_task) and not self.array_task.isdigit()

    @property
    def address(self) -> str:
        """What Slurm's commands take for this record alone.

        The waiting rest of an array, and its last task, have the array's id, by which an update or requeue hits every task.
        A rest whose list of tasks is too long for a command has no other address.
        """
        if not self.array_task:
            return str(self.job_id)
        tasks = f"[{self.array_task}]" if self.array_rest else self.array_task
        address = f"{self.array_job_id}_{tasks}"
        return address if len(address) <= MAX_ADDRESS_BYTES else str(self.job_id)

    def was_submitted_at(self, first_submit_s: float) -> bool:
        """Whether this is the job that was first submitted then, and not a later one of its id.

        Slurm moves the submit time of a job at every requeue, and gives ids anew after a reset of its state.
        """
        return self.submit_s == first_submit_s or (self.restarts > 0 and self.submit_s >= first_submit_s)

    def waits_for_begin_time(self, now_s: float) -> bool:
        """Whether this pending job waits for its begin time, as Slurm makes a requeued one (121 s).

        Not if it is held or depends on other jobs: that is not ours to end.
        """
        if self.reason == "BeginTime":
            return True
        return self.eligible_s > now_s and not self.reason.startswith(("JobHeld", "Depend"))


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm tells it."""

    name: str
    state: str
    """Slurm's full state, such as ``MIXED+DRAIN``."""
    usable: bool
    cpus: int
    cpus_allocated: int
    memory_mib: int
    memory_allocated_mib: int
    gpus: int
    gpus_allocated: int
    gpu_type: str
    partitions: tuple[str, ...]
    features: tuple[str, ...] = ()
    """Those that are active."""
    gres: str = ""
    """All generic resources, in Slurm's words (``gpu:a100:4,sharedgpu:g0:1``)."""
    gres_used: str = ""
    gpus_in_use: tuple[int, ...] | None = ()
    """Indices of GPUs that are allocated, of all from 0 to below :attr:`gpus`; ``None`` where Slurm does not tell them."""
    shareable: tuple[int, ...] = ()
    """Indices of GPUs that can have a guest."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One ``scontrol update`` of a job: field names and values in Slurm's own words, such as ``("SiteFactor", "7")``."""

    job_id: int
    fields: tuple[tuple[str, str], ...]
    array_task: str = ""
    """Only this one of the waiting tasks that the job stands for, which Slurm then makes a job of its own."""


@dataclass(frozen=True, slots=True)
class JobUpdateResult:
    """What became of one :class:`JobUpdate`; ``error`` is empty when Slurm took it."""

    job_id: int
    error: str = ""
    answered: bool = True
    """False if Slurm may have taken it all the same."""


class SlurmClient(Protocol):
    """Reads and changes a Slurm cluster. Every call is bounded in time.

    Raises:
        SlurmCommandError: Slurm refused, or did not answer in time.
        SlurmReplyError: the answer cannot be read.
    """

    def jobs(self) -> list[SlurmJob]:
        """All jobs that slurmctld still knows, ended ones included, by job id."""
        ...

    def nodes(self) -> list[SlurmNode]:
        """All nodes, in slurmctld's order."""
        ...

    def waiting_jobs(self) -> Mapping[int, WaitingJob]:
        """What else Slurm tells of waiting jobs, by id, by one process; a job that is not understood is left out."""
        ...

    def site_factors(self) -> dict[int, int]:
        """SiteFactor of the pending jobs that slurmctld reports one for (0 may be left out).

        Raises:
            PriorityPluginError: Slurm has a priority plugin that knows none.
        """
        ...

    def priority_parts(self) -> dict[int, ShownPriority]:
        """Of what the priority of waiting jobs is made, by id; jobs of which Slurm has computed none are left out."""
        ...

    def most_earned_priority(self) -> int:
        """Points that fair share and age can give a job together."""
        ...

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        """What running jobs hold, exactly as allocated, by one process; an answer for each."""
        ...

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        """The Extra of jobs, by one process; an answer for each."""
        ...

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        """How many tasks of each array may run at a time by its owner's word (``--array=0-7%4``), 0: any number; by one
        process, an answer for each.
        """
        ...

    def request(self, job_id: int) -> JobRequest:
        """What a waiting job asks for, in detail."""
        ...

    def partition_limits(self) -> dict[str, PartitionLimits]:
        """Limits of every partition, by name."""
        ...

    def partition_tiers(self) -> dict[str, int]:
        """PriorityTier of every partition, by name."""
        ...

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        """Apply updates in order through one process; one result each, in order."""
        ...

    def signal(self, job_id: int, signal: str) -> None:
        """Send a signal to every process of a job, its batch script included."""
        ...

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        """Put a job back into the queue (Slurm sends SIGTERM, then SIGKILL after KillWait).

        Only a job that runs (``scontrol requeue incomplete``), so that one that finished a moment ago is not run a second
        time; with ``ended`` also a job that has ended.
        """
        ...

    def boot_s(self) -> float:
        """When slurmctld was started, in Unix seconds."""
        ...

    def version(self) -> str:
        """Slurm's version, such as ``24.11.5``."""
        ...


def site_factors_if_any(client: SlurmClient) -> dict[int, int]:
    """As :meth:`SlurmClient.site_factors`; nothing where Slurm's priority plugin knows none."""
    try:
        return client.site_factors()
    except PriorityPluginError:
        return {}
