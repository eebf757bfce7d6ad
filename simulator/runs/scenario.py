"""What policies are run on: a workload on a cluster, with costs and speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slurm_soda.policies.baselines.multifactor import Multifactor
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import find_entry, make_policy
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.session.ranking import StartsOnlyPolicy
from slurm_soda.policies.sharing.known_order import KnownOrderPolicy
from slurm_soda.policies.sharing.snapshot import SharesWherePossiblePolicy, SharingPolicy
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.policies.spreading.slowdowns import PlacesBySpreadPolicy
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.choice import SHARING_ENGINE
from slurm_soda.simulator.engine.deciders.scoped_decider import find_left_out
from slurm_soda.simulator.engine.preemption_log import PreemptionLog
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.model_core_curves import make_built_in_curves
from slurm_soda.simulator.node.node_agents import NodeAgents
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.learned_preemption_costs import PolicyWithLearnedCosts, costs_differ
from slurm_soda.simulator.runs.policy_choice import (
    CHANGE_PARAMETER,
    MIN_RUN_PARAMETER,
    SAMPLES_PARAMETER,
    SHARES_PARAMETER,
    STOPS_PER_TIME_SLICE,
    TIME_SLICE_PARAMETER,
    TIME_SLICE_S,
    pool_shares_from,
    service_gpu_s,
)
from slurm_soda.simulator.runs.predicted_run_times import (
    with_estimated_run_times,
    with_predicted_run_times,
)
from slurm_soda.simulator.runs.requeued_jobs import RequeuedJobsWait
from slurm_soda.simulator.runs.spread_knowledge import NONE, NotedPlaces, PolicyWithSpreadSlowdowns
from slurm_soda.simulator.services.service_set import BY_SYSTEM, PEAK, PLACED, ServingRules
from slurm_soda.simulator.services.simulate_serving import ServedWorkload
from slurm_soda.simulator.sharing.ranked_decisions import knows_run_times
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_known_order, simulate_sharing
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.speed.core_speed import load_core_curves
from slurm_soda.simulator.speed.speed_model import SpeedModel
from slurm_soda.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything but the policy; it can be sent to another process."""

    workload: Workload
    cluster: SimulatedCluster
    costs: Costs = field(default_factory=Costs)
    profiles: Path | None = None
    """Measured tables by which a job's speed depends on where it is placed: a directory as Pollux', or a file as Gavel's."""
    spread_knowledge: str = NONE
    """What policies know of that, one of :data:`.SPREAD_KNOWLEDGE`."""
    engine: str = "auto"
    placement: str = "policy"
    max_preemptions: int = 0
    """A job that was preempted so often is not preempted any more; 0: no bound, as in all papers that are reproduced."""
    passing_limit_s: float = np.inf
    """A job that waited so long is passed by no later one; infinite: no bound, as in all papers that are reproduced."""
    history_gpu_s: FloatColumn | None = None
    """GPU service of past jobs, for policies that learn from them; None: that of the workload's own jobs, as if their
    distribution were known (as in the evaluation of Tiresias, Section 5)."""
    past: Workload | None = None
    """Past jobs, for policies that divide nodes by them (None: the workload's own jobs), and for predictions to begin with
    (None: nothing, until the first jobs of the workload end)."""
    predicted: bool = False
    """Policies are told predictions of run times; ``workload.expected_s`` is the truth, from which the time that a job ran
    follows."""
    tells_after_s: float = np.inf
    """Of a job that has worked for so long predictions know what is left; infinite: no job tells its progress."""
    requeue_s: float = 0.0
    """A preempted job starts again so long after it left at the earliest; only where policies are told predictions."""
    learns_costs: bool = True
    """Where jobs differ in what a preemption costs them, ``soda`` learns that while it runs."""
    seed: int | None = None
    """Of a generated workload."""
    nodes: NodeRules | None = None
    """What happens on nodes while jobs run; None: speed depends on neither cores nor neighbours."""
    sharing: SharingRules | None = None
    """What jobs do to each other on a GPU; None: nobody knows, so policies that share cannot run, or let nobody share."""
    services: ServingRules | None = None
    """Inference services that run beside the jobs; None: none."""
    site: SiteDescription = field(default_factory=SiteDescription)
    """What the site's Slurm knows of users, QOS and partitions."""
    scope: Scope | None = None
    """Policies change these jobs alone, beside stock Slurm, which starts all; None: they start jobs themselves."""

    def policy(self, name: str, parameters: Mapping[str, Any]) -> Policy:
        """A policy that knows the past of this scenario, if it wants to.

        ``min_run_s`` is 0 while preemption is free, time slices are ten times what a change of jobs costs, and the parameter
        ``change_s`` is what such a change costs.

        Raises:
            PolicyError: no such policy or parameter, or a value that is not allowed.
        """
        wanted = {parameter.name for parameter in find_entry(name).parameters}
        learnt: dict[str, Any] = {}
        if SAMPLES_PARAMETER in wanted and SAMPLES_PARAMETER not in parameters:
            learnt[SAMPLES_PARAMETER] = (
                service_gpu_s(self.workload) if self.history_gpu_s is None else self.history_gpu_s
            )
        if SHARES_PARAMETER in wanted and SHARES_PARAMETER not in parameters:
            learnt[SHARES_PARAMETER] = pool_shares_from(self.past or self.workload, self.cluster)
        if MIN_RUN_PARAMETER in wanted and self.preemption_is_free:
            learnt[MIN_RUN_PARAMETER] = 0.0
        if CHANGE_PARAMETER in wanted:
            learnt[CHANGE_PARAMETER] = self.change_s
        if TIME_SLICE_PARAMETER in wanted:
            learnt[TIME_SLICE_PARAMETER] = max(TIME_SLICE_S, STOPS_PER_TIME_SLICE * self.change_s)
        return make_policy(name, {**learnt, **parameters})

    @property
    def change_s(self) -> float:
        """The longest time that a GPU can be without progress while it changes jobs."""
        restart_s = self.costs.restart_s + float(self.workload.restart_s.max(initial=0.0))
        return self.costs.checkpoint_s + max(self.costs.start_s, restart_s)

    @property
    def preemption_is_free(self) -> bool:
        """No job loses time by being preempted, so a minimum run time between preemptions would save nothing."""
        return not (self.costs.restart_s or self.costs.checkpoint_s or self.workload.restart_s.any())

    def run(
        self,
        policy: Policy,
        progress: Callable[[int, int], None] | None = None,
        nodes: NodeRules | None = None,
        serves: str = PLACED,
    ) -> SimulationOutcome:
        """Simulate; ``nodes``, if given, take the place of the scenario's, and services that are served by the system are
        served as ``serves`` says.

        Raises:
            SimulatorError: it cannot be run as asked, or the policy refuses what it is given.
        """
        try:
            if self.services is None:
                return self._run(policy, progress, nodes, None)
            self.check(policy, nodes)
            services = self.services
            if services.mode == BY_SYSTEM:
                services = replace(services, mode=PEAK if isinstance(policy, Multifactor) else serves)
            served = ServedWorkload.build(self.workload, self.cluster, services)
            return replace(self, workload=served.workload, services=None)._run(policy, progress, nodes, served)
        except PolicyError as error:
            raise SimulatorError(f"policy {policy.name}: {error}") from error

    def _run(
        self,
        policy: Policy,
        progress: Callable[[int, int], None] | None,
        nodes: NodeRules | None,
        served: ServedWorkload | None,
    ) -> SimulationOutcome:
        rules = nodes or self.nodes
        sharing = self._sharing(policy, rules)
        # Stock Slurm, with which others are compared, bounds no wait.
        passing_limit_s = np.inf if isinstance(policy, Multifactor) else self.passing_limit_s
        speed = self._speed()
        jobs_per_gpu = policy.jobs_per_gpu if isinstance(policy, SharingPolicy) else 1
        learns = self.learns_costs and isinstance(policy, Soda) and costs_differ(self.workload)
        preemptions = PreemptionLog() if learns else None
        goes_by_spread = isinstance(policy, PlacesBySpreadPolicy)
        if self.predicted:
            policy = with_predicted_run_times(policy, self.workload, self.past, self.tells_after_s)
            if self.requeue_s and not isinstance(policy, StartsOnlyPolicy):
                policy = RequeuedJobsWait(policy, self.requeue_s)
        else:
            policy = with_estimated_run_times(policy, self.workload)
        if preemptions is not None:
            policy = PolicyWithLearnedCosts(policy, self.workload, preemptions)
        if goes_by_spread and self.spread_knowledge != NONE and speed is not None:
            speed = places = NotedPlaces(speed, self.cluster)
            binding = sharing is None or sharing.mechanism.unlimited
            policy = PolicyWithSpreadSlowdowns(policy, self.workload, places, self.spread_knowledge, binding=binding)
        if sharing is not None:
            return simulate_sharing(
                self.workload,
                self.cluster,
                policy,
                sharing,
                jobs_per_gpu=jobs_per_gpu,
                costs=self.costs,
                speed=speed,
                max_preemptions=self.max_preemptions,
                passing_limit_s=passing_limit_s,
                site=self.site,
                preemptions=preemptions,
                progress=progress,
            )
        if served is None and rules is None and preemptions is None and self._goes_by_known_order(policy):
            outcome = simulate_known_order(
                self.workload,
                self.cluster,
                policy,
                jobs_per_gpu=jobs_per_gpu,
                costs=self.costs,
                max_preemptions=self.max_preemptions,
                passing_limit_s=passing_limit_s,
                site=self.site,
                progress=progress,
            )
            if outcome is not None:
                return outcome
        run = partial(simulate, self.workload, self.cluster, scope=self.scope) if served is None else served.simulate
        return run(
            policy,
            costs=self.costs,
            speed=speed,
            engine=self.engine,
            placement=self.placement,
            agents=self._agents(rules),
            max_preemptions=self.max_preemptions,
            passing_limit_s=passing_limit_s,
            site=self.site,
            preemptions=preemptions,
            progress=progress,
        )

    def _goes_by_known_order(self, policy: Policy) -> bool:
        """Whether the policy need be asked only where somebody may be preempted, as its order tells all else."""
        plain = self.engine == "auto" and self.placement == "policy" and self.scope is None and self.profiles is None
        return plain and not self.predicted and isinstance(policy, KnownOrderPolicy) and knows_run_times(self.workload)

    def _speed(self) -> SpeedModel | None:
        if self.profiles is None:
            return None
        if self.profiles.is_file():
            from slurm_soda.simulator.speed.pair_table import load_pairs  # noqa: PLC0415 - few runs have measured tables
            from slurm_soda.simulator.speed.unconsolidated_speed import UnconsolidatedSpeed  # noqa: PLC0415

            return UnconsolidatedSpeed(load_pairs(self.profiles), self.workload, self.cluster)
        from slurm_soda.simulator.speed.placement_speed import PlacementSpeed  # noqa: PLC0415 - few runs have measured tables
        from slurm_soda.simulator.speed.training_profiles import load_profiles  # noqa: PLC0415

        return PlacementSpeed(load_profiles(self.profiles), self.workload)

    def check(self, policy: Policy, nodes: NodeRules | None = None) -> None:
        """What :meth:`run` would refuse of the options, before anything runs.

        Raises:
            SimulatorError: a policy that shares lacks what it needs, or has what it cannot do.
        """
        sharing = self._sharing(policy, nodes or self.nodes)
        if self.scope is not None:
            find_left_out(self.workload, self.scope)
            if sharing is not None or self.services is not None:
                raise SimulatorError("a scope cannot be simulated together with services, or with jobs that share GPUs")
        if self.services is not None:
            faults = {
                "jobs that share GPUs: leave --pairs and --pair-slowdown out": sharing is not None,
                "--placement spread: leave it out": self.placement != "policy",
            }
            if why := [fault for fault, holds in faults.items() if holds]:
                raise SimulatorError(f"services cannot be simulated together with {why[0]}")

    def _sharing(self, policy: Policy, rules: NodeRules | None) -> SharingRules | None:
        """What a policy that shares runs by; None for one that does not."""
        if self.engine != SHARING_ENGINE and (
            not isinstance(policy, SharingPolicy)
            or (isinstance(policy, SharesWherePossiblePolicy) and self.sharing is None)
        ):
            return None
        faults = {
            "nobody says what jobs do to each other: give --pairs FILE or --pair-slowdown X": self.sharing is None,
            "cores and sharing cannot be simulated together: leave --cores and --system out": rules is not None,
            f"engine {self.engine} cannot share GPUs: leave --engine out": self.engine not in ("auto", SHARING_ENGINE),
            "it says on which GPUs jobs are: leave --placement out": self.placement != "policy",
        }
        if why := [fault for fault, holds in faults.items() if holds]:
            raise SimulatorError(f"policy {policy.name}: {why[0]}")
        return self.sharing

    def _agents(self, rules: NodeRules | None) -> NodeAgents | None:
        if rules is None:
            return None
        curves = make_built_in_curves() if rules.curves is None else load_core_curves(rules.curves)
        return NodeAgents(self.workload, self.cluster, curves, rules)
