"""From a site as it is to the arrays that it shall have: one path for sodactl and for shares derived by schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.arrays import readiness
from slurm_soda.daemon.arrays.readiness import Obstacle
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.store.array_history import past_jobs
from slurm_soda.policies.arrays.history import PastJob
from slurm_soda.policies.arrays.kinds import NodeClass, Share
from slurm_soda.policies.arrays.layout import ArrayTable, lay_out
from slurm_soda.policies.arrays.shares import Derived, derive
from slurm_soda.slurm_ext.arranging import Wanted
from slurm_soda.slurm_ext.arrays import ArraysRecord
from slurm_soda.slurm_ext.cli.partitions import CliPartitions, PartitionRecord
from slurm_soda.slurm_ext.client import NodeRecord, SlurmClient
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.partitions import not_carried, wanted_settings
from slurm_soda.slurm_ext.routes import RoutingRules

_DAY_S = 86400.0
INCLUDE_NAME = "soda-arrays.conf"
"""Beside slurm.conf, unless the configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class SiteView:
    """What Slurm says of itself, at one time."""

    partitions: Mapping[str, PartitionRecord]
    nodes: Sequence[NodeRecord]
    config: Mapping[str, str]
    bound: set[str] | None
    """Partitions that accounting associations are bound to."""


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """The arrays that a site shall have, and what stands in the way."""

    wanted: Wanted
    derived: Mapping[NodeClass, Derived]
    nodes_of: Mapping[NodeClass, tuple[str, ...]]
    obstacles: tuple[Obstacle, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overrides:
    """Shares that a person names, for every class."""

    cpu_cores: int | None = None
    large_nodes: int | None = None


def look(slurm: SlurmClient, partitions: CliPartitions) -> SiteView:
    """Read the site.

    Raises:
        SlurmError: Slurm does not answer, or not intelligibly.
    """
    return SiteView(partitions.partitions(), slurm.nodes(), partitions.config(), partitions.bound_partitions())


def history(session: Session, view: SiteView, settings: Settings, now_s: float) -> list[PastJob]:
    """The jobs that shares are derived from."""
    types = {node.name: node.gpu_type for node in view.nodes}
    return past_jobs(session, since_s=now_s - settings.arrays.history_days * _DAY_S, now_s=now_s, gpu_types=types)


def plan(
    view: SiteView, settings: Settings, past: Sequence[PastJob], record: ArraysRecord | None, *, host: str,
    overrides: Overrides | None = None,
) -> ArrayPlan:  # fmt: skip
    """What the arrays of this site shall be.

    Args:
        past: jobs that shares are derived from.
        record: arrays in force, whose shares the new ones stay near; ``None``: none.
        host: where this runs.

    Raises:
        SlurmError: a partition that is to be divided is not there, or has no node.
    """
    ours = set() if record is None else set(record.sent)
    bases = _bases(view, settings, ours)
    members = {base.name: _members(base, view.nodes) for base in bases}
    nodes_of = _by_class([member for of in members.values() for member in of])
    derived = derive(past, {c: len(nodes) for c, nodes in nodes_of.items()}, None if record is None else record.shares)
    derived = {c: _overridden(found, overrides, c, len(nodes_of[c])) for c, found in derived.items()}
    shares = {c: found.share for c, found in derived.items()}
    table = ArrayTable()
    for base in bases:
        # Obstacles say it where nothing is below.
        lending = max(_lowest(base, view.partitions, ours) - 1, 0)
        table = table.merged(lay_out(base.name, max(base.tier, lending + 1), lending, members[base.name], shares))
    conf = Path(view.config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
    include_path = Path(settings.arrays.include_path or conf.with_name(INCLUDE_NAME))
    wanted = Wanted(
        table=table,
        settings={part.name: wanted_settings(part, view.partitions[part.base]) for part in table},
        shares=shares,
        rules=_rules(settings, view.config),
        bases={base.name: base.fields for base in bases},
        include_path=include_path,
    )
    obstacles = (
        *readiness.settings(view.config), *readiness.include(view.config, include_path, host),
        *readiness.tiers(bases, view.partitions, ours, view.config), *readiness.overlaps(bases),
        *readiness.added_cores(bases, view.config), *readiness.associations(bases, view.bound),
    )  # fmt: skip
    left_out = [f"{b.name}: {text} cannot be carried over to its arrays" for b in bases for text in not_carried(b)]
    return ArrayPlan(wanted, derived, nodes_of, obstacles, (*readiness.remarks(view.config), *left_out))


def _bases(view: SiteView, settings: Settings, ours: set[str]) -> list[PartitionRecord]:
    named = settings.arrays.partitions or [name for name, record in view.partitions.items() if record.is_default]
    if not named:
        raise SlurmError("Slurm has no default partition; name what to divide in arrays.partitions or with --partition")
    for name in named:
        if name not in view.partitions or name in ours:
            present = ", ".join(other for other in view.partitions if other not in ours)
            raise SlurmError(f"there is no partition {name} to divide; there are {present}")
    return [view.partitions[name] for name in dict.fromkeys(named)]


def _members(base: PartitionRecord, nodes: Sequence[NodeRecord]) -> list[tuple[str, NodeClass]]:
    inside = set(base.nodes)
    found = [
        (node.name, NodeClass(node.gpu_type if node.gpus else "", node.gpus, node.cpus))
        for node in nodes
        if node.name in inside
    ]
    if not any(node_class.gpus for _, node_class in found):
        raise SlurmError(f"partition {base.name} has no node with GPUs; arrays divide nodes between GPU and CPU jobs")
    return found


def _by_class(members: Sequence[tuple[str, NodeClass]]) -> dict[NodeClass, tuple[str, ...]]:
    found: dict[NodeClass, list[str]] = {}
    for name, node_class in members:
        found.setdefault(node_class, []).append(name)
    return {node_class: tuple(names) for node_class, names in found.items()}


def _lowest(base: PartitionRecord, present: Mapping[str, PartitionRecord], ours: set[str]) -> int:
    """Lowest tier of all partitions with a node in common."""
    inside = set(base.nodes)
    return min(record.tier for record in present.values() if record.name not in ours and inside & set(record.nodes))


def _overridden(found: Derived, overrides: Overrides | None, node_class: NodeClass, nodes: int) -> Derived:
    if overrides is None or not node_class.gpus:
        return found
    cores, large, reasons = found.share.cpu_cores, found.share.large_nodes, list(found.reasons)
    if overrides.cpu_cores is not None:
        cores = min(overrides.cpu_cores, node_class.cpus)
        reasons.append(f"{cores} cores as asked for")
    if overrides.large_nodes is not None:
        large = min(overrides.large_nodes, nodes)
        reasons.append(f"{large} large nodes as asked for")
    return Derived(Share(cores, large), tuple(reasons))


def _rules(settings: Settings, config: Mapping[str, str]) -> RoutingRules:
    digits = config.get("KillWait", "").split(" ")[0]
    return RoutingRules(
        gpu_lending=settings.arrays.gpu_lending,
        kill_wait_s=int(digits) if digits.isdigit() else RoutingRules().kill_wait_s,
        job_requeue=config.get("JobRequeue", "1") == "1",
    )
