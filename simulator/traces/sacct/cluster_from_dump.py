"""The cluster that a dump of sacct shows: every node that a job ran on, with the most that was in use there at one time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.simulator.cluster import UNCOUNTED, SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.sacct.dump import SacctDump, SacctRun

_SHOWN = 6
Amounts = tuple[int, int, int]
"""GPUs, CPUs and MiB."""


@dataclass(slots=True)
class _NodeUse:
    """What was seen of one node."""

    now: Amounts = (0, 0, 0)
    most: Amounts = (0, 0, 0)
    types: set[str] = field(default_factory=set)
    cpu_jobs: bool = False
    """Jobs without a GPU ran there."""
    partitions: set[str] = field(default_factory=set)


def cluster_from(dump: SacctDump) -> tuple[SimulatedCluster, tuple[str, ...]]:
    """The cluster as far as the dump shows it, and what was concluded, one line each.

    A node has as many GPUs as were ever in use on it at one time. Nodes with equally many GPUs of one type in the same
    partitions are taken to be the same hardware: each has the most CPUs and memory that were in use on any of them. Where
    only GPU jobs ran, CPUs and memory are not counted: GPUs ran out first, and a dump of few jobs shows too few CPUs.
    Partitions and types of GPUs are numbered as in the workload.

    Raises:
        SimulatorError: the dump does not say where jobs ran.
    """
    seen = _watched(dump.runs)
    if not seen:
        raise SimulatorError(
            f"{dump.trace.workload.name} does not say in a form that can be read on which nodes jobs ran; add NodeList to"
            " sacct's format, or describe the cluster with --cluster"
        )
    names = sorted(seen, key=_natural)
    workload = dump.trace.workload
    shown = {gpu_type for node in seen.values() for gpu_type in node.types if gpu_type}
    types = (*workload.gpu_types, *sorted(shown - set(workload.gpu_types)))
    size = _sizes(seen)
    cluster = SimulatedCluster(
        name=f"seen in {workload.name}",
        node_names=tuple(names),
        gpus=np.array([size[name][0] for name in names], dtype=np.int64),
        gpu_type=np.array([_code(seen[name], types) for name in names], dtype=np.int64),
        cpus=np.array([size[name][1] for name in names], dtype=np.int64),
        memory_mib=np.array([size[name][2] for name in names], dtype=np.int64),
        in_partition=np.array(
            [[partition in seen[name].partitions for partition in workload.partitions] for name in names],
            dtype=np.bool_,
        ).reshape(len(names), len(workload.partitions)),
        partitions=workload.partitions,
        gpu_types=types,
    )
    return cluster, tuple(_notes(cluster, size))


def _watched(runs: Sequence[SacctRun]) -> Mapping[str, _NodeUse]:
    """Each node's most use; what ends in a second is free for what starts in it.

    A run that ended in the second of its start shows that its nodes hold it, and nothing of who was beside it.
    """
    seen: dict[str, _NodeUse] = defaultdict(_NodeUse)
    events: list[tuple[float, int, int]] = []
    for at, run in enumerate(runs):
        if run.nodes:
            events += [(run.start_s, 1, at), (run.end_s, 0, at)] if run.end_s > run.start_s else [(run.start_s, 2, at)]
    for _, kind, at in sorted(events):
        run = runs[at]
        share = tuple(-(-amount // len(run.nodes)) for amount in (run.gpus, run.cpus, run.memory_mib))
        for name in run.nodes:
            node = seen[name]
            gpus, cpus, memory_mib = share
            if kind < 2:
                gpus, cpus, memory_mib = (n + (s if kind else -s) for n, s in zip(node.now, share, strict=True))
                node.now = (gpus, cpus, memory_mib)
            node.most = (max(node.most[0], gpus), max(node.most[1], cpus), max(node.most[2], memory_mib))
            node.partitions.add(run.partition)
            if run.gpus:
                node.types.add(run.gpu_type)
            else:
                node.cpu_jobs = True
    return seen


def _sizes(seen: Mapping[str, _NodeUse]) -> dict[str, Amounts]:
    alike: dict[tuple[int, frozenset[str], frozenset[str]], list[str]] = defaultdict(list)
    for name, node in seen.items():
        alike[node.most[0], frozenset(node.types), frozenset(node.partitions)].append(name)
    size: dict[str, Amounts] = {}
    for (gpus, _, _), names in alike.items():
        cpus, memory_mib = UNCOUNTED, UNCOUNTED
        if any(seen[name].cpu_jobs for name in names):
            cpus = max(seen[name].most[1] for name in names) or UNCOUNTED
            memory_mib = max(seen[name].most[2] for name in names) or UNCOUNTED
        size.update(dict.fromkeys(names, (gpus, cpus, memory_mib)))
    return size


def _code(node: _NodeUse, types: Sequence[str]) -> int:
    """Its type of GPU; none where jobs were given several types, or none with a name.

    Slurm names types only once AccountingStorageTRES has them, so records of before that say nothing against one.
    """
    named = node.types - {""}
    (only,) = named if len(named) == 1 else ("",)
    return types.index(only) if only else -1


def _natural(name: str) -> tuple[str, int, str]:
    """Orders n2 before n10."""
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits[:18] or 0), name


def _notes(cluster: SimulatedCluster, size: Mapping[str, Amounts]) -> Iterator[str]:
    groups: dict[int, int] = defaultdict(int)
    for name in cluster.node_names:
        groups[size[name][0]] += 1
    parts = [f"{count} with {gpus}" for gpus, count in sorted(groups.items(), reverse=True)]
    if len(parts) > _SHOWN:
        parts = [*parts[: _SHOWN - 1], "… down to", parts[-1]]
    yield (
        f"the cluster is taken to be what was in use: {len(cluster)} nodes, by GPUs {', '.join(parts)};"
        " nodes that no job ran on and GPUs that no job held are missing (--cluster describes another one)"
    )
    if uncounted := sum(cpus == UNCOUNTED for _, cpus, _ in size.values()):
        yield f"CPUs and memory of {uncounted} nodes are not counted, because only GPU jobs ran there"
    most, second = max(groups), sorted(groups)[-2] if len(groups) > 1 else 0
    if 0 < second < most and groups[second] < groups[most]:
        yield f"{groups[second]} nodes were never seen with more than {second} GPUs in use while others had {most}"
