"""Stands before a policy's decider: starts and drains instances, hides waiting tasks, and passes everything else on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.services.service import Device, InstanceState
from slurm_soda.policies.session.ranking import INFINITY, JobStart, SessionJob
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn
from slurm_soda.simulator.engine.deciders.protocols import Decider, NodeDecider
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.services.placing import Placer, Placing, free_bandwidth_gb_s
from slurm_soda.simulator.services.record import ServicesRecord
from slurm_soda.simulator.services.service_set import PACKED, ServingRules
from slurm_soda.simulator.services.serving_recorder import ServingRecorder, pooled_need
from slurm_soda.simulator.services.tasks import ServiceTask


class ClusterView(SnapshotDecider):
    """The cluster as sodad sees it: jobs, instances that run, nodes."""

    def snapshot(self, now_s: float) -> ClusterSnapshot:
        """As it is now."""
        return self._snapshot(now_s)

    def job(self, job_id: int) -> SessionJob:
        """One of the jobs that are there."""
        return self._jobs[job_id]

    def free(self) -> tuple[IntColumn, IntColumn]:
        """GPUs and CPU cores that each usable node has free."""
        usable = self._usable
        return np.where(usable, self._gpus_free, 0), np.where(usable, self._cpus_free, 0)


class ServingDecider:
    """Tasks wait with a lease, so the policy knows none of them: one that shall run starts as soon as a node has room for
    it, before any waiting job, and the policy then sees its places taken. One that leaves is requeued.
    """

    def __init__(
        self,
        inner: Decider,
        view: ClusterView,
        tasks: Sequence[ServiceTask],
        *,
        rules: ServingRules,
        placer: Placer,
        recorder: ServingRecorder,
        jobs: int,
    ) -> None:
        """``jobs``: of the workload, tasks not counted."""
        self._inner, self._view, self._tasks, self._rules = inner, view, tasks, rules
        self._placer, self._recorder, self._jobs_left = placer, recorder, jobs
        self._nodes = view.nodes()
        self._arrays: dict[tuple[int, Device], list[ServiceTask]] = {}
        for task in tasks:
            self._arrays.setdefault((task.service, task.device), []).append(task)
        self._load = rules.services.load
        self._next_step_s = -INFINITY
        self._placing = Placing({})
        self._waits: list[ServiceTask] = []
        """Tasks that shall run and have no place yet."""
        self._again_s = INFINITY
        self._begun = self._closed = False
        self._to_come, self._running = jobs, 0
        """Jobs that were not submitted yet, and those that run."""
        self._moved, self._moved_s = True, 0.0
        """Something happened to a job since the last decision, and when it last did."""
        self._patience_s = self._load.period_s + rules.settings.cool_down_s + rules.start_s
        self.device_changes, self.gave_way = 0, 0

    def submit(self, job: SessionJob) -> None:
        if job.job_id <= len(self._tasks):
            self._tasks[job.job_id - 1].job = job
            return
        self._to_come, self._moved = self._to_come - 1, True
        self._inner.submit(job)
        self._view.submit(job)

    def end(self, job: SessionJob) -> None:
        self._jobs_left, self._running, self._moved = self._jobs_left - 1, self._running - 1, True
        self._inner.end(job)
        self._view.end(job)

    def started(self, job: SessionJob) -> None:
        if job.job_id > len(self._tasks):
            self._running, self._moved = self._running + 1, True
        self._inner.started(job)
        self._view.started(job)

    def stopped(self, job: SessionJob) -> None:
        if job.job_id > len(self._tasks):
            self._running, self._moved = self._running - 1, True
            self._inner.stopped(job)
            self._view.stopped(job)
            return
        task = self._tasks[job.job_id - 1]
        self._count(job.start_s + job.executed_s - task.executed_s)
        if task.state is not InstanceState.DRAINING:  # its node failed
            self._next_step_s = -INFINITY
        task.state, task.executed_s = None, job.executed_s
        self._inner.end(job)
        self._view.end(job)

    def leaving(self, job: SessionJob) -> None:
        for each in (self._inner, self._view):
            assert isinstance(each, NodeDecider)
            each.leaving(job)

    def set_usable(self, node: int, usable: bool) -> None:
        for each in (self._inner, self._view):
            assert isinstance(each, NodeDecider)
            each.set_usable(node, usable)

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        self._inner.changed(job, before)  # type: ignore[attr-defined]
        self._view.changed(job, before)

    def next_event_s(self) -> float:
        if self._closed:
            return INFINITY
        step_s = INFINITY if self._is_stuck() else self._next_step_s
        return min(self._again_s, self._inner.next_event_s(), step_s)

    def _is_stuck(self) -> bool:
        """Whether the jobs that are left found no room while the load went through all that it ever is."""
        return not self._to_come and not self._running and self._next_step_s > self._moved_s + self._patience_s

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        self._again_s = INFINITY
        if self._moved:
            self._moved, self._moved_s = False, now_s
        leaves: list[SessionJob] = []
        if not self._jobs_left:
            return self._close(now_s), []
        if now_s >= self._next_step_s:
            leaves = self._step(now_s)
        starts = self._starts(now_s) if self._waits else []
        if not leaves and not starts:
            return self._inner.decide(now_s)
        self._again_s = now_s  # the policy is asked once all this has happened
        return leaves, starts

    def record(self) -> ServicesRecord:
        """What was found."""
        return self._recorder.record(self.device_changes, self.gave_way)

    def _close(self, now_s: float) -> list[SessionJob]:
        """The last job has ended, and with it what is looked at: all instances leave."""
        self._count(now_s)
        self._waits, self._closed = [], True
        leaves = [task for task in self._tasks if task.state not in (None, InstanceState.DRAINING)]
        for task in leaves:
            task.state = InstanceState.DRAINING
        return [task.job for task in leaves if task.job is not None]

    def _step(self, now_s: float) -> list[SessionJob]:
        """Load or instances have changed: who leaves; :attr:`_waits` are those who shall start."""
        self._count(now_s)
        for task in self._tasks:
            if task.state is InstanceState.STARTING and now_s >= task.since_s + self._rules.start_s:
                task.state, task.since_s = InstanceState.READY, now_s
        before = self._devices()
        placing = self._placing = self._placer.place(self._view.snapshot(now_s), self._tasks)
        leaves = []
        for job_id in placing.drains:
            task = self._tasks[job_id - 1]
            if task.state is not InstanceState.DRAINING and task.job is not None:
                task.state = InstanceState.DRAINING
                leaves.append(task.job)
        after = self._devices()
        self.device_changes += sum(all(old) and not all(new) for old, new in zip(before, after, strict=True))
        if placing.preempts:
            victims = [self._view.job(job_id) for job_id in placing.preempts]
            self._tell(victims, [])
            leaves += victims
            self.gave_way += len(victims)
        self._waits = self._lacking(placing)
        self._next_step_s = min(self._next_change_s(now_s), max(placing.again_s, now_s + 1.0))
        return leaves

    def _devices(self) -> list[list[bool]]:
        """Whether each service has instances, by device, that do not leave."""
        found = [[False, False] for _ in self._rules.services.services]
        for task in self._tasks:
            if task.state is InstanceState.READY or task.state is InstanceState.STARTING:
                found[task.service][task.device] = True
        return found

    def _next_change_s(self, now_s: float) -> float:
        ready = (task.since_s + self._rules.start_s for task in self._tasks if task.state is InstanceState.STARTING)
        return min((self._load.next_change_s(now_s), *ready))

    def _lacking(self, placing: Placing) -> list[ServiceTask]:
        """Tasks that shall run and do not, the first ones of each array."""
        lacking: list[ServiceTask] = []
        for array, wanted in placing.wanted.items():
            mine = self._arrays[array]
            runs = sum(task.state not in (None, InstanceState.DRAINING) for task in mine)
            waits = [task for task in mine if task.state is None]
            lacking += waits[: max(wanted - runs, 0)]
        return lacking

    def _starts(self, now_s: float) -> list[JobStart]:
        """Tasks for which there is room."""
        gpus, cores = self._view.free()
        bandwidth = free_bandwidth_gb_s(self._rules, len(gpus), self._tasks)
        starts: list[JobStart] = []
        waits: list[ServiceTask] = []
        for task in self._waits:
            node = self._node_for(task, gpus, cores, bandwidth)
            if node is None or task.job is None:
                waits.append(task)
                continue
            used = int(task.device is Device.GPU)
            gpus[node] -= used
            cores[node] -= task.cores
            if len(bandwidth):
                bandwidth[node] -= self._takes(task)
            starts.append((task.job, (NodeAllocation(node, used, task.cores, 0),)))
        if starts:
            self._count(now_s)
            for job, _ in starts:
                task = self._tasks[job.job_id - 1]
                # Services were there before the first job.
                task.state = InstanceState.STARTING if self._begun else InstanceState.READY
                task.since_s = now_s
                self._inner.submit(job)
                self._view.submit(job)
            self._tell([], starts)
            self._next_step_s = min(self._next_step_s, self._next_change_s(now_s))
        self._begun, self._waits = True, waits
        return starts

    def _node_for(self, task: ServiceTask, gpus: IntColumn, cores: IntColumn, bandwidth: Any) -> int | None:
        """The node with the fewest free GPUs, then cores: on cores one whose GPUs are taken, if there is."""
        fits: BoolColumn = (cores >= task.cores) & self._nodes.in_partition[:, task.partition]
        if task.device is Device.GPU:
            fits &= gpus >= 1
            wanted = self._placing.gpu_type.get(task.service, "")
            nodes = self._nodes
            typed = fits & (nodes.gpu_type == nodes.gpu_types.index(wanted)) if wanted in nodes.gpu_types else fits
            fits = typed if typed.any() else fits
        elif len(bandwidth):
            fits &= bandwidth >= self._takes(task)
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        order = np.lexsort((cores[rows], gpus[rows]))
        return int(rows[order[0]])

    def _takes(self, task: ServiceTask) -> float:
        profile = self._rules.services.services[task.service].cpu
        return profile.bandwidth_with(task.cores) if task.device is Device.CPU and profile is not None else 0.0

    def _tell(self, preempts: list[SessionJob], starts: list[JobStart]) -> None:
        """A decider that keeps its own state hears of others' decisions before they are carried out."""
        adopt = getattr(self._inner, "adopt", None)
        if adopt is not None:
            adopt(preempts, starts)

    def _count(self, now_s: float) -> None:
        """Note what was until now; after the last job nothing more."""
        if self._closed:
            return
        services = len(self._rules.services.services)
        ready, held = np.zeros((services, 2), dtype=np.int64), np.zeros((services, 2), dtype=np.int64)
        cores = 0
        for task in self._tasks:
            if task.state is not None:
                held[task.service, task.device] += 1
                ready[task.service, task.device] += task.state is InstanceState.READY
                cores += task.cores
        # The step before this time: the load of this one begins now.
        load_qps = self._load.at(self._counted_s(now_s))
        if self._rules.mode == PACKED:
            need = pooled_need(self._rules, load_qps)
            self._recorder.advance_pooled(now_s, load_qps, int(ready.sum()), need, cores)
        else:
            self._recorder.advance(now_s, load_qps, ready, held, cores)

    def _counted_s(self, now_s: float) -> float:
        last_s = self._recorder.last_s
        return now_s if np.isnan(last_s) else (last_s + now_s) / 2.0
