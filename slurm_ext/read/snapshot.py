"""From Slurm's records to the columnar snapshot that a policy decides on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import (
    NEVER,
    UNKNOWN_SITE_FACTOR,
    BoolColumn,
    ClusterSnapshot,
    FloatColumn,
    IntColumn,
    JobState,
    JobTable,
    NodeTable,
)
from slurm_soda.policies.tiresias.model_skews import find_model_skew
from slurm_soda.slurm_ext.client import Allocation, HeldOnNode, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.id_places import find_id_places
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, policy_state

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JobRunHistory:
    """What Slurm forgets about a job and the store remembers. Times are Unix seconds, NaN where there is none."""

    first_start_s: float = NEVER
    """Start of the very first run."""
    executed_s: float = 0.0
    """Run time of the runs that have ended, since the last promotion; before any, what was inherited as well."""
    run_since_s: float = NEVER
    """Service of the present run before this instant is forgiven (a promotion fell into it)."""
    waiting_since_s: float = NEVER
    """When the present wait for resources began, or of a running job the one before its run: the last run's end, the last
    promotion, or when it was last held or up against a limit; NaN: at submission, or when it became eligible."""
    preemptions: int = 0
    submit_s: float = NEVER
    """First submission; a requeue gives the job a new submit time in Slurm."""


_NO_HISTORY = JobRunHistory()


def is_ordinary_job(job: SlurmJob) -> bool:
    """Whether policies may act on this kind of job.

    Left alone are components of heterogeneous jobs, jobs that insist on nodes which are not there, and guests on GPUs of
    others.
    """
    return (
        not job.het_job_id
        and not job.shared_gpus
        and not (job.req_node_names and job.reason.startswith("ReqNodeNotAvail"))
    )


def is_preemptible(job: SlurmJob) -> bool:
    """Whether requeueing the job is possible and allowed: it is a batch job that said that it can checkpoint, and the
    requeue can only hit this job.

    A task of an array is requeued alone (:attr:`.SlurmJob.address`).
    """
    return job.hints.preemptible and job.batch and job.requeue and is_ordinary_job(job) and not job.array_rest


def is_revocable(job: SlurmJob) -> bool:
    """Whether a guest can be made to leave: its owner agreed to that when he agreed to share."""
    return bool(job.shared_gpus and job.batch and job.requeue and not job.het_job_id and not job.array_rest)


def can_be_parted(job: SlurmJob) -> bool:
    """Whether a guest can be made to leave without losing its work."""
    return is_revocable(job) and job.hints.preemptible


def needs_allocation(job: SlurmJob, *, devices: bool = False) -> bool:
    """Whether only :meth:`SlurmClient.allocations` knows what the job holds where: it runs on several nodes, is a guest, or,
    where it matters which ``devices`` jobs hold, has GPUs.
    """
    only_there = job.nodes > 1 or job.shared_gpus > 0 or (devices and job.gpus > 0)
    return only_there and bool(job.node_names) and job.state not in ENDED_STATES


def build_snapshot(  # noqa: PLR0917 - an instant has six sources
    now_s: float,
    jobs: Sequence[SlurmJob],
    nodes: Sequence[SlurmNode],
    site_factors: Mapping[int, int],
    histories: Mapping[int, JobRunHistory],
    allocations: Mapping[int, Allocation],
    *,
    requeued: Collection[int] = (),
) -> ClusterSnapshot:
    """Build the snapshot of one instant; ended jobs are left out.

    Args:
        now_s: the instant, Unix seconds.
        jobs: all jobs, in any order.
        nodes: all nodes; their order is kept.
        site_factors: SiteFactor by job id; a job that is missing has 0, or an unknown one if it waits out a requeue.
        histories: what the store remembers, by job id; a job that is missing has no past.
        allocations: what multi-node jobs hold, by job id (see :func:`needs_allocation`); a job that is missing is taken
            to be spread evenly over its nodes.
        requeued: jobs that we requeued: their begin time is Slurm's way of requeueing, so it does not block them.

    Returns:
        Jobs by ascending id, nodes in the given order, partitions sorted by name. A list of partitions that a job may run
        in is one partition more, with the nodes of all of them.
    """
    live = sorted((job for job in jobs if job.state not in ENDED_STATES), key=lambda job: job.job_id)
    partitions = tuple(sorted({name for node in nodes for name in node.partitions} | {job.partition for job in live}))
    gpu_types = tuple(sorted({t for t in chain((n.gpu_type for n in nodes), (j.gpu_type for j in live)) if t}))
    begun = [job.eligible_s <= now_s or job.job_id in requeued for job in live]
    state = np.array(
        [
            policy_state(j.state, j.reason, may_act=is_ordinary_job(j), begin_is_ours=b)
            for j, b in zip(live, begun, strict=True)
        ],
        dtype=np.int8,
    )
    past = [histories.get(job.job_id, _NO_HISTORY) for job in live]
    alloc = _alloc_columns(live, state, allocations, {node.name: row for row, node in enumerate(nodes)})
    table = JobTable(
        state=state,
        site_factor=_ints([site_factors.get(j.job_id, UNKNOWN_SITE_FACTOR if _requeue_wait(j) else 0) for j in live]),
        **_own_columns(live, partitions, gpu_types),
        **_time_columns(now_s, live, past, state),
        **alloc,
    )
    return ClusterSnapshot(
        now_s=now_s, jobs=table, nodes=_node_table(nodes, partitions, gpu_types), partitions=partitions
    )


def _requeue_wait(job: SlurmJob) -> bool:
    """Slurm's sprio leaves the job out for now, but an earlier SiteFactor of ours is still in its priority."""
    return job.state == "PENDING" and job.reason == "BeginTime" and job.restarts > 0


