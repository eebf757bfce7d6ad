"""GPUs of each node and who is on them, by what prologs and agents told.

Read at once for everybody who looks; a viewer is told of the jobs that Slurm would show. Of a GPU with another job on it
there remains that it is held, as ``scontrol show node`` says, and where Slurm keeps nodes private, only nodes of own jobs
remain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S, agent_heartbeats
from slurm_soda.daemon.store.shares import open_shares
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun, NodeEvent
from slurm_soda.wire.run_fields import MAX_GPUS

Kinds = Literal["all", "shared", "free", "mine"]

MAX_NODES = 100
"""In one answer."""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A job on a GPU."""

    job_id: int
    user: str
    account: str
    name: str
    is_guest: bool
    util_ratio: float | None
    """Of its GPUs on this node at the last readings; ``None``: not told, or private."""


@dataclass(slots=True)
class NodeHolders:
    """One node and the jobs on each of its GPUs, by index."""

    node: str
    gpus: int = 0
    """As its agent counts them."""
    seen_s: float = 0.0
    """When that last reported; 0: never."""
    holders: dict[int, list[GpuHolder]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class ShownGpu:
    """One GPU."""

    index: int
    held: bool
    jobs: Sequence[GpuHolder]
    """Those that the viewer may see, hosts first."""


@dataclass(frozen=True, slots=True)
class ShownNode:
    """One node."""

    node: str
    silent: bool
    """Its agent has not reported lately: what is told of utilisation is old."""
    gpus: Sequence[ShownGpu]


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """Of all nodes that the viewer may see."""

    gpus: int
    held: int
    shared: int
    """With two jobs or more that the viewer may see."""


@dataclass(frozen=True, slots=True)
class GpuExcerpt:
    """Some nodes."""

    totals: GpuTotals
    found: int
    """Nodes that were asked for, those before and after these included."""
    offset: int
    nodes: Sequence[ShownNode]


def read_gpu_holders(session: Session) -> list[NodeHolders]:
    """Every node that has GPUs, by name, with all jobs on them."""
    nodes: dict[str, NodeHolders] = {}
    for agent in agent_heartbeats(session):
        if agent.gpu_count:
            nodes[agent.node] = NodeHolders(agent.node, agent.gpu_count, agent.seen_s)
    running = _running_jobs(session)
    guests = {share.guest: share for share in open_shares(session) if share.phase == "started"}
    utils = _last_utils(session, running)
    placed = _placed_gpus(session, running)
    for job_id, share in guests.items():  # what its prolog told is, of a guest, not all that it has
        if job_id in running:
            placed |= {(job_id, node): share.gpus for node in share.nodes}
    for (job_id, node), indices in placed.items():
        job = running[job_id]
        holder = GpuHolder(job_id, job.user, job.account, job.name, job_id in guests, utils.get((job_id, node)))
        on_node = nodes.setdefault(node, NodeHolders(node))
        for index in indices:
            if 0 <= index < MAX_GPUS:
                on_node.holders[index].append(holder)
    return sorted(nodes.values(), key=lambda one: _natural(one.node))


def _running_jobs(session: Session) -> Mapping[int, Any]:
    """Rows of the jobs that run, by id, each with its present run."""
    query = (
        select(Job.job_id, Job.user, Job.account, Job.name, JobRun.restart, JobRun.start_s)
        .join(JobRun, JobRun.job_pk == Job.id)
        .where(Job.end_s.is_(None), Job.state != "PENDING", JobRun.end_s.is_(None))
        .order_by(Job.submit_s)
    )
    return {row.job_id: row for row in session.execute(query)}


def _placed_gpus(session: Session, running: Mapping[int, Any]) -> dict[tuple[int, str], Sequence[int]]:
    """Indices of the GPUs that prologs said jobs got, by job and node."""
    found: dict[tuple[int, str], Sequence[int]] = {}
    for part in split_list(sorted(running)):
        query = select(NodeEvent).where(NodeEvent.job_id.in_(part), NodeEvent.kind == "open").order_by(NodeEvent.at_s)
        for event in session.scalars(query):
            job = running[event.job_id]
            if event.restart == job.restart and event.at_s >= job.start_s - CLOCK_SLACK_S:
                found[event.job_id, event.node] = event.record.get("gpus") or []
    return found


def _last_utils(session: Session, running: Mapping[int, Any]) -> dict[tuple[int, str], float]:
    found: dict[tuple[int, str], float] = {}
    columns = (
        JobNodeUsage.job_id, JobNodeUsage.node, JobNodeUsage.restart, JobNodeUsage.first_s, JobNodeUsage.gpu_util_last_ratio
    )  # fmt: skip
    for part in split_list(sorted(running)):
        query = select(*columns).where(JobNodeUsage.job_id.in_(part), JobNodeUsage.gpu_count > 0)
        for job_id, node, restart, first_s, util_ratio in session.execute(query):
            job = running[job_id]
            if restart == job.restart and first_s >= job.start_s - CLOCK_SLACK_S:
                found[job_id, node] = util_ratio
    return found


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """``n9`` before ``n10``."""
    return tuple((text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name))


def gpu_excerpt(
    nodes: Iterable[NodeHolders], viewer: Viewer, *, kind: Kinds, offset: int, limit: int, now_s: float
) -> GpuExcerpt:
    """What a viewer is shown.

    Args:
        nodes: all, in order, with everybody's jobs.
        viewer: who may see what Slurm would show.
        kind: nodes with a GPU that is shared, or free, or has a job of the viewer's own.
        offset: so many of these are left out first.
        limit: so many at most, and :data:`MAX_NODES`.
        now_s: by the clock with which agents' reports are dated.
    """
    shown = [_shown_node(node, viewer, now_s) for node in nodes]
    if "nodes" in viewer.private:
        shown = [node for node in shown if any(gpu.jobs for gpu in node.gpus)]
    gpus = [gpu for node in shown for gpu in node.gpus]
    totals = GpuTotals(len(gpus), sum(gpu.held for gpu in gpus), sum(len(gpu.jobs) > 1 for gpu in gpus))
    found = [node for node in shown if _is_of_kind(node, kind, viewer.user)]
    return GpuExcerpt(totals, len(found), offset, found[offset : offset + min(limit, MAX_NODES)])


def _is_of_kind(node: ShownNode, kind: Kinds, user: str) -> bool:
    if kind == "shared":
        return any(len(gpu.jobs) > 1 for gpu in node.gpus)
    if kind == "free":
        return any(not gpu.held for gpu in node.gpus)
    return kind == "all" or any(job.user == user for gpu in node.gpus for job in gpu.jobs)


def _shown_node(node: NodeHolders, viewer: Viewer, now_s: float) -> ShownNode:
    count = max(node.gpus, 1 + max(node.holders, default=-1))
    gpus = [_shown_gpu(index, node.holders.get(index, ()), viewer) for index in range(count)]
    return ShownNode(node.node, now_s - node.seen_s > NODE_SILENT_S, gpus)


def _shown_gpu(index: int, holders: Sequence[GpuHolder], viewer: Viewer) -> ShownGpu:
    jobs = [
        holder if viewer.may_see_use(holder) else replace(holder, util_ratio=None)
        for holder in sorted(holders, key=lambda one: (one.is_guest, one.job_id))
        if viewer.may_see(holder)
    ]  # fmt: skip
    return ShownGpu(index, bool(holders), jobs)
