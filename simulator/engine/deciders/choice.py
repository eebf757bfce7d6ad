"""Which decider runs a simulation: the fastest one that says the same as the policy's ``decide``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slurm_soda.policies.engine.demand import translate_codes
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.session.event_session import EventPolicy
from slurm_soda.policies.session.nodes import NodeSession
from slurm_soda.policies.session.ranking import INFINITY, Ranking, RankingPolicy, StartsOnlyPolicy
from slurm_soda.policies.session.uniform_gpus import UniformGpuSession
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.bounded_decider import BoundedDecider, CountedSnapshots
from slurm_soda.simulator.engine.deciders.event_decider import EventDecider
from slurm_soda.simulator.engine.deciders.protocols import Decider
from slurm_soda.simulator.engine.deciders.ranked_node_decider import RankedNodeDecider
from slurm_soda.simulator.engine.deciders.scoped_decider import ScopedDecider
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.engine.deciders.spread_decider import SpreadDecider
from slurm_soda.simulator.engine.deciders.starts_only_decider import StartsOnlyDecider
from slurm_soda.simulator.engine.request_rewriter import RequestRewriter
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.workload import Workload

GPU_COUNT_ENGINE = "gpu-count"
SHARING_ENGINE = "sharing"
ENGINES = ("auto", GPU_COUNT_ENGINE, "nodes", "snapshot", SHARING_ENGINE)
"""``gpu-count``: the cluster is a number of GPUs; ``nodes``: jobs are placed, and a whole snapshot is taken only where a job
may preempt; ``snapshot``: a whole snapshot at each decision; ``sharing``: one that shows single GPUs, which jobs may share
(not chosen here, but by the scenario); ``auto``: the first that will do."""


PLACEMENTS = ("policy", "spread")
"""``policy``: where the policy says; ``spread``: on the nodes with the most free GPUs, in any split, as Pollux'
simulator places jobs."""


class ChosenDecider(NamedTuple):
    """Who decides, and where requests are rewritten."""

    decider: Decider
    requests: RequestRewriter


def choose_decider(
    engine: str,
    policy: Policy,
    workload: Workload,
    cluster: SimulatedCluster,
    costs: Costs,
    *,
    placement: str,
    speeds: bool,
    adjusted: bool = False,
    max_preemptions: int = 0,
    passing_limit_s: float = INFINITY,
    site: SiteDescription | None = None,
    scope: Scope | None = None,
) -> ChosenDecider:
    """The decider of an engine.

    Args:
        speeds: the speed of a job depends on its places.
        adjusted: speed, cores and requests of jobs may change; the decider is an :class:`AdjustableDecider`.
        max_preemptions: of one job; 0: any number.
        passing_limit_s: after such a wait no later job passes one; infinite: never.
        site: what the site's Slurm adds; by default one where all users are equal.
        scope: the policy only changes these jobs, beside Slurm, which starts all; by default it starts them itself.

    Raises:
        SimulatorError: no such engine or placement, or it cannot run this.
    """
    for kind, name, names in (("engine", engine, ENGINES), ("placement", placement, PLACEMENTS)):
        if name not in names:
            raise SimulatorError(f"there is no {kind} {name!r}; choose one of: {', '.join(names)}")
    if engine == SHARING_ENGINE:
        raise SimulatorError("engine sharing cannot be had here: nobody says what jobs do to each other on one GPU")
    spread = placement == "spread"
    ranking = _find_ranking(policy, workload)
    by_events = isinstance(policy, EventPolicy) and engine != GPU_COUNT_ENGINE and not spread
    countable = not adjusted and (spread or not speeds) and only_gpu_count_matters(workload, cluster)
    steady = not costs.checkpoint_s and not cluster.failures
    ruled = site is not None and site.rules_starts
    if engine in (GPU_COUNT_ENGINE, "nodes") or spread:
        reasons = {
            f"policy {policy.name} needs whole snapshots": ranking is None and not by_events,
            "jobs take time to leave, or nodes fail": not steady,
            "cores and speed change, and with them who may be preempted": adjusted and _preempts(ranking),
            "preemptions of one job are bounded": max_preemptions > 0,
            "the site has bands, or limits its users": ruled,
            "nodes matter here": (spread or engine == GPU_COUNT_ENGINE) and not countable,
            "it places jobs where the policy says": spread and engine not in ("auto", GPU_COUNT_ENGINE),
        }
        if why := [reason for reason, holds in reasons.items() if holds]:
            asked = "placement spread" if spread else f"engine {engine}"
            raise SimulatorError(f"{asked} cannot be had here: {why[0]}; leave it out")
    bounds: dict[str, Any] = {"max_preemptions": max_preemptions, "passing_limit_s": passing_limit_s}
    bounds |= {"at_once": not costs.checkpoint_s}
    if scope is not None:
        scoped = ScopedDecider(policy, workload, cluster, scope=scope, site=site, **bounds)
        return ChosenDecider(scoped, RequestRewriter(workload, cluster, scoped, adjusted=adjusted))
    snapshots = SnapshotDecider(policy, workload, cluster, site=site, **bounds)
    requests = RequestRewriter(workload, cluster, snapshots, adjusted=adjusted)
    if engine == "snapshot" or not steady or max_preemptions or (adjusted and _preempts(ranking)):
        return ChosenDecider(snapshots, requests)
    demand, codes, bounded = requests.demand, requests.codes, passing_limit_s < INFINITY
    if isinstance(policy, EventPolicy) and not ruled:
        events = policy.session(workload, demand, snapshots.nodes())
        decider = EventDecider(events, workload.user.tolist(), codes)
        return ChosenDecider(BoundedDecider(decider, snapshots) if bounded else decider, requests)
    if ranking is None or ruled:
        starts_only = isinstance(policy, StartsOnlyPolicy)
        return ChosenDecider(StartsOnlyDecider(snapshots, demand.shapes, codes) if starts_only else snapshots, requests)
    if countable and engine != "nodes":
        counting = UniformGpuSession(ranking, cluster.total_gpus)
        session: Decider = counting
        if bounded:
            whole = parse_cluster(f"1x{cluster.total_gpus}", cluster.partitions)
            counted = CountedSnapshots(policy, workload, whole, **(bounds | {"at_once": True}))
            session = BoundedDecider(counting, counted)
        return ChosenDecider(SpreadDecider(session, cluster) if spread else session, requests)
    return ChosenDecider(RankedNodeDecider(NodeSession(ranking, demand, snapshots.nodes()), snapshots, codes), requests)


def _find_ranking(policy: Policy, workload: Workload) -> Ranking | None:
    """The policy's order over single jobs, where it is right for this workload."""
    ranking = policy.ranking() if isinstance(policy, RankingPolicy) else None
    if ranking is None or not ranking.rules.true_run_times:
        return ranking
    return ranking if np.array_equal(workload.expected_s, workload.run_s) else None


def _preempts(ranking: Ranking | None) -> bool:
    return ranking is not None and ranking.rules.preemptive


def only_gpu_count_matters(workload: Workload, cluster: SimulatedCluster) -> bool:
    """Whether only the number of free GPUs decides who can run.

    True if every job takes GPUs in any split, on any node, and its CPUs and memory are not counted.
    """
    asked = translate_codes(workload.partition, workload.partitions, cluster.partitions)
    one_partition = len(cluster.partitions) == 1 and bool((asked == 0).all() and cluster.in_partition.all())
    alike = one_partition and len(np.unique(cluster.gpu_type[cluster.gpus > 0])) <= 1
    anywhere = bool((workload.gpu_type == -1).all() and (workload.gpus > 0).all())
    split = len(cluster) == 1 or bool(((workload.gpus_per_node == 0) & (workload.nodes <= 1)).all())
    fits = bool((workload.gpus <= cluster.total_gpus).all())
    return alike and anywhere and split and fits and not workload.cpus.any() and not workload.memory_mib.any()
