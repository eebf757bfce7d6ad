"""A snapshot for policies that share GPUs, from one that counts them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.snapshot import GpuDevices, KindEstimates, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn


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
    return SharingSnapshot(**columns, devices=devices, sharing=sharing, known=known, mechanism=mechanism)


def _taken_by_node(devices: GpuDevices) -> IntColumn:
    """GPUs of each node that somebody holds, shared ones counted once."""
    taken = devices.unavailable.copy() if len(devices.unavailable) else np.zeros(len(devices), dtype=np.bool_)
    taken[devices.held] = True
    total = np.concatenate(([0], np.cumsum(taken)))
    return total[devices.first[1:]] - total[devices.first[:-1]]