def _skew(hints: Hints) -> float:
    """Skew of the model by its name; a job that only says that its weights are large counts as skewed."""
    known = find_model_skew(hints.model) if hints.model else NEVER
    return 1.0 if hints.large_weights and math.isnan(known) else known


def _ints(values: Sequence[int]) -> IntColumn:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> FloatColumn:
    return np.array(values, dtype=np.float64)


def _index_names(values: Sequence[_T], names: tuple[_T, ...]) -> IntColumn:
    """Index of each value in ``names``, -1 for one that is not there."""
    index = {name: i for i, name in enumerate(names)}
    return _ints([index.get(value, -1) for value in values])


def _own_columns(live: Sequence[SlurmJob], partitions: tuple[str, ...], gpu_types: tuple[str, ...]) -> dict[str, Any]:
    """Columns that Slurm's records alone determine."""
    users = tuple(sorted({job.user for job in live}))
    return {
        "job_id": _ints([job.job_id for job in live]),
        "user": _index_names([job.user for job in live], users),
        "partition": _index_names([job.partition for job in live], partitions),
        "time_limit_s": _floats([job.time_limit_s for job in live]),
        "gpus": _ints([job.gpus for job in live]),
        "nodes": _ints([job.nodes for job in live]),
        "gpus_per_node": _ints([job.gpus_per_node for job in live]),
        "gpu_type": _index_names([job.gpu_type for job in live], gpu_types),
        "cpus": _ints([job.cpus for job in live]),
        "memory_mib": _ints([job.memory_mib for job in live]),
        "priority": _ints([job.priority for job in live]),
        "preemptible": np.array([is_preemptible(job) for job in live], dtype=np.bool_),
        "remaining_s": np.full(len(live), NEVER),
        "nice": _ints([job.nice for job in live]),
        "skew": _floats([_skew(job.hints) for job in live]),
        "users": users,
        "partitions": partitions,
        "gpu_types": gpu_types,
    }


def _time_columns(
    now_s: float, live: Sequence[SlurmJob], past: Sequence[JobRunHistory], state: NDArray[np.int8]
) -> dict[str, Any]:
    """Columns that mix Slurm's present with the store's past."""
    holds: BoolColumn = np.isin(state, (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING))
    start = np.where(holds, _floats([job.start_s for job in live]), NEVER)
    end = np.where(state == JobState.COMPLETING, _floats([job.end_s for job in live]), now_s)
    end = np.where(np.isnan(end), now_s, np.minimum(end, now_s))
    counted_from = np.fmax(start, _floats([p.run_since_s for p in past]))
    present = np.where(np.isnan(start), 0.0, np.maximum(end - counted_from, 0.0))
    executed = _floats([p.executed_s for p in past]) + present
    first = _floats([p.first_start_s for p in past])

    submit = _floats([job.submit_s for job in live])
    eligible = _floats([job.eligible_s for job in live])
    fresh = np.where(eligible <= now_s, np.fmax(submit, eligible), submit)  # a requeue's begin time lies ahead
    since = _floats([p.waiting_since_s for p in past])
    until = np.where(state == JobState.RUNNING, start, now_s)
    waited = np.maximum(until - np.where(np.isnan(since), fresh, since), 0.0)
    first_submit = _floats([p.submit_s for p in past])
    return {
        "submit_s": np.where(np.isnan(first_submit), submit, first_submit),
        "queued_s": submit,
        "id_place": find_id_places(live),
        "start_s": start,
        "first_start_s": np.where(np.isnan(first), start, first),
        "executed_s": executed,
        "attained_gpu_s": _ints([job.gpus for job in live]) * executed,
        "waited_s": np.where(np.isin(state, (JobState.PENDING, JobState.RUNNING)), waited, 0.0),
        "preemptions": _ints([p.preemptions for p in past]),
    }


