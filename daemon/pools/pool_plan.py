"""From a site as it is to the pools that it shall have: one path for sodactl and for shares derived by schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.pools import prerequisites
from slurm_soda.daemon.pools.prerequisites import PoolObstacle
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.jobs.past_pool_jobs import past_pool_jobs
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.policies.pools.layout.shares import DerivedShare, derive_shares
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob
from slurm_soda.slurm_ext.client import SlurmClient, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.partition_settings import list_settings_not_inherited, pool_partition_settings
from slurm_soda.slurm_ext.pools.pool_installer import WantedPools
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions, SlurmPartition
from slurm_soda.slurm_ext.read.slurm_values import parse_integer

_DAY_S = 86400.0
INCLUDE_FILE_NAME = "soda-pools.conf"
"""Beside slurm.conf, unless the configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class SlurmSiteState:
    """What Slurm says of itself, at one time."""

    partitions: Mapping[str, SlurmPartition]
    nodes: Sequence[SlurmNode]
    config: Mapping[str, str]
    bound: set[str] | None
    """Partitions that accounting associations are bound to."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The pools that a site shall have, and what stands in the way."""

    wanted: WantedPools
    derived: Mapping[NodeClass, DerivedShare]
    nodes_of: Mapping[NodeClass, tuple[str, ...]]
    obstacles: tuple[PoolObstacle, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareOverrides:
    """Shares that a person names, for every class."""

    cpu_cores: int | None = None
    large_nodes: int | None = None


def read_site_state(slurm: SlurmClient, partitions: ScontrolPartitions) -> SlurmSiteState:
    """Read the site.

    Raises:
        SlurmError: Slurm does not answer, or not intelligibly.
    """
    config = partitions.config()
    bound = partitions.bound_partitions(config.get("ClusterName", ""))
    return SlurmSiteState(partitions.partitions(), slurm.nodes(), config, bound)


def read_past_pool_jobs(session: Session, view: SlurmSiteState, settings: Settings, now_s: float) -> list[PastPoolJob]:
    """The jobs that shares are derived from."""
    types = {node.name: node.gpu_type for node in view.nodes}
    return past_pool_jobs(session, since_s=now_s - settings.pools.history_days * _DAY_S, now_s=now_s, gpu_types=types)


def plan_pools(
    view: SlurmSiteState, settings: Settings, past: Sequence[PastPoolJob], record: PoolsRecord | None, *, host: str,
    overrides: ShareOverrides | None = None,
) -> PoolPlan:  # fmt: skip
    """What the pools of this site shall be.

    Args:
        past: jobs that shares are derived from.
        record: pools in force, whose shares the new ones stay near; ``None``: none.
        host: where this runs.

    Raises:
        SlurmError: a partition that is to be divided is not there, or has no node.
    """
    ours = set() if record is None else set(record.sent)
    bases = _partitions_to_divide(view, settings, ours)
    members = {base.name: _nodes_with_class(base, view.nodes) for base in bases}
    nodes_of = _nodes_by_class([member for of in members.values() for member in of])
    derived = derive_shares(
        past, {c: len(nodes) for c, nodes in nodes_of.items()}, None if record is None else record.shares
    )
    derived = {c: _with_overrides(found, overrides, c, len(nodes_of[c])) for c, found in derived.items()}
    shares = {c: found.share for c, found in derived.items()}
    table = PoolTable()
    for base in bases:
        # Obstacles say it where nothing is below.
        lending = max(_lowest_tier(base, view.partitions, ours) - 1, 0)
        table = table.merged(
            plan_pool_partitions(base.name, max(base.tier, lending + 1), lending, members[base.name], shares)
        )
    conf = Path(view.config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
    include_path = Path(settings.pools.include_path or conf.with_name(INCLUDE_FILE_NAME))
    wanted = WantedPools(
        table=table,
        settings={part.name: pool_partition_settings(part, view.partitions[part.base]) for part in table},
        shares=shares,
        rules=_routing_rules(settings, view.config),
        bases={base.name: base.fields for base in bases},
        include_path=include_path,
    )
    obstacles = (
        *prerequisites.check_settings(view.config),
        *prerequisites.check_include(view.config, include_path, host),
        *prerequisites.check_tiers(bases, view.partitions, ours, view.config),
        *prerequisites.check_overlaps(bases),
        *prerequisites.check_added_cores(bases, view.config),
        *prerequisites.check_associations(bases, view.bound),
    )
    left_out = [
        f"{b.name}: {text} cannot be carried over to its pools"
        for b in bases
        for text in list_settings_not_inherited(b)
    ]
    return PoolPlan(wanted, derived, nodes_of, obstacles, (*prerequisites.recommend_settings(view.config), *left_out))


def _partitions_to_divide(view: SlurmSiteState, settings: Settings, ours: set[str]) -> list[SlurmPartition]:
    named = settings.pools.partitions or [name for name, record in view.partitions.items() if record.is_default]
    if not named:
        raise SlurmError("Slurm has no default partition; name what to divide in pools.partitions or with --partition")
    for name in named:
        if name not in view.partitions or name in ours:
            present = ", ".join(other for other in view.partitions if other not in ours)
            raise SlurmError(f"there is no partition {name} to divide; there are {present}")
    return [view.partitions[name] for name in dict.fromkeys(named)]


def _nodes_with_class(base: SlurmPartition, nodes: Sequence[SlurmNode]) -> list[tuple[str, NodeClass]]:
    inside = set(base.nodes)
    found = [
        (node.name, NodeClass(node.gpu_type if node.gpus else "", node.gpus, node.cpus))
        for node in nodes
        if node.name in inside
    ]
    if not any(node_class.gpus for _, node_class in found):
        raise SlurmError(f"partition {base.name} has no node with GPUs; pools divide nodes between GPU and CPU jobs")
    return found


def _nodes_by_class(members: Sequence[tuple[str, NodeClass]]) -> dict[NodeClass, tuple[str, ...]]:
    found: dict[NodeClass, list[str]] = {}
    for name, node_class in members:
        found.setdefault(node_class, []).append(name)
    return {node_class: tuple(names) for node_class, names in found.items()}


def _lowest_tier(base: SlurmPartition, present: Mapping[str, SlurmPartition], ours: set[str]) -> int:
    """Lowest tier of all partitions with a node in common."""
    inside = set(base.nodes)
    return min(record.tier for record in present.values() if record.name not in ours and inside & set(record.nodes))


def _with_overrides(
    found: DerivedShare, overrides: ShareOverrides | None, node_class: NodeClass, nodes: int
) -> DerivedShare:
    if overrides is None or not node_class.gpus:
        return found
    cores, large, reasons = found.share.cpu_cores, found.share.large_nodes, list(found.reasons)
    if overrides.cpu_cores is not None:
        cores = min(overrides.cpu_cores, node_class.cpus)
        reasons.append(f"{cores} cores as asked for")
    if overrides.large_nodes is not None:
        large = min(overrides.large_nodes, nodes)
        reasons.append(f"{large} large nodes as asked for")
    return DerivedShare(PoolShare(cores, large), tuple(reasons))


def _routing_rules(settings: Settings, config: Mapping[str, str]) -> RoutingRules:
    digits = config.get("KillWait", "").split(" ")[0]
    return RoutingRules(
        gpu_lending=settings.pools.gpu_lending,
        kill_wait_s=parse_integer(digits, "KillWait") if digits.isdigit() else RoutingRules().kill_wait_s,
        job_requeue=config.get("JobRequeue", "1") == "1",
    )
