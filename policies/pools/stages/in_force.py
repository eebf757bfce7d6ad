"""What a snapshot says of the pools that are in force as partitions, and of the jobs that they concern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.policies.pools.layout.routing import SubmittedRequest
from slurm_soda.policies.snapshot_file.identifiers import JobId, PartitionName

SAME_LIST = ""
"""Stands for an update that leaves the list of partitions as it is."""


@dataclass(frozen=True, slots=True)
class WaitingPoolJob:
    """A waiting job that was aborted for jobs of another pool, or that lists a partition which goes."""

    job_id: JobId
    aborts: int = 0
    """How often Slurm took back what the job had borrowed."""
    startable_s: float = float("nan")
    """While Slurm makes the job wait after a requeue: the earliest instant at which that may be ended, Unix seconds."""
    alone: bool = True
    """An update hits this job and no other: the id of a job array's last task is that of the whole array."""
    refused: tuple[PartitionName, ...] = ()
    """Lists of partitions, or :data:`SAME_LIST`, that Slurm refused lately; in alphabetical order."""
    request_known: bool = False
    """Somebody knows :attr:`request`; Slurm is asked for it only of jobs that borrow no more."""
    request: SubmittedRequest | None = None
    """What the job asks for; ``None`` where no pool can be chosen by it."""


@dataclass(frozen=True, slots=True)
class PoolsInForce:
    """Pools as Slurm has them, and the site's settings for them; empty without pools."""

    table: PoolTable = field(default_factory=PoolTable)
    shares: Mapping[NodeClass, PoolShare] = field(default_factory=dict)
    """How each class of nodes is divided."""
    leaving: Mapping[PartitionName, PartitionName] = field(default_factory=dict)
    """Partitions that take no more jobs, with their base; none while pools are being changed, since that moves jobs too."""
    waiting: tuple[WaitingPoolJob, ...] = ()
    """By job id, ascending; jobs that never ran in a pool are left out."""
    max_aborts: int = 3
    """After so many aborts a job borrows no more."""
    reserve_after_s: float = float("inf")
    """Backfill may reserve nodes for the next GPU job of a pool once it has waited so long."""