def _alloc_columns(
    live: Sequence[SlurmJob], state: NDArray[np.int8], allocations: Mapping[int, Allocation], row_of: Mapping[str, int]
) -> dict[str, Any]:
    """What live jobs hold, in compressed rows; nodes that Slurm no longer lists are left out.

    GPUs that a guest holds beside another job are not its own: they are not free once it leaves.
    """
    waiting = np.isin(state, (JobState.PENDING, JobState.BLOCKED)).tolist()
    counts = [0]
    flat: list[tuple[int, int, int]] = []
    for job, waits in zip(live, waiting, strict=True):
        if not waits and job.node_names:
            held = allocations.get(job.job_id) or _even_spread(job)
            flat.extend(
                (row_of[on.node], on.gpus - len(on.shared_indices), on.cpus) for on in held if on.node in row_of
            )
        counts.append(len(flat))
    columns = np.array(flat, dtype=np.int64).reshape(-1, 3)
    return {
        "alloc_start": _ints(counts),
        "alloc_node": columns[:, 0].copy(),
        "alloc_gpus": columns[:, 1].copy(),
        "alloc_cpus": columns[:, 2].copy(),
    }


def _even_spread(job: SlurmJob) -> Allocation:
    """Exact for one node; for several the best guess without asking Slurm, larger shares first."""
    names = expand_hosts(job.node_names)
    shares = len(names)
    own = job.gpus - job.shared_gpus
    gpus = [own // shares + (i < own % shares) for i in range(shares)]
    cpus = [job.cpus // shares + (i < job.cpus % shares) for i in range(shares)]
    return [HeldOnNode(*held) for held in zip(names, gpus, cpus, strict=True)]


def _partition_nodes(nodes: Sequence[SlurmNode], partitions: tuple[str, ...]) -> BoolColumn:
    """Which node is in which partition; a list of partitions, as jobs may give, has the nodes of all of them."""
    column = {name: i for i, name in enumerate(partitions)}
    member = np.zeros((len(nodes), len(partitions)), dtype=np.bool_)
    for row, node in enumerate(nodes):
        member[row, [column[name] for name in node.partitions]] = True
    for name in partitions:
        if "," in name:
            parts = [column[part] for part in name.split(",") if part in column]
            member[:, column[name]] = member[:, parts].any(axis=1)
    return member


def _node_table(nodes: Sequence[SlurmNode], partitions: tuple[str, ...], gpu_types: tuple[str, ...]) -> NodeTable:
    usable = np.array([node.usable for node in nodes], dtype=np.bool_)
    member = _partition_nodes(nodes, partitions)

    def free(total: IntColumn, used: Sequence[int]) -> IntColumn:
        return np.where(usable, np.maximum(total - _ints(used), 0), 0)

    gpus, cpus = _ints([n.gpus for n in nodes]), _ints([n.cpus for n in nodes])
    memory = _ints([n.memory_mib for n in nodes])
    return NodeTable(
        name=tuple(node.name for node in nodes),
        usable=usable,
        gpus=gpus,
        gpus_free=free(gpus, [n.gpus_allocated for n in nodes]),
        gpu_type=_index_names([n.gpu_type for n in nodes], gpu_types),
        cpus=cpus,
        cpus_free=free(cpus, [n.cpus_allocated for n in nodes]),
        memory_mib=memory,
        memory_free_mib=free(memory, [n.memory_allocated_mib for n in nodes]),
        in_partition=member,
        gpu_types=gpu_types,
    )
