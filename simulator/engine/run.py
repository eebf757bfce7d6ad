"""One simulation: a workload, a cluster, a policy, and whatever slows jobs down."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.session.ranking import INFINITY
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.choice import choose_decider
from slurm_soda.simulator.engine.deciders.protocols import Decider
from slurm_soda.simulator.engine.event_loop import EventLoop, JobProgressCallback
from slurm_soda.simulator.engine.preemption_log import PreemptionLog
from slurm_soda.simulator.engine.runtime_effects import RuntimeEffects
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.speed.speed_model import SpeedModel
from slurm_soda.simulator.workload import Workload


def simulate(
    workload: Workload,
    cluster: SimulatedCluster,
    policy: Policy,
    *,
    costs: Costs | None = None,
    speed: SpeedModel | None = None,
    placement: str = "policy",
    engine: str = "auto",
    agents: RuntimeEffects | None = None,
    max_preemptions: int = 0,
    passing_limit_s: float = INFINITY,
    site: SiteDescription | None = None,
    scope: Scope | None = None,
    around: Callable[[Decider], Decider] | None = None,
    preemptions: PreemptionLog | None = None,
    progress: JobProgressCallback | None = None,
) -> SimulationOutcome:
    """Run a workload on a virtual cluster under a policy, until nothing can happen any more.

    Args:
        workload: the jobs.
        cluster: the nodes, and when they fail.
        policy: any policy; what it was told about run times is ``workload.expected_s``.
        costs: overheads; none by default.
        speed: how fast a job runs where it was placed; by default as fast as its trace says.
        placement: one of :data:`~slurm_soda.simulator.engine.deciders.choice.PLACEMENTS`.
        engine: one of :data:`~slurm_soda.simulator.engine.deciders.choice.ENGINES`.
        agents: what happens on the nodes to this workload: cores, neighbours, and who adjusts them; used for one run.
        max_preemptions: a job that was preempted so often is not preempted any more; 0: no bound.
        passing_limit_s: a job that waited so long is passed by no later one; infinite: no bound.
        site: what its Slurm knows of users; by default all are equal.
        scope: the policy changes these jobs alone, and stock Slurm starts all of them by the order that follows; by default
            the policy starts jobs itself.
        around: who hears of everything first and asks the policy's decider, such as one that places services; by default
            nobody.
        preemptions: is told what preemptions cost the jobs; by default nobody is.
        progress: told how far the run is.

    The same arguments give the same outcome, to the bit (``cpu_s`` apart).

    Raises:
        SimulatorError: the engine or placement asked for cannot run this; a node fails that the cluster lacks; a speed
            is not positive; a policy changes its mind at one instant again and again.
    """
    started_s = time.process_time()
    loop = EventLoop(workload, costs or Costs(), speed, agents, preemptions)
    decider, loop.requests = choose_decider(
        engine,
        policy,
        workload,
        cluster,
        loop.costs,
        placement=placement,
        speeds=speed is not None,
        adjusted=agents is not None,
        max_preemptions=max_preemptions,
        passing_limit_s=passing_limit_s,
        site=site,
        scope=scope,
    )
    loop.run(decider if around is None else around(decider), policy.name, cluster, progress)
    return loop.outcome(policy.name, cluster, time.process_time() - started_s)
