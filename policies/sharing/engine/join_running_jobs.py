"""From a plan that puts jobs onto GPUs of running ones to what is done about it: their requests become those of guests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from slurm_soda.policies.pipeline.actions import JoinGpus, OrderJobs, ResizeRequest, RouteJob
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.engine.manual_joins import BY_HAND
from slurm_soda.policies.sharing.engine.plan_check import GpuPlacement, SharingPlanError, check_sharing_plan
from slurm_soda.policies.sharing.mechanism.mechanism import Mechanism
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn
from slurm_soda.policies.waiting.overdue import order_overdue


@dataclass(frozen=True, slots=True)
class JoinRunningJobs:
    """Says of each job that starts on GPUs of others how it gets there, and puts those that wait as guests before all.

    A job that joins does not fit as it is, so Slurm is not told to start it: until its request is that of a guest it is
    neither lifted nor in anybody's way (:attr:`.JobVerdict.JOIN`). Starts and places stay as the policy has them, but for
    what cannot be: who follows those, as the simulator does, sees no difference.
    """

    name: str = "join running jobs"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with a :class:`.JoinGpus` for each job that joins others and can; why the others cannot is in
        :attr:`.SharingPlan.refused_joins`.
        """
        if not isinstance(snapshot, SharingSnapshot) or not _rewrites(snapshot.mechanism):
            return plan
        joining = _find_joining(snapshot, plan)
        guests = snapshot.jobs.job_id[snapshot.sharing.waits_as_guest]
        if not joining and not len(guests):
            return plan
        joins: list[JoinGpus] = []
        if isinstance(plan, SharingPlan) and joining:
            check = _JoinCheck(snapshot, plan, joining)
            placed = check.run()
            holders = _holders(snapshot)
            joins = [_join(snapshot, plan, job_id, placed[job_id], holders) for job_id in joining if job_id in placed]
            facts = {"joins": float(len(joins)), "joins_refused": float(len(check.refused))}
            plan = replace(plan, facts={**plan.facts, **facts}, refused_joins={**plan.refused_joins, **check.refused})
            plan = _without_starts(plan, list(check.refused)) if check.refused else plan
        seated = np.array([*(join.job_id for join in joins), *guests.tolist()], dtype=np.int64)
        verdict = plan.notes.verdict.copy()
        verdict[np.isin(plan.notes.job_id, seated)] = JobVerdict.JOIN
        actions = [_with_guests(one, guests) if isinstance(one, OrderJobs) else one for one in plan.actions]
        return replace(plan, notes=replace(plan.notes, verdict=verdict), actions=(*actions, *joins))


def _rewrites(mechanism: Mechanism) -> bool:
    """Whether guests are made by their requests: hosts run already, and indices are equal, as :class:`.JoinGpus` says."""
    return mechanism.equal_indices and not mechanism.starts_together


def _find_joining(snapshot: SharingSnapshot, plan: Plan) -> list[int]:
    """Jobs that would start on GPUs of others, most urgent first."""
    if not isinstance(plan, SharingPlan) or not plan.devices:
        return []
    held = frozenset(snapshot.devices.held.tolist())
    return [job_id for job_id in plan.starts.tolist() if not held.isdisjoint(plan.devices.get(job_id, ()))]


def _without_starts(plan: SharingPlan, waiting: Sequence[int]) -> SharingPlan:
    """The plan in which these jobs wait."""
    starts = plan.starts[~np.isin(plan.starts, waiting)]
    verdict = np.where(np.isin(plan.notes.job_id, waiting), np.int8(JobVerdict.WAIT), plan.notes.verdict)
    order = np.concatenate((starts, plan.order[~np.isin(plan.order, starts)]))
    return replace(plan, starts=starts, order=order, notes=replace(plan.notes, verdict=verdict))


def _with_guests(order: OrderJobs, guests: IntColumn) -> OrderJobs:
    return replace(order, others=order.others[~np.isin(order.others, guests)], guests=guests)


