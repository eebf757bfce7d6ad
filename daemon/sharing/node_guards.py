"""Which hosts can have guests: those whose node says that its hooks guard them, and that it has their record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class NodeGuards:
    """What the agents told last of the hooks of their nodes, by name."""

    walls: Mapping[str, NodeWalls] = field(default_factory=dict)
    """A node that told nothing is not there."""
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


def read_node_guards(session: Session, now_s: float) -> NodeGuards:
    """Of all agents that ever reported."""
    walls = {}
    for seen in queries.agent_heartbeats(session):
        if now_s - seen.seen_s > NODE_SILENT_S:
            walls[seen.node] = NodeWalls(fault=SILENT)
        elif seen.walls:
            walls[seen.node] = NodeWalls.from_dict(seen.walls[0])
    return NodeGuards(walls)


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
