"""A snapshot for policies that share GPUs: single GPUs as Slurm tells them, kinds by hints, and what the store knows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.learning.job_kinds import kind_of_listed_job
from slurm_soda.daemon.learning.stored_profiles import read_kind_profiles
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.sharing.faulted_pairs import with_faulted_pairs
from slurm_soda.daemon.sharing.gpu_columns import DeviceReader, GuestPlacement, without_guests
from slurm_soda.daemon.sharing.may_join import all_listed, consents, why_pools_exclude
from slurm_soda.daemon.sharing.node_guards import describe_unguarded, keep_lapses, read_node_guards
from slurm_soda.daemon.sharing.observed_pairs import with_observations
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.stages.membership import members_of
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.mechanism.guest_obstacles import find_guest_obstacle
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.pair_knowledge.profile_values import normalised_kind
from slurm_soda.policies.sharing.parting.part_pairs import PartPairs
from slurm_soda.policies.sharing.plan import SharingPlan, list_co_runners
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, JobTable
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, policy_state
from slurm_soda.slurm_ext.read.snapshot import can_be_parted, is_revocable
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob

NOT_REQUEUED = "only a batch job of one piece that Slurm may requeue can be one"
KNOWN_FOR_S = 60.0
"""So often is looked whether something else is known of kinds of jobs; learning and imports are slower."""


WhyNotGuest = Callable[[SlurmJob, WaitingJob | None], str]
"""Why a waiting job's request cannot be made that of a guest, by what Slurm tells of it; empty if it can."""


def _no_obstacle(_job: SlurmJob, _request: WaitingJob | None) -> str:
    return ""


@dataclass(slots=True)
class SharingSnapshotReader:
    """Adds what a policy must know to share GPUs; keeps what the store knows of kinds for a while."""

    store: Store
    guests: GuestsByNode = field(default_factory=GuestsByNode)
    why_not_guest: WhyNotGuest = _no_obstacle
    problem: str = ""
    """Why nothing is shared although the site has set it up, at the last snapshot."""
    unguarded: str = ""
    """Nodes with hosts that can have no guests, and why, at the last snapshot."""
    _known: KindProfiles | None = None
    _fingerprint: tuple[Any, ...] = ()
    """Of what :attr:`_known` was read from."""
    _read_again_s: float = -math.inf
    """By the steady clock."""
    _failing: str = field(default="")

    def fill(
        self,
        snapshot: ClusterSnapshot,
        slurm_state: SlurmState,
        settings: SharingSettings,
        *,
        parts_by_hand: bool,
        guests: Collection[int],
    ) -> ClusterSnapshot:
        """The snapshot with single GPUs, where jobs of a partition may share them, or, with ``parts_by_hand``, a guest shall
        go; else, and where that fails, as it was.

        Pools divide a snapshot, and nobody divides single GPUs: with pools in force nothing is shared.
        """
        self.unguarded = ""
        pools_in_force = members_of(snapshot) is not None
        self.problem = why_pools_exclude(settings, pools_in_force=pools_in_force)
        if pools_in_force or not (settings.partitions or parts_by_hand):
            return snapshot
        try:
            filled = self._filled(snapshot, slurm_state, settings, guests)
            if not settings.partitions:  # whatever is observed of pairs, it parts nobody there
                return filled
            filled = with_faulted_pairs(self.store, filled)
            return with_observations(self.store, filled, slurm_state.jobs, self.guests.co_runners_of)
        except Exception as error:  # noqa: BLE001 - without sharing everything goes on
            if self._failing != repr(error):
                self._failing = repr(error)
                log(logging.WARNING, "sharing-not-seen", error=f"{type(error).__name__}: {error}")
                LOGGER.debug("unexpected", exc_info=True)
            return snapshot

    def _filled(
        self, snapshot: ClusterSnapshot, slurm_state: SlurmState, settings: SharingSettings, ours: Collection[int]
    ) -> ClusterSnapshot:
        known = self._read_known(slurm_state.steady_s, mps=settings.mps)
        records = [slurm_state.jobs[job_id] for job_id in snapshot.jobs.job_id.tolist()]
        with self.store.read() as session:
            told = read_node_guards(session, slurm_state.now_s)
        allocations = slurm_state.allocations
        guards = told.with_jobs(records, allocations, ours)
        keep_lapses(self.store, told, guards)
        reading = DeviceReader(snapshot, records, slurm_state.nodes, allocations, settings.gres, guards)
        devices, guests = reading.find_devices(known)
        sharing = describe_jobs(snapshot.jobs, records, slurm_state.nodes, known, settings)
        self.unguarded = describe_unguarded(records, allocations, sharing.shares, guards)
        unrecorded = tuple(
            record.job_id for record in records if record.job_id in guards.unrecorded and is_revocable(record)
        )
        sharing = replace(sharing, waits_as_guest=_wait_as_guests(records, guests, devices), unrecorded=unrecorded)
        sharing = self._with_obstacles(sharing, records, slurm_state.waiting or {})
        jobs = snapshot.jobs.with_columns(alloc_gpus=_gpus_by_entry(snapshot.jobs, devices))
        nodes = without_guests(snapshot.nodes, snapshot, guests)
        self._failing = ""
        return assemble_sharing_snapshot(replace(snapshot, jobs=jobs, nodes=nodes), devices, sharing, known, SLURM)

    def _with_obstacles(
        self, sharing: SharingJobs, records: Sequence[SlurmJob], waiting: Mapping[int, WaitingJob]
    ) -> SharingJobs:
        """Asked of those only that would share."""
        told = [
            self.why_not_guest(record, waiting.get(record.job_id)) if shares and record.state == "PENDING" else ""
            for record, shares in zip(records, sharing.shares.tolist(), strict=True)
        ]
        obstacles = sorted(set(told) - {""})
        number = {"": -1, **{text: at for at, text in enumerate(obstacles)}}
        obstacle = np.array([number[text] for text in told], dtype=np.int64)
        return replace(sharing, obstacle=obstacle, obstacles=tuple(obstacles))

    def _read_known(self, steady_s: float, *, mps: bool) -> KindProfiles:
        if self._known is None or steady_s >= self._read_again_s:
            with self.store.read() as session:
                fingerprint = (mps, *stored.fingerprint(session))
                if self._known is None or fingerprint != self._fingerprint:  # else answers about pairs are kept, too
                    self._known, self._fingerprint = read_kind_profiles(session, mps=mps), fingerprint
            self._read_again_s = steady_s + KNOWN_FOR_S
        return self._known


