"""What a policy sees: one consistent, columnar picture of jobs and nodes.

Columns are numpy arrays because a policy must order 100 000 jobs on 10 000 nodes within a second; :meth:`JobTable.view`
gives people (and error messages) one job as an object. Times are Unix seconds (float64), durations seconds, memory MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.cpu_fit.requests import CpuRequests
from slurm_soda.policies.pools.stages.in_force import PoolsInForce
from slurm_soda.policies.preemption_costs.learned_costs import LearnedCosts
from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.services.service import ServiceTable
from slurm_soda.policies.snapshot_file.identifiers import GpuTypeName, JobIdColumn, NodeName, PartitionName, UserName
from slurm_soda.policies.spreading.slowdowns import SpreadSlowdowns

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]

NEVER = float("nan")
"""A time that has not happened or a quantity nobody knows."""

UNLIMITED_S = float("inf")
"""Time limit of a job without one."""

UNKNOWN_SITE_FACTOR = -(2**62)
"""Stands in a snapshot for a SiteFactor that Slurm does not tell (sprio leaves out jobs before their begin time)."""


class JobState(IntEnum):
    """The states that a policy can act on; ended jobs are not in a snapshot."""

    PENDING = 0
    """Waiting and eligible: may be started, reordered or rewritten."""
    BLOCKED = 1
    """Waiting for something a policy cannot give: held, a dependency, a begin time, a reservation."""
    RUNNING = 2
    SUSPENDED = 3
    COMPLETING = 4
    """Ending or being requeued: still holds its resources, cannot be acted on."""


class UnknownNodes(IntEnum):
    """Why it is not known which nodes would do for a waiting job; no one is preempted for such a job."""

    KNOWN = 0
    NOT_TOLD = 1
    """Slurm told nothing more of it than that it waits."""
    TOO_LONG = 2
    """Its features or excluded nodes are longer than Slurm's reply."""
    RESERVATION = 3
    """It is bound to a reservation of nodes."""
    FEATURES = 4
    """Its features are joined in another way than by ``&`` alone or by ``|`` alone."""
    MORE_THAN_NAMED = 5
    """It wants more nodes than it names."""
    UNREADABLE = 6
    """A host list or a number in it cannot be read."""
    TOO_MANY = 7
    """More different requests wait than are worked out in one cycle."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One row of a :class:`JobTable`; every field has the meaning of the column of the same name."""

    job_id: int
    state: JobState
    user: str
    partition: str
    submit_s: float
    first_start_s: float
    start_s: float
    time_limit_s: float
    gpus: int
    nodes: int
    gpus_per_node: int
    cpus: int
    memory_mib: int
    priority: int
    executed_s: float
    attained_gpu_s: float
    waited_s: float
    preemptible: bool
    preemptions: int
    remaining_s: float
    skew: float = NEVER


