"""One simulation with services beside the jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurm_soda.policies.policy import Policy, min_run_s_of
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.protocols import Decider
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.engine.runtime_effects import RuntimeEffects
from slurm_soda.simulator.node.model_core_curves import INFERENCE
from slurm_soda.simulator.outcome import AllocationSegments, SimulationOutcome
from slurm_soda.simulator.services.placing import PackedPlacer, PeakPlacer, Placer, StagePlacer
from slurm_soda.simulator.services.service_set import PACKED, PEAK, ServingRules
from slurm_soda.simulator.services.serving_decider import ClusterView, ServingDecider
from slurm_soda.simulator.services.serving_recorder import ServingRecorder
from slurm_soda.simulator.services.tasks import ServiceTask, make_tasks, with_tasks
from slurm_soda.simulator.workload import Workload


def without_inference(workload: Workload) -> tuple[Workload, int]:
    """The jobs without those of the category ``inference``, in whose place services come, and how many these are."""
    if INFERENCE not in workload.categories:
        return workload, 0
    others = workload.category != workload.categories.index(INFERENCE)
    return workload.select(others), int((~others).sum())


@dataclass(frozen=True, slots=True)
class ServedWorkload:
    """Jobs with services' tasks before them."""

    rules: ServingRules
    cluster: SimulatedCluster
    tasks: tuple[ServiceTask, ...]
    workload: Workload
    """Tasks, then jobs."""

    @classmethod
    def build(cls, workload: Workload, cluster: SimulatedCluster, rules: ServingRules) -> ServedWorkload:
        """For one run.

        Raises:
            SimulatorError: the cluster cannot have the services.
        """
        tasks = make_tasks(rules, cluster)
        return cls(rules, cluster, tuple(tasks), with_tasks(workload, tasks, rules, cluster))

    def simulate(
        self, policy: Policy, *, costs: Costs | None = None, agents: RuntimeEffects | None = None, **options: Any
    ) -> SimulationOutcome:
        """As :func:`~slurm_soda.simulator.engine.run.simulate`; the outcome is the jobs', with a record of services."""
        return _of_jobs(self.simulate_all(policy, costs=costs, agents=agents, **options), len(self.tasks))

    def simulate_all(
        self, policy: Policy, *, costs: Costs | None = None, agents: RuntimeEffects | None = None, **options: Any
    ) -> SimulationOutcome:
        """The same with the tasks among the jobs."""
        recorder, found = ServingRecorder(self.rules, self.workload.origin_s), list[ServingDecider]()
        jobs, at_once = len(self.workload) - len(self.tasks), not (costs or Costs()).checkpoint_s
        placer = self._placer(policy, costs or Costs())

        def around(inner: Decider) -> Decider:
            view = ClusterView(policy, self.workload, self.cluster, at_once=at_once)
            known: dict[str, Any] = {"rules": self.rules, "placer": placer, "recorder": recorder, "jobs": jobs}
            found.append(ServingDecider(inner, view, self.tasks, **known))
            return found[0]

        outcome = simulate(self.workload, self.cluster, policy, agents=agents, costs=costs, around=around, **options)
        return replace(outcome, services=found[0].record())

    def _placer(self, policy: Policy, costs: Costs) -> Placer:
        if self.rules.mode == PEAK:
            return PeakPlacer(self.rules)
        if self.rules.mode == PACKED:
            return PackedPlacer(self.rules)
        rules = self.rules
        if not (costs.restart_s or costs.checkpoint_s or self.workload.restart_s.any()):  # nothing that a run must pay
            rules = replace(rules, settings=replace(rules.settings, min_run_s=0.0))
        return StagePlacer(rules, len(self.cluster), min_run_s_of(policy))


def _of_jobs(outcome: SimulationOutcome, tasks: int) -> SimulationOutcome:
    """Without the rows of tasks, which are the first ones."""
    nodes = outcome.node_measurements
    if nodes is not None:
        parts = nodes.stretches
        kept = parts.job >= tasks
        columns = {name: getattr(parts, name)[kept] for name in parts.__dataclass_fields__}
        columns["job"] = columns["job"] - tasks
        nodes = replace(
            nodes, stretches=replace(parts, **columns), cpus=nodes.cpus[tasks:], steps=nodes.steps[tasks:],
            trains=nodes.trains[tasks:],
        )  # fmt: skip
    columns = {
        name: getattr(outcome, name)[tasks:] for name in ("first_start_s", "end_s", "held_s", "preemptions", "failures")
    }
    rows = np.arange(tasks, len(outcome.workload))
    return replace(
        outcome, workload=outcome.workload.select(rows), segments=_segments_of_jobs(outcome.segments, tasks),
        node_measurements=nodes, **columns,
    )  # fmt: skip


def _segments_of_jobs(parts: AllocationSegments, tasks: int) -> AllocationSegments:
    kept = np.flatnonzero(parts.job >= tasks)
    counts = np.diff(parts.node_start)
    entries = np.repeat(parts.job >= tasks, counts)
    return AllocationSegments(
        job=parts.job[kept] - tasks,
        start_s=parts.start_s[kept],
        end_s=parts.end_s[kept],
        gpus=parts.gpus[kept],
        cpus=parts.cpus[kept],
        node_start=np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int64),
        node=parts.node[entries],
        node_gpus=parts.node_gpus[entries],
    )
