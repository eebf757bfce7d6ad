"""A snapshot for policies that share GPUs: single GPUs as Slurm tells them, kinds by hints, and what the store knows."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurm_soda.daemon.config import SharingSettings
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.learning.job_kinds import kind_of_listed_job
from slurm_soda.daemon.learning.stored_profiles import read_kind_profiles
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.store.engine import Store
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.stages.membership import members_of
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.engine.gpu_holders import GpuHolders
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.pair_knowledge.profile_values import normalised_kind
from slurm_soda.policies.sharing.plan import SharingPlan, list_co_runners
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobTable
from slurm_soda.slurm_ext.client import Allocation, SlurmJob, SlurmNode

KNOWN_FOR_S = 60.0
"""What is known of kinds of jobs is read again so often; learning and imports are slower."""


@dataclass(slots=True)
class SharingSnapshotReader:
    """Adds what a policy must know to share GPUs; keeps what the store knows of kinds for a while."""

    store: Store
    _known: KindProfiles | None = None
    _read_again_s: float = -math.inf
    """By the steady clock."""
    _failing: str = field(default="")

    def fill(self, snapshot: ClusterSnapshot, slurm_state: SlurmState, settings: SharingSettings) -> ClusterSnapshot:
        """The snapshot with single GPUs, where jobs of a partition may share them; else, and where that fails, as it was.

        Pools divide a snapshot, and nobody divides single GPUs: with pools in force nothing is shared.
        """
        if not settings.partitions or members_of(snapshot) is not None:
            return snapshot
        try:
            return self._filled(snapshot, slurm_state, settings)
        except Exception as error:  # noqa: BLE001 - without sharing everything goes on
            if self._failing != repr(error):
                self._failing = repr(error)
                log(logging.WARNING, "sharing-not-seen", error=f"{type(error).__name__}: {error}")
                LOGGER.debug("unexpected", exc_info=True)
            return snapshot

    def _filled(self, snapshot: ClusterSnapshot, slurm_state: SlurmState, settings: SharingSettings) -> ClusterSnapshot:
        known = self._read_known(slurm_state.steady_s)
        records = [slurm_state.jobs[job_id] for job_id in snapshot.jobs.job_id.tolist()]
        devices = find_devices(snapshot, records, slurm_state.nodes, slurm_state.allocations, known)
        sharing = describe_jobs(snapshot.jobs, records, slurm_state.nodes, known, settings)
        jobs = snapshot.jobs.with_columns(alloc_gpus=_gpus_by_entry(snapshot.jobs, devices))
        self._failing = ""
        return assemble_sharing_snapshot(replace(snapshot, jobs=jobs), devices, sharing, known)

    def _read_known(self, steady_s: float) -> KindProfiles:
        if self._known is None or steady_s >= self._read_again_s:
            with self.store.read() as session:
                self._known = read_kind_profiles(session)
            self._read_again_s = steady_s + KNOWN_FOR_S
        return self._known


def find_devices(
    snapshot: ClusterSnapshot,
    records: Sequence[SlurmJob],
    nodes: Sequence[SlurmNode],
    allocations: Mapping[int, Allocation],
    known: KindProfiles,
) -> GpuDevices:
    """Who holds which GPU. Those that are in use, and of which Slurm did not tell by whom, are nobody's to give away.

    ``records`` are those of the job table, ``nodes`` those of the node table, in their order.
    """
    holders, row_of = GpuHolders(snapshot.nodes.gpus), {node.name: row for row, node in enumerate(nodes)}
    first, dark = holders.first.tolist(), set()
    for record in records:
        held: list[int] = []
        for on in allocations.get(record.job_id, ()) if record.state != "PENDING" else ():
            row = row_of.get(on.node)
            if row is None:
                continue
            if on.devices is None or max(on.devices, default=-1) >= nodes[row].gpus:
                dark.add(row)
                continue
            held += (first[row] + index for index in on.devices)
        if held:
            holders.take(record.job_id, tuple(sorted(held)))
    unavailable = np.zeros(len(holders), dtype=np.bool_)
    told = {gpu_type: known.device_mib(gpu_type) for gpu_type in {node.gpu_type for node in nodes}}
    by_type = {gpu_type: math.inf if found is None else found.value for gpu_type, found in told.items()}
    memory_mib = np.full(len(holders), np.inf)
    for row, node in enumerate(nodes):
        span = slice(first[row], first[row + 1])
        if node.gpus_in_use is None or row in dark:
            unavailable[span] = True
        else:
            unavailable[[first[row] + index for index in node.gpus_in_use]] = True
        memory_mib[span] = by_type[node.gpu_type]
    devices = holders.devices(snapshot.jobs.job_id.tolist(), memory_mib)
    unavailable[devices.held] = False
    return replace(devices, unavailable=unavailable)


def describe_jobs(
    jobs: JobTable,
    records: Sequence[SlurmJob],
    nodes: Sequence[SlurmNode],
    known: KindProfiles,
    settings: SharingSettings,
) -> SharingJobs:
    """What the jobs of the table are, and whether their owners let them share. No job runs with a sub-batch yet."""
    gpu_types = {node.name: node.gpu_type for node in nodes if node.gpus}
    kinds: dict[JobKind, int] = {}
    alike: dict[tuple[object, ...], int] = {}
    """Codes by all that tells a kind: few differ among many jobs, and each takes a look at all nodes."""
    codes: list[int] = []
    for record in records:
        told = (record.hints.model, record.hints.batch_size, record.gpu_type, record.node_names, record.gpus)
        if told not in alike:
            kind = kind_of_listed_job(record, gpu_types) if record.gpus else None
            alike[told] = -1 if kind is None else kinds.setdefault(normalised_kind(kind), len(kinds))
        codes.append(alike[told])
    each_s = [found.value if (found := known.iteration_s(kind)) is not None else math.nan for kind in kinds]
    iteration_s = np.array([*each_s, math.nan], dtype=np.float64)[codes]
    batch = np.array([*(kind.batch for kind in kinds), 0], dtype=np.int64)[codes]
    share = {
        name: set(name.split(",")) <= set(settings.partitions) for name in {record.partition for record in records}
    }
    slowest = [record.hints.max_slowdown for record in records]
    return SharingJobs(
        kinds=tuple(kinds),
        kind=np.array(codes, dtype=np.int64),
        batch=batch,
        sub_batch=batch,
        iterations=jobs.remaining_s / iteration_s,
        shares=np.array(
            [share[record.partition] and _consents(record, settings) for record in records], dtype=np.bool_
        ),
        accumulates=np.array([record.hints.accumulates for record in records], dtype=np.bool_),
        max_slowdown=np.array([math.inf if bound is None else bound for bound in slowest], dtype=np.float64),
    )


def describe_shares(plan: Plan, snapshot: ClusterSnapshot) -> dict[int, dict[str, Any]]:
    """Where jobs would start on GPUs of others, as plain data: GPUs by node, and with whom; by job id."""
    if not isinstance(plan, SharingPlan) or not isinstance(snapshot, SharingSnapshot):
        return {}
    first, names = snapshot.devices.first, snapshot.nodes.name
    found: dict[int, dict[str, Any]] = {}
    for job_id, others in list_co_runners(plan, snapshot).items():
        gpus: dict[str, list[int]] = {}
        for device in plan.devices[job_id]:
            node = int(np.searchsorted(first, device, side="right")) - 1
            gpus.setdefault(names[node], []).append(device - int(first[node]))
        found[job_id] = {"gpus": gpus, "with": list(others)}
    return found


def _consents(record: SlurmJob, settings: SharingSettings) -> bool:
    """By its owner's word, or the site's; a job may run in several partitions, which must all share."""
    return record.gpus > 0 and (settings.consent_by_default if record.hints.share is None else record.hints.share)


def _gpus_by_entry(jobs: JobTable, devices: GpuDevices) -> IntColumn:
    """GPUs of each allocation entry, shared ones too; as they were for jobs whose GPUs nobody knows."""
    gpus, node_of = jobs.alloc_gpus.copy(), np.searchsorted(devices.first, devices.held, side="right") - 1
    for row in np.flatnonzero(np.diff(devices.held_start)).tolist():
        nodes = node_of[devices.held_start[row] : devices.held_start[row + 1]]
        for entry in range(int(jobs.alloc_start[row]), int(jobs.alloc_start[row + 1])):
            gpus[entry] = np.count_nonzero(nodes == jobs.alloc_node[entry])
    return gpus
