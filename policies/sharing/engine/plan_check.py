"""Plans that cannot be: a policy's mistakes are reported, and not carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.mechanism.guest_check import find_guest_fault
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState


class GpuPlacement(NamedTuple):
    """Where a job that starts goes, and with which sub-batch (0: its whole batch)."""

    devices: tuple[int, ...]
    sub_batch: int = 0


class SharingPlanError(PolicyError):
    """A job cannot start where a plan starts it, or cannot be preempted now.

    Attributes:
        job_id: the job.
        problem: why, without naming policy or job.
        unknown_kind: it is that nobody can tell what kind of job somebody is.
        preempts: it is that the job is preempted.
    """

    def __init__(
        self, policy: str, job_id: int, problem: str, *, unknown_kind: bool = False, preempts: bool = False
    ) -> None:
        self.job_id, self.problem, self.unknown_kind, self.preempts = job_id, problem, unknown_kind, preempts
        super().__init__(f"policy {policy} {self.describe(str(job_id))}")

    def describe(self, label: str) -> str:
        """What the plan does and why it cannot be, with the job called so."""
        what = f"preempts job {label}, which" if self.preempts else f"starts job {label} where it"
        return f"{what} cannot{' be' if self.preempts else ''}: {self.problem}"


def check_sharing_plan(
    snapshot: SharingSnapshot,
    plan: Plan,
    starts: Mapping[int, Sequence[NodeAllocation]],
    most: int,
    *,
    freed: Sequence[NodeAllocation] | None = None,
    label: Callable[[int], str] = str,
) -> dict[int, GpuPlacement]:
    """Where the jobs that start now go, by job id, if all of them can.

    A plan that names no GPUs gets the first ones of each node that nobody would have.

    Args:
        snapshot: on which the plan was made.
        plan: a policy's.
        starts: jobs that start now in the order of the plan's places, by job id, with these places.
        most: jobs on one GPU.
        freed: what the preempted jobs hold, if they leave before others start; ``None``: they still run then.
        label: what errors call a job of this id.

    Raises:
        SharingPlanError: a GPU would have too many jobs, or one that does not allow it, that is leaving or whose kind nobody
            knows beside another, or jobs that are known not to fit; CPUs or memory would be given twice; a node is down; or
            the mechanism cannot do it.
    """
    fault = find_guest_fault(snapshot, plan)
    if fault is not None:
        raise SharingPlanError(plan.policy, fault.job_id, fault.problem, preempts=fault.preempts)
    if not starts:
        return {}
    leaving = {preempt.job_id for preempt in plan.preempts}
    draft = _Draft(snapshot, plan, most, leaving, label, vacated=leaving if freed is not None else set())
    draft.check_nodes(starts, freed or ())
    return {job_id: draft.start(job_id, pieces) for job_id, pieces in starts.items()}


class _Draft:
    """Who would be on which GPU after a plan; only the GPUs that it touches are looked at."""

    def __init__(
        self,
        snapshot: SharingSnapshot,
        plan: Plan,
        most: int,
        leaving: set[int],
        label: Callable[[int], str],
        *,
        vacated: set[int],
    ) -> None:
        """``leaving``: jobs that the plan preempts; ``vacated``: those of them that have left by then."""
        self._snapshot, self._plan, self._most, self._label = snapshot, plan, most, label
        self._leaving = {snapshot.jobs.row(job_id) for job_id in leaving}
        self._gone = {snapshot.jobs.row(job_id) for job_id in vacated}
        first = snapshot.devices.first
        self._node = np.repeat(np.arange(len(first) - 1), np.diff(first)).tolist()
        by_device = np.argsort(snapshot.devices.held, kind="stable")
        self._held, self._owner = snapshot.devices.held[by_device], snapshot.devices.owner[by_device]
        self._rows: dict[int, list[int]] = {}
        self._sub_batch: dict[int, int] = {}

    def check_nodes(self, starts: Mapping[int, Sequence[NodeAllocation]], freed: Sequence[NodeAllocation]) -> None:
        """Whether nodes are up, and have the CPUs and the memory of all that start."""
        nodes = self._snapshot.nodes
        taken = {piece.node for pieces in starts.values() for piece in pieces}
        free = {node: [int(nodes.cpus_free[node]), int(nodes.memory_free_mib[node])] for node in taken}
        for piece in freed:
            if piece.node in free:
                free[piece.node][0] += piece.cpus
                free[piece.node][1] += piece.memory_mib
        for job_id, pieces in starts.items():
            for piece in pieces:
                if not nodes.usable[piece.node]:
                    raise self._error(job_id, f"node row {piece.node} is down")
                left = free[piece.node]
                left[0] -= piece.cpus
                left[1] -= piece.memory_mib
                if min(left) < 0:
                    what = "CPUs" if left[0] < 0 else "MiB of memory"
                    raise self._error(job_id, f"{-min(left)} {what} of node row {piece.node} would be given twice")

    def start(self, job_id: int, pieces: Sequence[NodeAllocation]) -> GpuPlacement:
        """A job starts."""
        row = self._snapshot.jobs.row(job_id)
        if self._snapshot.jobs.state[row] != JobState.PENDING and row not in self._gone:
            raise self._error(job_id, "it runs already and is not preempted")
        place = self._place(job_id, row, pieces)
        partners = self._add(job_id, row, pieces, place.devices)
        if partners:
            self._check_partners(job_id, row, place, partners)
        return place

    def _place(self, job_id: int, row: int, pieces: Sequence[NodeAllocation]) -> GpuPlacement:
        if not isinstance(self._plan, SharingPlan):
            return GpuPlacement(self._idle(pieces))
        devices, sub_batch = self._plan.devices.get(job_id), self._plan.sub_batches.get(job_id, 0)
        batch = int(self._snapshot.sharing.batch[row])
        if not 0 <= sub_batch <= batch:
            raise self._error(job_id, f"a sub-batch of {sub_batch} samples is not allowed; the batch has {batch}")
        if sub_batch not in (0, batch) and not self._snapshot.sharing.accumulates[row]:
            raise self._error(job_id, f"a sub-batch of {sub_batch} samples is not allowed; the job does not accumulate")
        self._sub_batch[row] = sub_batch or batch
        chosen = self._idle(pieces) if devices is None else tuple(sorted(devices))
        return GpuPlacement(chosen, 0 if sub_batch == batch else sub_batch)

    def _on(self, device: int) -> list[int]:
        """Rows of the jobs on a GPU."""
        if device not in self._rows:
            span = slice(*np.searchsorted(self._held, (device, device + 1)).tolist())
            self._rows[device] = [row for row in self._owner[span].tolist() if row not in self._gone]
        return self._rows[device]

    def _is_idle(self, device: int) -> bool:
        unavailable = self._snapshot.devices.unavailable
        return not self._on(device) and not (len(unavailable) and unavailable[device])

    def _idle(self, pieces: Sequence[NodeAllocation]) -> tuple[int, ...]:
        chosen: list[int] = []
        first = self._snapshot.devices.first
        for piece in pieces:
            free = (at for at in range(int(first[piece.node]), int(first[piece.node + 1])) if self._is_idle(at))
            chosen += islice(free, piece.gpus)
        return tuple(sorted(chosen))

    def _add(self, job_id: int, row: int, pieces: Sequence[NodeAllocation], devices: tuple[int, ...]) -> set[int]:
        """Take the GPUs; rows of those who are there."""
        if len(set(devices)) < len(devices) or not all(0 <= device < len(self._node) for device in devices):
            raise self._error(job_id, f"GPUs {list(devices)} are not different ones of the {len(self._node)}")
        counted = Counter(self._node[device] for device in devices)
        wanted: Counter[int] = Counter()
        for piece in pieces:
            if piece.gpus:
                wanted[piece.node] += piece.gpus
        if counted != wanted:
            raise self._error(job_id, f"it gets {dict(counted)} GPUs by node, but its places are {dict(wanted)}")
        unavailable = self._snapshot.devices.unavailable
        partners: set[int] = set()
        for device in devices:
            if len(unavailable) and unavailable[device]:
                raise self._error(job_id, f"nobody knows who holds GPU {device}")
            there = self._on(device)
            partners.update(there)
            if len(there) >= self._most:
                raise self._error(
                    job_id, f"GPU {device} would have {len(there) + 1} jobs, and at most {self._most} are allowed"
                )
            there.append(row)
        return partners

    def _check_partners(self, job_id: int, row: int, place: GpuPlacement, partners: set[int]) -> None:
        """Nobody shares who cannot, and nobody is sent where it was known that the job does not fit."""
        jobs, sharing = self._snapshot.jobs, self._snapshot.sharing
        for one in (row, *sorted(partners)):
            name = self._label(int(jobs.job_id[one]))
            if sharing.kind[one] < 0:
                problem = f"nobody knows the model of job {name} beside others"
                raise self._error(job_id, problem, unknown_kind=True)
            if not sharing.shares[one]:
                raise self._error(job_id, f"job {name} does not allow sharing")
            if one != row and (one in self._leaving or jobs.state[one] == JobState.COMPLETING):
                raise self._error(job_id, f"job {name} is leaving that GPU")
        for device in place.devices:
            there = [self._kind(one) for one in self._on(device) if one != row]
            if there and self._snapshot.known.never_fits((self._kind(row), *there)):
                problem = f"it is known not to fit into GPU {device} beside {', '.join(map(str, there))}"
                raise self._error(job_id, problem)

    def _kind(self, row: int) -> JobKind:
        """What a job is while it runs, with its sub-batch."""
        sharing = self._snapshot.sharing
        kind, batch = sharing.kinds[int(sharing.kind[row])], int(sharing.batch[row])
        sub_batch = self._sub_batch.get(row, int(sharing.sub_batch[row]))
        return kind if sub_batch in (0, batch) else replace(kind, batch=sub_batch)

    def _error(self, job_id: int, problem: str, *, unknown_kind: bool = False) -> SharingPlanError:
        return SharingPlanError(self._plan.policy, job_id, problem, unknown_kind=unknown_kind)