def describe_jobs(
    jobs: JobTable,
    records: Sequence[SlurmJob],
    nodes: Sequence[SlurmNode],
    known: KindProfiles,
    settings: SharingSettings,
) -> SharingJobs:
    """What the jobs of the table are, and whether their owners let them share. No job runs with a sub-batch yet, and of none
    it is known how often it saves its state.
    """
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
    lists = {record.partition for record in records}
    share, mixed = (
        {name: all_listed(name, allowed) for name in lists}
        for allowed in (settings.partitions, settings.different_users)
    )
    to_itself, to_its_user = _on_kept_nodes(records)
    site_bound = settings.max_slowdown or math.inf
    slowest = [record.hints.max_slowdown or site_bound for record in records]
    return SharingJobs(
        kinds=tuple(kinds),
        kind=np.array(codes, dtype=np.int64),
        batch=batch,
        sub_batch=batch,
        iterations=jobs.remaining_s / iteration_s,
        shares=~to_itself
        & np.array([share[record.partition] and consents(record, settings) for record in records], dtype=np.bool_),
        accumulates=np.array([record.hints.accumulates for record in records], dtype=np.bool_),
        max_slowdown=np.array(slowest, dtype=np.float64),
        requeueable=np.array([_can_be_requeued(record) for record in records], dtype=np.bool_),
        meets_others=~to_its_user & np.array([mixed[record.partition] for record in records], dtype=np.bool_),
        revocable=np.array([can_be_parted(record) for record in records], dtype=np.bool_),
    )


def _on_kept_nodes(records: Sequence[SlurmJob]) -> tuple[BoolColumn, BoolColumn]:
    """Jobs on nodes that one of them keeps to itself, or from other users (``--exclusive``): beside them Slurm would never
    start a guest, or none of theirs, whichever of the jobs there its host would be.
    """
    if not any(record.exclusive.keeps_off for record in records):
        nobody = np.zeros(len(records), dtype=np.bool_)
        return nobody, nobody
    on = [
        expand_hosts(record.node_names) if record.state not in ("PENDING", *ENDED_STATES) else () for record in records
    ]
    kept = [(record.exclusive, nodes) for record, nodes in zip(records, on, strict=True) if record.exclusive.keeps_off]
    by_all = {name for exclusive, nodes in kept if exclusive.whole_nodes for name in nodes}
    by_some = {name for _, nodes in kept for name in nodes}
    to_itself, to_its_user = (
        np.array([not names.isdisjoint(nodes) for nodes in on], dtype=np.bool_) for names in (by_all, by_some)
    )
    return to_itself, to_its_user


