"""Which hosts can have guests: those whose node says that its hooks guard them, and that it has their record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.policies.snapshot import BoolColumn
from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.wire.walls import NodeWalls

UNTOLD = "soda-agent there does not say whether prolog and epilog guard guests: upgrade it (make install ROLE=agent)"
SILENT = "soda-agent has not reported from there for a minute: systemctl status soda-agent"
UNRECORDED = "no prolog has recorded job {job} there: it is a host for nobody; one that begins now is recorded"
NO_PROLOG = (
    "no prolog has recorded job {job}, which began there after others that one did: see that Prolog of that node still runs "
    "slurm-soda's (slurm.conf there, and the site's script that calls it)"
)
PROLOG_WRITES_WITHIN_S = 10.0
"""Of a job that runs: the prolog's record of it is the first thing that the prolog does."""
MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class NodeGuards:
    """What the agents told last of the hooks of their nodes, by name."""

    walls: Mapping[str, NodeWalls] = field(default_factory=dict)
    """A node that told nothing is not there."""
    reported_s: Mapping[str, float] = field(default_factory=dict)
    """When each of them told it."""
    _recorded: Mapping[str, frozenset[int]] = field(init=False)

    def __post_init__(self) -> None:
        recorded = {node: frozenset(walls.recorded) for node, walls in self.walls.items()}
        object.__setattr__(self, "_recorded", recorded)

    def why_unguarded(self, node: str, job_id: int) -> str:
        """Why nobody can be a guest of this host on this node; empty: somebody can."""
        walls = self.walls.get(node)
        if walls is None:
            return UNTOLD
        if walls.fault:
            return walls.fault
        return "" if job_id in self._recorded[node] else UNRECORDED.format(job=job_id)

    def with_jobs(self, records: Sequence[SlurmJob], allocations: Mapping[int, Allocation]) -> NodeGuards:
        """The same, by running jobs too: where no prolog has recorded the last one that began, Slurm does not run ours,
        whatever files are there. What began before all that are recorded may be older than the installation.
        """
        walls = dict(self.walls)
        newest: dict[str, tuple[float, int]] = {}
        recorded_s: dict[str, float] = {}
        for record, node in _on_plain_gpus(records, allocations):
            if node in walls and not walls[node].fault:
                if record.job_id in self._recorded[node]:
                    recorded_s[node] = max(recorded_s.get(node, 0.0), record.start_s)
                elif record.start_s + PROLOG_WRITES_WITHIN_S < self.reported_s.get(node, 0.0):
                    newest[node] = max(newest.get(node, (0.0, 0)), (record.start_s, record.job_id))
        for node, (start_s, job_id) in newest.items():
            if start_s > recorded_s.get(node, start_s):
                walls[node] = NodeWalls(fault=NO_PROLOG.format(job=job_id))
        return NodeGuards(walls, self.reported_s)


def _on_plain_gpus(
    records: Sequence[SlurmJob], allocations: Mapping[int, Allocation]
) -> Iterator[tuple[SlurmJob, str]]:
    """Each running job that is nobody's guest, with each node where it holds GPUs that Slurm tells."""
    for record in records:
        if record.state == "RUNNING" and record.gpus and not record.shared_gpus:
            for on in allocations.get(record.job_id, ()):
                if on.gpu_indices:
                    yield record, on.node


def read_node_guards(session: Session, now_s: float) -> NodeGuards:
    """Of all agents that ever reported."""
    walls, reported_s = {}, {}
    for seen in queries.agent_heartbeats(session):
        reported_s[seen.node] = seen.seen_s
        if now_s - seen.seen_s > NODE_SILENT_S:
            walls[seen.node] = NodeWalls(fault=SILENT)
        elif seen.walls:
            walls[seen.node] = NodeWalls.from_dict(seen.walls[0])
    return NodeGuards(walls, reported_s)


def describe_unguarded(
    records: Sequence[SlurmJob], allocations: Mapping[int, Allocation], shares: BoolColumn, guards: NodeGuards
) -> str:
    """Where jobs run that would have guests, and can have none, and why; for people, empty if there is no such place.

    ``shares``: of ``records``, which agreed.
    """
    found: dict[str, str] = {}
    for record, agreed in zip(records, shares.tolist(), strict=True):
        if agreed and record.state == "RUNNING" and not record.shared_gpus:
            for on in allocations.get(record.job_id, ()):
                if why := guards.why_unguarded(on.node, record.job_id):
                    found.setdefault(on.node, why)
    told = [f"{node} ({why})" for node, why in sorted(found.items())]
    more = f" and {len(told) - MOST_TOLD} nodes more" if len(told) > MOST_TOLD else ""
    return ", ".join(told[:MOST_TOLD]) + more