@dataclass(slots=True)
class _JoinCheck:
    """Leaves out of a plan what cannot be, one job after the other, until the rest can."""

    snapshot: SharingSnapshot
    plan: SharingPlan
    joining: Sequence[int]
    refused: dict[int, str] = field(default_factory=dict)
    """Why, by job id; of jobs that join others."""
    _held: frozenset[int] = field(init=False)
    """Devices that somebody holds."""
    _left: frozenset[int] = field(init=False)
    """Those of them that somebody is to leave."""
    _changed: frozenset[int] = field(init=False)
    """Jobs of whose requests something else is changed."""

    def __post_init__(self) -> None:
        devices, plan = self.snapshot.devices, self.plan
        left = (devices.of(self.snapshot.jobs.row(one.job_id)).tolist() for one in plan.preempts)
        self._held, self._left = frozenset(devices.held.tolist()), frozenset(chain.from_iterable(left))
        changes = (one for one in plan.actions if isinstance(one, ResizeRequest | RouteJob))
        self._changed = frozenset(one.job_id for one in changes)

    def run(self) -> Mapping[int, GpuPlacement]:
        """Where the jobs go that can, by id, others that start now among them."""
        for job_id in self.joining:
            problem = self._refuse(job_id)
            if problem:
                self.refused[job_id] = problem
        out, kept_hosts = set(self.refused), set[int]()
        while True:
            try:
                return self._check(out, kept_hosts)
            except SharingPlanError as error:
                if error.preempts:
                    kept_hosts.add(error.job_id)
                    continue
                out.add(error.job_id)
                if error.job_id in self.joining:
                    self.refused[error.job_id] = error.problem

    def _check(self, out: set[int], kept_hosts: set[int]) -> Mapping[int, GpuPlacement]:
        """With neither these jobs nor the preemptions of those hosts."""
        plan = self.plan
        places = {job_id: pieces for job_id, pieces in plan.places.items() if job_id not in out}
        preempts = tuple(one for one in plan.preempts if one.job_id not in kept_hosts)
        draft = replace(plan, places=places, actions=preempts)
        starts = {job_id: places[job_id] for job_id in plan.starts.tolist() if job_id in places}
        return check_sharing_plan(self.snapshot, draft, starts, int(self.snapshot.mechanism.jobs_per_gpu))

    def _refuse(self, job_id: int) -> str:
        """What is not a matter of GPUs, but of requests: which nodes will do, and that nothing else is changed of them."""
        snapshot, plan = self.snapshot, self.plan
        jobs, nodes, row = snapshot.jobs, snapshot.nodes, snapshot.jobs.row(job_id)
        if job_id in self._changed:
            return "something else of its request is changed first"
        pieces = plan.places.get(job_id, ())
        if not pieces:
            return "it has no place"
        node_set = int(jobs.node_set[row]) if len(jobs.node_set) else -1
        for piece in pieces:
            would_do = nodes.in_partition[piece.node, jobs.partition[row]]
            if not would_do or (node_set >= 0 and not nodes.node_sets[piece.node, node_set]):
                return f"node {nodes.name[piece.node]} will not do for it"
        mine = plan.devices[job_id]
        if not self._left.isdisjoint(mine):
            return "who is there shall make way for others"
        if not self._held.issuperset(mine) and len(order_overdue(snapshot)):
            return "it would take GPUs of its own before a job that nobody may pass"
        return ""


def _holders(snapshot: SharingSnapshot) -> dict[int, int]:
    """Who holds each device that somebody holds, by id; where a guest may join, that is one job."""
    devices = snapshot.devices
    owner = np.repeat(snapshot.jobs.job_id, np.diff(devices.held_start))
    return dict(zip(devices.held.tolist(), owner.tolist(), strict=True))


def _join(
    snapshot: SharingSnapshot, plan: SharingPlan, job_id: int, placed: GpuPlacement, holders: Mapping[int, int]
) -> JoinGpus:
    """What the check found to be possible, so that indices are the same on all nodes."""
    first, jobs = snapshot.devices.first, snapshot.jobs
    node_of = (np.searchsorted(first, placed.devices, side="right") - 1).tolist()
    nodes = sorted(set(node_of))
    shared = [(node, device) for node, device in zip(node_of, placed.devices, strict=True) if device in holders]
    gpus = tuple(sorted({device - int(first[node]) for node, device in shared}))
    names = tuple(snapshot.nodes.name[node] for node in nodes)
    ids = tuple(sorted({holders[device] for _, device in shared}))
    batch = int(snapshot.sharing.batch[jobs.row(job_id)])
    by_hand = any(guest == job_id for guest, _ in snapshot.sharing.manual_joins)
    return JoinGpus(
        job_id=job_id,
        hosts=ids,
        nodes=names,
        gpus=gpus,
        own=(len(placed.devices) - len(shared)) // len(nodes),
        sub_batch=placed.sub_batch,
        steps=-(-batch // placed.sub_batch) if placed.sub_batch else 1,
        reason=f"{BY_HAND if by_hand else plan.policy}: guest of job {', '.join(map(str, ids))}, on GPU "
        f"{', '.join(map(str, gpus))} of node "
        f"{', '.join(names)}",
    )
