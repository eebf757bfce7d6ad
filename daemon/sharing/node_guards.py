"""Which hosts can have guests: those whose node says that its hooks guard them, and that it has their record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.engine import Store
from slurm_soda.policies.snapshot import BoolColumn
from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.wire.walls import NodeWalls

UNTOLD = "soda-agent there does not say whether prolog and epilog guard guests: upgrade it (make install ROLE=agent)"
SILENT = "soda-agent has not reported from there for a minute: systemctl status soda-agent"
UNRECORDED = "no prolog has recorded job {job} there: it is a host for nobody; one that begins now is recorded"
NO_PROLOG = (
    "no prolog has recorded job {job}, which began there as the last one: see that Prolog of that node runs slurm-soda's "
    "(slurm.conf there, and the site's script that calls it); one that begins later and is recorded opens the node again"
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
    lapses: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Start and id of the last job on a node that no prolog recorded, until one that began later is recorded."""
    unrecorded: frozenset[int] = frozenset()
    """Running guests that no prolog recorded on one of their nodes: no wall holds them."""
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

    def with_jobs(
        self, records: Sequence[SlurmJob], allocations: Mapping[int, Allocation], guests: Collection[int]
    ) -> NodeGuards:
        """The same, by running jobs too: where no prolog has recorded the last one that began, Slurm does not run ours,
        whatever files are there. What began before all that are recorded may be older than the installation; a guest cannot.

        Args:
            records: of Slurm's jobs.
            allocations: of those that hold GPUs.
            guests: those that sodad made.
        """
        lapses, unrecorded = dict(self.lapses), set[int]()
        missing: list[tuple[str, float, int]] = []
        recorded_s: dict[str, float] = {}
        for record, node in _on_gpus(records, allocations, guests):
            walls, is_guest = self.walls.get(node), record.shared_gpus > 0
            if walls is None or walls.fault or (is_guest and walls.guests is None):
                continue
            if record.job_id in ((walls.guests or ()) if is_guest else self._recorded[node]):
                recorded_s[node] = max(recorded_s.get(node, 0.0), record.start_s)
            elif record.start_s + PROLOG_WRITES_WITHIN_S < self.reported_s.get(node, 0.0):
                unrecorded |= {record.job_id} if is_guest else set()
                missing.append((node, record.start_s, record.job_id))
        for node, start_s, job_id in missing:
            if job_id in unrecorded or start_s > recorded_s.get(node, start_s):
                lapses[node] = max(lapses.get(node, (0.0, 0)), (start_s, job_id))
        lapses = {node: lapse for node, lapse in lapses.items() if recorded_s.get(node, 0.0) <= lapse[0]}
        closed = {
            node: NodeWalls(fault=NO_PROLOG.format(job=job_id))
            for node, (_, job_id) in lapses.items()
            if node in self.walls and not self.walls[node].fault
        }
        return NodeGuards({**self.walls, **closed}, self.reported_s, lapses, frozenset(unrecorded))


def _on_gpus(
    records: Sequence[SlurmJob], allocations: Mapping[int, Allocation], guests: Collection[int]
) -> Iterator[tuple[SlurmJob, str]]:
    """Each running job that is one of these guests, or nobody's, with each node where it holds GPUs that Slurm tells."""
    for record in records:
        if record.state == "RUNNING" and (record.job_id in guests if record.shared_gpus else record.gpus):
            for on in allocations.get(record.job_id, ()):
                if on.shared_indices if record.shared_gpus else on.gpu_indices:
                    yield record, on.node


def read_node_guards(session: Session, now_s: float) -> NodeGuards:
    """Of all agents that ever reported."""
    walls, reported_s, lapses = {}, {}, {}
    for seen in queries.agent_heartbeats(session):
        reported_s[seen.node] = seen.seen_s
        if seen.walls and (lapse := seen.walls[0].get("lapse")):
            lapses[seen.node] = (float(lapse[0]), int(lapse[1]))
        if now_s - seen.seen_s > NODE_SILENT_S:
            walls[seen.node] = NodeWalls(fault=SILENT)
        elif seen.walls:
            walls[seen.node] = NodeWalls.from_dict(seen.walls[0])
    return NodeGuards(walls, reported_s, lapses)


def keep_lapses(store: Store, before: NodeGuards, after: NodeGuards) -> None:
    """What jobs have shown of nodes, beyond their end: also for whoever reads the store."""
    changed = {
        node for node in before.lapses.keys() | after.lapses.keys() if before.lapses.get(node) != after.lapses.get(node)
    }
    if not changed:
        return
    with store.write() as session:
        for seen in queries.agent_heartbeats(session):
            if seen.node in changed and seen.walls:
                told = {key: value for key, value in seen.walls[0].items() if key != "lapse"}
                lapse = after.lapses.get(seen.node)
                seen.walls = [told | ({"lapse": list(lapse)} if lapse else {})]


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