def limit_partings(snapshot: ClusterSnapshot, refused: Collection[int], max_preemptions: int) -> ClusterSnapshot:
    """The snapshot in which guests that Slurm refused to requeue lately, or that were preempted so often (0: no bound), stay
    beside their hosts. Those that no wall holds go however often they went.
    """
    if not isinstance(snapshot, SharingSnapshot):
        return snapshot
    jobs, sharing = snapshot.jobs, snapshot.sharing
    revocable = sharing.revocable & ~np.isin(jobs.job_id, list(refused))
    if max_preemptions:
        revocable &= jobs.preemptions < max_preemptions
    unrecorded = tuple(job_id for job_id in sharing.unrecorded if job_id not in refused)
    return replace(snapshot, sharing=replace(sharing, revocable=revocable, unrecorded=unrecorded))


def describe_shares(plan: Plan, snapshot: ClusterSnapshot, unguarded: str = "") -> dict[int, dict[str, Any]]:
    """Where jobs would start on GPUs of others, as plain data (GPUs by node, and with whom), or why they cannot; by id.
    Why running ones stay beside others that slow them too much is there too, and for those that would join somebody,
    ``unguarded``: nodes whose hosts can have no guests.
    """
    if not isinstance(snapshot, SharingSnapshot):
        return {}
    found: dict[int, dict[str, Any]] = {
        job_id: {"stays": why} for job_id, why in PartPairs().explain_stays(snapshot, plan).items()
    }
    if not isinstance(plan, SharingPlan):
        return found
    first, names = snapshot.devices.first, snapshot.nodes.name
    if unguarded:
        waits = snapshot.sharing.shares & (snapshot.jobs.state == JobState.PENDING)
        found |= {int(job_id): {"unguarded": unguarded} for job_id in snapshot.jobs.job_id[waits].tolist()}
    found |= _describe_obstacles(snapshot)
    for job_id, others in list_co_runners(plan, snapshot).items():
        gpus: dict[str, list[int]] = {}
        for device in plan.devices[job_id]:
            node = int(np.searchsorted(first, device, side="right")) - 1
            gpus.setdefault(names[node], []).append(device - int(first[node]))
        found[job_id] = {"gpus": gpus, "with": list(others)}
        if job_id in plan.refused_joins:
            found[job_id]["refused"] = plan.refused_joins[job_id]
    return found


def _describe_obstacles(snapshot: SharingSnapshot) -> dict[int, dict[str, Any]]:
    """Of waiting jobs that would share, but can be nobody's guests."""
    jobs, sharing = snapshot.jobs, snapshot.sharing
    barred = ~sharing.requeueable | (sharing.obstacle >= 0)
    rows = np.flatnonzero(barred & sharing.shares & (jobs.state == JobState.PENDING))
    return {
        int(jobs.job_id[row]): {"no_guest": find_guest_obstacle(snapshot, row) or NOT_REQUEUED} for row in rows.tolist()
    }


def _can_be_requeued(record: SlurmJob) -> bool:
    """A batch job of one piece. Of an array's waiting tasks one becomes a job of its own first."""
    return record.batch and record.requeue and not record.het_job_id


def _wait_as_guests(records: Sequence[SlurmJob], guests: Sequence[GuestPlacement], devices: GpuDevices) -> BoolColumn:
    """Guests whose guests are there, and that wait for nothing else."""
    waits = np.zeros(len(records), dtype=np.bool_)
    for guest in guests:
        record = records[guest.row]
        eligible = policy_state(record.state, record.reason) is JobState.PENDING
        waits[guest.row] = eligible and bool(devices.shareable[list(guest.devices)].all())
    return waits


def _gpus_by_entry(jobs: JobTable, devices: GpuDevices) -> IntColumn:
    """GPUs of each allocation entry, shared ones too; as they were for jobs whose GPUs nobody knows."""
    gpus, node_of = jobs.alloc_gpus.copy(), np.searchsorted(devices.first, devices.held, side="right") - 1
    for row in np.flatnonzero(np.diff(devices.held_start)).tolist():
        nodes = node_of[devices.held_start[row] : devices.held_start[row + 1]]
        for entry in range(int(jobs.alloc_start[row]), int(jobs.alloc_start[row + 1])):
            gpus[entry] = np.count_nonzero(nodes == jobs.alloc_node[entry])
    return gpus
