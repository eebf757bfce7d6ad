"""A snapshot for policies that share GPUs, from one that counts them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.snapshot import GpuDevices, KindEstimates, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState, JobTable


def assemble_sharing_snapshot(
    snapshot: ClusterSnapshot,
    devices: GpuDevices,
    sharing: SharingJobs,
    known: KindEstimates,
    mechanism: Mechanism = IDEAL,
) -> SharingSnapshot:
    """The same cluster with its GPUs one by one.

    Args:
        snapshot: jobs and nodes; how many GPUs it takes for free is of no account.
        devices: those of its nodes, and who of its jobs holds them.
        sharing: beside its job table.
        known: at this instant; nothing that is learned later may change it.
        mechanism: what carries plans out.
    """
    nodes = snapshot.nodes
    free = np.where(nodes.usable, nodes.gpus - _taken_by_node(devices), 0)
    columns = {spec.name: getattr(snapshot, spec.name) for spec in fields(ClusterSnapshot)}
    columns["nodes"] = replace(nodes, gpus_free=free)
    columns["jobs"] = _leave_shared_gpus(snapshot.jobs, devices)
    return SharingSnapshot(**columns, devices=devices, sharing=sharing, known=known, mechanism=mechanism)


def _taken_by_node(devices: GpuDevices) -> IntColumn:
    """GPUs of each node that somebody holds, shared ones counted once."""
    taken = devices.unavailable.copy() if len(devices.unavailable) else np.zeros(len(devices), dtype=np.bool_)
    taken[devices.held] = True
    total = np.concatenate(([0], np.cumsum(taken)))
    return total[devices.first[1:]] - total[devices.first[:-1]]


def _leave_shared_gpus(jobs: JobTable, devices: GpuDevices) -> JobTable:
    """The jobs; of those that are leaving, only GPUs that nobody else is on get free."""
    leaving = np.flatnonzero(jobs.state == JobState.COMPLETING).tolist()
    others = np.bincount(devices.held, minlength=len(devices)) > 1
    shared = [row for row in leaving if others[devices.of(row)].any()]
    if not shared:
        return jobs
    alloc_gpus = jobs.alloc_gpus.copy()
    for row in shared:
        nodes = np.searchsorted(devices.first, devices.of(row)[others[devices.of(row)]], side="right") - 1
        for entry in range(int(jobs.alloc_start[row]), int(jobs.alloc_start[row + 1])):
            alloc_gpus[entry] -= int(np.count_nonzero(nodes == jobs.alloc_node[entry]))
    return jobs.with_columns(alloc_gpus=np.maximum(alloc_gpus, 0))
