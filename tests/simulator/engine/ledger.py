"""An outcome checked from its segments alone, with nothing of what the engine or the policies know of room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload


@dataclass
class Witness:
    """A speed model that writes down where each run of each job was placed; jobs on the last node run at half speed."""

    nodes: int
    runs: dict[int, list[tuple[NodeAllocation, ...]]] = field(default_factory=lambda: defaultdict(list))
    slow: float = 0.5

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        self.runs[row].append(tuple(pieces))
        return self.of(pieces)

    def of(self, pieces: Sequence[NodeAllocation]) -> float:
        return self.slow if any(piece.node == self.nodes - 1 for piece in pieces) else 1.0


@dataclass(frozen=True)
class Run:
    """One segment."""

    row: int
    start_s: float
    end_s: float
    pieces: tuple[NodeAllocation, ...]


Free = list[tuple[int, int, int]]
"""GPUs, CPUs and memory of each node."""


def runs_of(outcome: SimulationOutcome, witness: Witness, may_run_on: Collection[int] = ()) -> list[Run]:
    """All segments with the pieces that the witness saw; these must be on the nodes that the segments name.

    Rows of ``may_run_on`` may have one run more, which had not ended when the simulation did.
    """
    segments, seen = outcome.segments, defaultdict(int)
    by_start = sorted(range(len(segments.job)), key=lambda at: (segments.start_s[at], segments.end_s[at]))
    runs = []
    for at in by_start:
        row = int(segments.job[at])
        pieces = witness.runs[row][seen[row]]
        seen[row] += 1
        part = slice(segments.node_start[at], segments.node_start[at + 1])
        assert [piece.node for piece in pieces] == segments.node[part].tolist()
        assert [piece.gpus for piece in pieces] == segments.node_gpus[part].tolist()
        runs.append(Run(row, float(segments.start_s[at]), float(segments.end_s[at]), pieces))
    assert all(len(placed) - seen[row] in (0, int(row in may_run_on)) for row, placed in witness.runs.items())
    return runs


def instants(outcome: SimulationOutcome, runs: list[Run]) -> Iterator[tuple[float, Free, list[int]]]:
    """After all that happens at each time: the time, what nodes have free, and who waits.

    Asserts on the way that nothing is given twice, and nothing on a node that is down.
    """
    work, cluster = outcome.workload, outcome.cluster
    submits_s = work.submit_s.tolist()
    times = {*submits_s, *(t for run in runs for t in (run.start_s, run.end_s))}
    times |= {t for failure in cluster.failures for t in (failure.down_s, failure.up_s)}
    over_s = np.where(np.isnan(outcome.end_s), np.inf, outcome.end_s).tolist()
    for now_s in sorted(times - {float("inf")}):
        columns = (cluster.gpus.tolist(), cluster.cpus.tolist(), cluster.memory_mib.tolist())
        free = list(zip(*columns, strict=True))
        now = [run for run in runs if run.start_s <= now_s < run.end_s]
        for run in now:
            for node, *taken in run.pieces:
                free[node] = tuple(has - part for has, part in zip(free[node], taken, strict=True))
        assert min(min(amounts) for amounts in free) >= 0, f"given twice at {now_s}"
        held = [run.row for run in now]
        assert len(set(held)) == len(held), f"one job runs twice at {now_s}"
        down = {failure.node for failure in cluster.failures if failure.down_s <= now_s < failure.up_s}
        assert not down & {piece.node for run in now for piece in run.pieces}, f"runs on a failed node at {now_s}"
        free = [(0, 0, 0) if node in down else amounts for node, amounts in enumerate(free)]
        waits = [row for row in range(len(work)) if submits_s[row] <= now_s < over_s[row] and row not in held]
        yield now_s, free, waits


def is_whole(work: Workload, cluster: SimulatedCluster, row: int, pieces: tuple[NodeAllocation, ...]) -> bool:
    """Whether these places are what the job asks for."""
    nodes, each = {piece.node for piece in pieces}, int(work.gpus_per_node[row])
    units = int(work.gpus[row]) or int(work.cpus[row])
    return (
        sum(piece.gpus for piece in pieces) == work.gpus[row]
        and sum(piece.cpus for piece in pieces) >= work.cpus[row]
        and sum(piece.memory_mib for piece in pieces) >= work.memory_mib[row]
        and len(pieces) == len(nodes) >= min(work.nodes[row], units)
        and all(piece.gpus == each for piece in pieces if each)
        and nodes <= set(allowed(work, cluster, row))
    )


def allowed(work: Workload, cluster: SimulatedCluster, row: int) -> list[int]:
    """Nodes of the job's partition that have its type of GPU."""
    partition = work.partitions[work.partition[row]]
    if partition not in cluster.partitions:
        return []
    wanted = work.gpu_types[work.gpu_type[row]] if work.gpu_type[row] >= 0 else None
    types = [cluster.gpu_types[code] if code >= 0 else "" for code in cluster.gpu_type.tolist()]
    member = cluster.in_partition[:, cluster.partitions.index(partition)].tolist()
    return [node for node in range(len(cluster)) if member[node] and wanted in (None, types[node])]


def would_fit(work: Workload, cluster: SimulatedCluster, row: int, free: Free) -> bool:
    """Whether the job could run on what is free: equal shares on as many nodes as it asks for, or any split."""
    gpus, cpus, memory = int(work.gpus[row]), int(work.cpus[row]), int(work.memory_mib[row])
    nodes, each = int(work.nodes[row]), int(work.gpus_per_node[row])
    if each:
        nodes = max(nodes, gpus // each)
    rooms = [free[node] for node in allowed(work, cluster, row)]
    share = (each or up(gpus, nodes), up(cpus, nodes), up(memory, nodes))
    even = sum(all(has >= part for has, part in zip(room, share, strict=True)) for room in rooms)
    if even >= nodes and (each or gpus % nodes == 0):
        return True
    units = gpus or cpus
    if each or units < 2:
        return False
    unit = (1, up(cpus, gpus), up(memory, gpus)) if gpus else (0, 1, up(memory, cpus))
    slots = [min(has // part for has, part in zip(room, unit, strict=True) if part) for room in rooms]
    return sum(slots) >= units and sum(slot > 0 for slot in slots) >= min(nodes, units)


def up(amount: int, parts: int) -> int:
    """Divided, the last part counted whole."""
    return -(-amount // parts)


def empty(cluster: SimulatedCluster) -> Free:
    """What the nodes have."""
    return list(zip(cluster.gpus.tolist(), cluster.cpus.tolist(), cluster.memory_mib.tolist(), strict=True))


def progress_s(outcome: SimulationOutcome, runs: list[Run], witness: Witness, costs: Costs) -> np.ndarray:
    """What each job got done, in seconds at the speed that it asked for."""
    done = np.zeros(len(outcome.workload))
    restart_s = outcome.workload.restart_s + costs.restart_s
    begun = set()
    for run in runs:
        last = run.end_s == outcome.end_s[run.row]
        cost_s = restart_s[run.row] if run.row in begun else costs.start_s
        begun.add(run.row)
        on = {piece.node for piece in run.pieces}
        if not last and any(failure.node in on and failure.down_s == run.end_s for failure in outcome.cluster.failures):
            continue
        if not last and not outcome.workload.gpus[run.row]:  # an aborted CPU job starts anew
            continue
        saves_s = 0.0 if last else costs.checkpoint_s
        done[run.row] += max(run.end_s - run.start_s - cost_s - saves_s, 0.0) * witness.of(run.pieces)
    return done
