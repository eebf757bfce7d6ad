"""Jobs that the cluster could not hold even if it were empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from slurm_soda.policies.engine.demand import group_equal_rows, group_snapshot_requests
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, NodeTable
from slurm_soda.simulator.cluster import UNCOUNTED, SimulatedCluster
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.trace import JobTrace, SkippedEntry
from slurm_soda.simulator.workload import Workload


def select_jobs_that_fit(
    workload: Workload, cluster: SimulatedCluster, *, lenient: bool, path: Path | str, line: IntColumn | None = None
) -> tuple[Workload, tuple[SkippedEntry, ...]]:
    """The jobs that the cluster could hold if it were empty and all its nodes were up, and those that it could not.

    It is what policies look at too (verdict TOO_LARGE): a whole gang with its CPUs and memory on nodes of its
    partition and GPU type. One search for each distinct request.

    Args:
        workload: the jobs.
        cluster: the nodes.
        lenient: leave jobs out that are too large, instead of raising at the first one.
        path: where the jobs come from, for the error.
        line: line of each job in that file.

    Raises:
        TraceError: a job is too large and ``lenient`` is not set, or no job is left.
    """
    fits, skipped = _sort_out(workload, cluster, lenient=lenient, path=str(path), line=line)
    return (workload if fits.all() else workload.select(fits)), skipped


def drop_oversized_jobs(trace: JobTrace, cluster: SimulatedCluster, *, lenient: bool, path: Path | str) -> JobTrace:
    """A trace without the jobs that are too large for a cluster, which join its ``skipped``.

    Raises:
        TraceError: as :func:`select_jobs_that_fit`.
    """
    fits, skipped = _sort_out(trace.workload, cluster, lenient=lenient, path=str(path), line=trace.line)
    if fits.all():
        return trace
    columns: dict[str, Any] = {
        spec.name: getattr(trace, spec.name)[fits]
        for spec in fields(trace)
        if isinstance(getattr(trace, spec.name), np.ndarray)
    }
    everything = sorted((*trace.skipped, *skipped), key=lambda entry: entry.line)
    return replace(trace, workload=trace.workload.select(fits), skipped=tuple(everything), **columns)


def _sort_out(
    workload: Workload, cluster: SimulatedCluster, *, lenient: bool, path: str, line: IntColumn | None
) -> tuple[BoolColumn, tuple[SkippedEntry, ...]]:
    first, group = group_equal_rows(
        (
            workload.partition,
            workload.gpu_type,
            workload.gpus,
            workload.nodes,
            workload.gpus_per_node,
            workload.cpus,
            workload.memory_mib,
        )
    )
    requests = [_request(workload, row) for row in first.tolist()]
    possible = _possible(requests, cluster)
    fits: BoolColumn = possible[group]
    skipped: list[SkippedEntry] = []
    for row in np.flatnonzero(~fits).tolist():
        why = f"it {_complaint(requests[group[row]], cluster)}"
        at = int(line[row]) if line is not None else 0
        if not lenient:
            raise TraceError(
                path,
                at,
                f"job {workload.label[row]!r} is larger than the cluster {cluster.name}: {why}; choose a larger "
                "--cluster, or leave such jobs out with --lenient",
            )
        skipped.append(SkippedEntry(at, f"larger than the cluster {cluster.name}: {why}", workload.label[row]))
    if not fits.any():
        raise TraceError(path, skipped[0].line, f"no job fits; job {skipped[0].value!r} is {skipped[0].reason}")
    return fits, tuple(skipped)


def _request(workload: Workload, row: int) -> dict[str, Any]:
    numbers = ("gpus", "nodes", "gpus_per_node", "cpus", "memory_mib")
    partition, gpu_type = int(workload.partition[row]), int(workload.gpu_type[row])
    return {
        "partition": workload.partitions[partition] if partition >= 0 else "",
        "gpu_type": workload.gpu_types[gpu_type] if gpu_type >= 0 else "",
        **{name: int(getattr(workload, name)[row]) for name in numbers},
    }


def _possible(requests: list[dict[str, Any]], cluster: SimulatedCluster) -> BoolColumn:
    """Which requests an empty cluster could hold."""
    nodes = NodeTable(
        name=cluster.node_names,
        usable=np.ones(len(cluster), dtype=np.bool_),
        gpus=cluster.gpus,
        gpus_free=cluster.gpus,
        gpu_type=cluster.gpu_type,
        cpus=cluster.cpus,
        cpus_free=cluster.cpus,
        memory_mib=cluster.memory_mib,
        memory_free_mib=cluster.memory_mib,
        in_partition=cluster.in_partition,
        gpu_types=cluster.gpu_types,
    )
    jobs = build_job_table([{"job_id": at + 1, **request} for at, request in enumerate(requests)])
    demand = group_snapshot_requests(ClusterSnapshot(now_s=0.0, jobs=jobs, nodes=nodes, partitions=cluster.partitions))
    free = FreeNodes(NodeGroups(nodes), cluster.gpus, cluster.cpus, cluster.memory_mib)
    fits = np.array([free.find(shape) is not None for shape in demand.shapes], dtype=np.bool_)
    return fits[demand.code]


def _complaint(request: Mapping[str, Any], cluster: SimulatedCluster) -> str:
    """What is too much, in the terms of the first sum that shows it."""
    if request["partition"] not in cluster.partitions:
        return f"needs partition {request['partition']!r}, but there are {', '.join(cluster.partitions)}"
    eligible = cluster.in_partition[:, cluster.partitions.index(request["partition"])].copy()
    kind = ""
    if request["gpu_type"]:
        kind = f" of type {request['gpu_type']}"
        types = cluster.gpu_types
        eligible &= cluster.gpu_type == (types.index(request["gpu_type"]) if request["gpu_type"] in types else -2)
    for name, words, has in (
        ("gpus", f"GPUs{kind}", cluster.gpus),
        ("cpus", "CPUs", cluster.cpus),
        ("memory_mib", "MiB", cluster.memory_mib),
        ("nodes", "nodes", np.ones(len(cluster), dtype=np.int64)),
    ):
        total = int(has[eligible].sum())
        if request[name] > total:
            return f"needs {request[name]} {words}, but there are {total}"
    return f"needs {_shape(request)}, which no set of nodes has{_largest(cluster, eligible)}"


def _shape(request: Mapping[str, Any]) -> str:
    parts = [
        f"{request['gpus']} GPUs" if request["gpus"] else "",
        f"{request['cpus']} CPUs" if request["cpus"] else "",
        f"{request['memory_mib']} MiB" if request["memory_mib"] else "",
    ]
    each = f", {request['gpus_per_node']} GPUs on each" if request["gpus_per_node"] else ""
    nodes = f" on {request['nodes']} nodes" if request["nodes"] > 1 else ""
    return " with ".join(part for part in parts if part) + nodes + each


def _largest(cluster: SimulatedCluster, eligible: BoolColumn) -> str:
    gpus, cpus = int(cluster.gpus[eligible].max()), int(cluster.cpus[eligible].max())
    return f" (a node has up to {gpus} GPUs" + (f" and {cpus} CPUs)" if cpus < UNCOUNTED else ")")
