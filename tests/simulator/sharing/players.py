"""Jobs, and policies that share GPUs in ways that tests choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.sharing_record import SharingRecord
from slurm_soda.simulator.workload import Workload


def work(*rows: Mapping[str, Any]) -> Workload:
    """Jobs of 100 s of model B that are there at 0, unless they say something else."""
    base = {"submit_s": 0.0, "run_s": 100.0, "model": "B"}
    return Workload.build("made", [{**base, **row} for row in rows])


def seen(outcome: SimulationOutcome) -> SharingRecord:
    assert outcome.sharing is not None
    return outcome.sharing


def plan_of(
    snapshot: ClusterSnapshot,
    devices: Mapping[int, Sequence[int]],
    preempts: Sequence[int] = (),
    sub_batches: Mapping[int, int] | None = None,
) -> SharingPlan:
    """Start jobs on these GPUs, each with its CPUs in equal parts by GPU; preempt others."""
    assert isinstance(snapshot, SharingSnapshot)
    jobs, first = snapshot.jobs, snapshot.devices.first
    places = {}
    for job_id, held in devices.items():
        node, count = np.unique(np.searchsorted(first, held, side="right") - 1, return_counts=True)
        cpus = int(jobs.cpus[jobs.row(job_id)]) // max(len(held), 1)
        places[job_id] = tuple(
            NodeAllocation(at, gpus, gpus * cpus, 0) for at, gpus in zip(node.tolist(), count.tolist(), strict=True)
        )
    empty = np.zeros(len(jobs), dtype=np.int64)
    waiting = jobs.job_id[jobs.state == JobState.PENDING]
    return SharingPlan(
        policy="player", order=waiting, starts=np.array([one for one in places if one in waiting], dtype=np.int64),
        actions=tuple(PreemptJob(one, (), "played") for one in preempts),
        notes=JobNotes(jobs.job_id, empty.astype(np.int8), empty, empty.astype(np.float64), empty),
        places=places, devices={one: tuple(sorted(held)) for one, held in devices.items()},
        sub_batches=dict(sub_batches or {}),
    )  # fmt: skip


@dataclass
class Scripted:
    """Starts jobs, in the order of their ids, on the GPUs that the script names, as soon as they are there."""

    script: Mapping[int, Sequence[int]]
    jobs_per_gpu: int = 2
    sub_batches: Mapping[int, int] = field(default_factory=dict)
    look: Callable[[SharingSnapshot], None] | None = None
    name: str = "scripted"

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        assert isinstance(snapshot, SharingSnapshot)
        if self.look is not None:
            self.look(snapshot)
        waiting = snapshot.jobs.job_id[snapshot.jobs.state == JobState.PENDING].tolist()
        chosen = {one: self.script[one] for one in waiting if one in self.script}
        return plan_of(snapshot, chosen, sub_batches={one: self.sub_batches.get(one, 0) for one in chosen})


@dataclass
class Restless:
    """Starts, preempts and moves jobs at random, within all rules; a job is preempted a few times at most."""

    seed: int
    jobs_per_gpu: int
    name: str = "restless"
    stops: int = 2

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        assert isinstance(snapshot, SharingSnapshot)
        jobs, held = snapshot.jobs, snapshot.devices
        draw = np.random.default_rng([self.seed, int(snapshot.now_s * 1000) % 2**31, len(jobs)])
        running = jobs.state == JobState.RUNNING
        may_stop = np.flatnonzero(running & jobs.preemptible & (jobs.preemptions < self.stops)).tolist()
        stopped = [row for row in may_stop if draw.random() < 0.2]
        leaving = {*stopped, *np.flatnonzero(jobs.state == JobState.COMPLETING).tolist()}
        on: list[list[int]] = [[] for _ in range(len(held))]
        for row in range(len(jobs)):
            for device in held.of(row).tolist():
                on[device].append(row)
        node_of = np.searchsorted(held.first, np.arange(len(held)), side="right") - 1
        cpus = snapshot.nodes.cpus_free.copy()
        chosen: dict[int, list[int]] = {}
        for row in draw.permutation(np.flatnonzero(jobs.state == JobState.PENDING)).tolist():
            each = int(jobs.cpus[row]) // max(int(jobs.gpus[row]), 1)
            mine: list[int] = []
            for device in draw.permutation(len(held)).tolist():
                node = int(node_of[device])
                if len(mine) == jobs.gpus[row]:
                    break
                if (
                    snapshot.nodes.usable[node]
                    and cpus[node] >= each
                    and self._may_join(snapshot, row, on[device], leaving)
                ):
                    mine.append(device)
                    cpus[node] -= each
            if len(mine) == jobs.gpus[row]:
                chosen[int(jobs.job_id[row])] = mine
                for device in mine:
                    on[device].append(row)
            else:
                for device in mine:
                    cpus[int(node_of[device])] += each
        return plan_of(snapshot, chosen, jobs.job_id[stopped].tolist())

    def _may_join(self, snapshot: SharingSnapshot, row: int, there: list[int], leaving: set[int]) -> bool:
        if not there:
            return True
        sharing = snapshot.sharing
        if len(there) >= self.jobs_per_gpu or leaving & {*there}:
            return False
        if any(sharing.kind[one] < 0 or not sharing.shares[one] for one in (row, *there)):
            return False
        mine, table = int(snapshot.jobs.job_id[row]), snapshot.jobs.job_id
        if any((min(mine, int(table[one])), max(mine, int(table[one]))) in sharing.apart for one in there):
            return False
        if any(sharing.behind_s[one] > 0 for one in there):
            return False
        kinds = [sharing.kinds[int(sharing.kind[one])] for one in (row, *there)]
        return snapshot.known.fits(kinds) is not False