def _zeros(n: int) -> IntColumn:
    return np.zeros(n, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class JobTable:
    """Jobs as columns, one row a job, all of equal length, ordered by ``job_id`` ascending (ties cannot occur).

    Which nodes a running job holds is in compressed rows: entries ``alloc_start[i]:alloc_start[i + 1]`` of ``alloc_node``
    (row numbers of the :class:`NodeTable`), ``alloc_gpus`` and ``alloc_cpus`` belong to row ``i``.
    """

    job_id: JobIdColumn
    state: NDArray[np.int8]
    user: IntColumn
    """Index into :attr:`users`."""
    partition: IntColumn
    """Index into :attr:`partitions`; a list that Slurm was given is a partition of its own, with the nodes of all in it."""
    submit_s: FloatColumn
    first_start_s: FloatColumn
    """Start of the job's very first run (Tiresias orders a queue by it); :data:`NEVER` before it."""
    start_s: FloatColumn
    """Start of the present run; :data:`NEVER` while waiting."""
    time_limit_s: FloatColumn
    gpus: IntColumn
    """GPUs over all nodes; 0 for a CPU job."""
    nodes: IntColumn
    """Least number of nodes asked for, at least 1."""
    gpus_per_node: IntColumn
    """Exact GPUs on every node, or 0 where any split over at least ``nodes`` nodes will do."""
    gpu_type: IntColumn
    """Index into :attr:`gpu_types`, or -1 for any type."""
    cpus: IntColumn
    """CPUs over all nodes."""
    memory_mib: IntColumn
    """Memory over all nodes."""
    priority: IntColumn
    """Slurm's own present priority: larger runs first, ties by :attr:`queued_s`, then by :attr:`id_place`."""
    site_factor: IntColumn
    """The part of ``priority`` that we wrote (0 before we did)."""
    executed_s: FloatColumn
    """Run time over all runs so far, this one included, since the last promotion; before any, also what the job inherited
    from a cancelled one (:mod:`slurm_soda.policies.engine.inherited_service`)."""
    attained_gpu_s: FloatColumn
    """Attained service: GPUs x ``executed_s`` (Tiresias, Section 3.2.2)."""
    waited_s: FloatColumn
    """Time spent eligible but not running since submission, the last run's end or the last promotion, and since it was last
    held or up against a limit; of a running job, until it started."""
    preemptible: BoolColumn
    """The job said that it can checkpoint, so it may be requeued."""
    preemptions: IntColumn
    remaining_s: FloatColumn
    """Predicted run time left on dedicated resources; :data:`NEVER` where nobody knows."""
    alloc_start: IntColumn
    alloc_node: IntColumn
    alloc_gpus: IntColumn
    alloc_cpus: IntColumn
    users: tuple[UserName, ...] = ()
    partitions: tuple[PartitionName, ...] = ()
    gpu_types: tuple[GpuTypeName, ...] = ()
    skew: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Largest tensor of the job's model / the whole model, a ratio; :data:`NEVER` where nobody knows; empty: of no job."""

    nice: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """What the user took from the job's priority (``--nice``); empty: 0 for all."""

    queued_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Slurm's own time of submission, which a requeue moves to the end of the run; empty: :attr:`submit_s` for all."""
    id_place: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Place of each job by id as Slurm compares ids: a task of an array by the array's, then by its number; empty: by
    ``job_id``."""
    may_preempt: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Others may be preempted for it; empty: for all jobs. A job for whom they may not reserves nothing in a decision."""
    band: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Class of Slurm's own priority (:mod:`slurm_soda.policies.bands`): 0 goes first; empty: all jobs are in one."""
    may_start: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """A waiting job may get places in this decision; empty: all jobs. One that may not would delay a better band."""
    overdue: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """It has waited so long that no later job may pass or delay it (:mod:`.waiting.overdue`); empty: no job has."""
    node_set: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Column of :attr:`NodeTable.node_sets` with the nodes that would do, -1 for any; empty: any for all jobs."""
    unknown_nodes: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """A :class:`UnknownNodes` of each job; empty: the nodes that would do are known of all."""
    whole_nodes: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """It starts on nodes alone on which nothing runs (``--exclusive``); empty: no job."""
    least_cpus: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """CPUs without which a node will not do (``--mincpus``), beside its part of :attr:`cpus`; empty: 0 for all."""
    left_out: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """A :class:`.scope.LeftOut` of each job: why nothing of it may be changed; empty: the site lets all be changed."""

    def __len__(self) -> int:
        return len(self.job_id)

    def row(self, job_id: int) -> int:
        """Row number of a job.

        Raises:
            KeyError: the job is not in this snapshot.
        """
        at = int(np.searchsorted(self.job_id, job_id))
        if at == len(self) or self.job_id[at] != job_id:
            raise KeyError(job_id)
        return at

    def alloc(self, row: int) -> list[tuple[int, int, int]]:
        """``(node row, gpus, cpus)`` that the job in this row holds."""
        part = slice(int(self.alloc_start[row]), int(self.alloc_start[row + 1]))
        return list(
            zip(
                self.alloc_node[part].tolist(),
                self.alloc_gpus[part].tolist(),
                self.alloc_cpus[part].tolist(),
                strict=True,
            )
        )

    def view(self, row: int) -> JobView:
        """One row as an object."""
        columns = {spec.name: getattr(self, spec.name) for spec in fields(JobView)}
        values: dict[str, Any] = {
            name: column[row].item()
            for name, column in columns.items()
            if name not in ("user", "partition", "state") and len(column)
        }
        return JobView(
            state=JobState(int(self.state[row])),
            user=self.users[int(self.user[row])],
            partition=self.partitions[int(self.partition[row])],
            **values,
        )

    def with_columns(self, **columns: Any) -> JobTable:
        """The same jobs with some columns replaced."""
        return replace(self, **columns)

    def only(self, rows: IntColumn) -> JobTable:
        """The table of some of its rows, which come in ascending order."""
        names = [spec.name for spec in fields(JobTable) if spec.name not in _NOT_ROWS]
        columns = {name: column[rows] if len(column := getattr(self, name)) else column for name in names}
        counts = np.diff(self.alloc_start)[rows]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        entries = np.repeat(self.alloc_start[:-1][rows] - starts[:-1], counts) + np.arange(starts[-1])
        held = {name: getattr(self, name)[entries] for name in ("alloc_node", "alloc_gpus", "alloc_cpus")}
        return replace(self, **columns, alloc_start=starts, **held)


_NOT_ROWS = frozenset({"alloc_start", "alloc_node", "alloc_gpus", "alloc_cpus", "users", "partitions", "gpu_types"})


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Nodes as columns, one row a node, in the order of Slurm's own node list.

    ``*_free`` is what no job holds now (completing jobs still hold theirs); an unusable node has nothing free.
    """

    name: tuple[NodeName, ...]
    usable: BoolColumn
    """False for a node that is down, draining, drained, reserved or not responding."""
    gpus: IntColumn
    gpus_free: IntColumn
    gpu_type: IntColumn
    """Index into :attr:`gpu_types`, -1 where the node has no GPU or an untyped one."""
    cpus: IntColumn
    cpus_free: IntColumn
    memory_mib: IntColumn
    memory_free_mib: IntColumn
    in_partition: BoolColumn
    """Shape (nodes, partitions), columns in the order of :attr:`ClusterSnapshot.partitions`."""
    gpu_types: tuple[GpuTypeName, ...] = ()
    node_sets: BoolColumn = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    """Shape (nodes, sets): sets of nodes to which waiting jobs are bound by what they ask for; none: no job is."""

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def uniform(
        cls, nodes: int, gpus: int, *, cpus: int = 28, memory_mib: int = 64_000, partitions: int = 1
    ) -> NodeTable:
        """``nodes`` equal and idle nodes that are in every partition."""
        return cls(
            name=tuple(f"n{i + 1}" for i in range(nodes)),
            usable=np.ones(nodes, dtype=np.bool_),
            gpus=_zeros(nodes) + gpus,
            gpus_free=_zeros(nodes) + gpus,
            gpu_type=_zeros(nodes) - 1,
            cpus=_zeros(nodes) + cpus,
            cpus_free=_zeros(nodes) + cpus,
            memory_mib=_zeros(nodes) + memory_mib,
            memory_free_mib=_zeros(nodes) + memory_mib,
            in_partition=np.ones((nodes, partitions), dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything that a policy may look at, at one instant.

    ``jobs`` holds every job that waits, runs or is completing; ``partitions`` are the names behind the columns of
    ``nodes.in_partition`` and the codes of ``jobs.partition`` (the same order).
    """

    now_s: float
    jobs: JobTable
    nodes: NodeTable
    partitions: tuple[PartitionName, ...] = field(default=("main",))
    cpu_requests: CpuRequests = field(default_factory=CpuRequests.none)
    """Waiting jobs whose CPUs may be fitted; empty where nobody asked Slurm about them."""
    pools: PoolsInForce = field(default_factory=PoolsInForce)
    """Divisions of partitions that are in force, and what is to be known of jobs that they concern."""
    tiers: Mapping[PartitionName, int] = field(default_factory=dict)
    """PriorityTier of partitions, as far as it was read: Slurm compares it before the priority."""
    passing_limit_s: float = float("inf")
    """After so long a wait a job is overdue; infinite: none ever is."""
    run_times: ExpectedRunTimes = field(default_factory=ExpectedRunTimes)
    """What was learned of run times; ``jobs.remaining_s`` is one number of it."""
    preemption_costs: LearnedCosts = field(default_factory=LearnedCosts)
    """What was learned of what it costs to preempt each job now."""
    services: ServiceTable = field(default_factory=ServiceTable)
    """Inference services, and those of their tasks that run."""
    spread: SpreadSlowdowns = field(default_factory=SpreadSlowdowns)
    """What was measured of jobs on more nodes than they need."""

    @property
    def jobs_as_they_leave(self) -> JobTable:
        """The jobs; of those that are completing with the GPUs that are free once they have left."""
        return self.jobs
