"""Pool partitions in Slurm's words: what each is to be, the calls that bring it about, and who else changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition, partition_words
from slurm_soda.slurm_ext.read.hostlist import compress_hosts, expand_hosts
from slurm_soda.slurm_ext.read.slurm_values import count_or_zero

PartitionSettings = Mapping[str, str]

_INHERITED_DEFAULTS: Mapping[str, str] = {
    "AllowGroups": "ALL", "AllowAccounts": "ALL", "DenyAccounts": "", "AllowQos": "ALL", "DenyQos": "",
    "AllocNodes": "ALL", "CpuBind": "", "QoS": "N/A", "DefaultTime": "NONE", "DisableRootJobs": "NO",
    "ExclusiveUser": "NO", "ExclusiveTopo": "NO", "Exclusive": "NO", "Hidden": "NO", "MaxNodes": "UNLIMITED",
    "MaxTime": "UNLIMITED", "LLN": "NO", "MaxCPUsPerSocket": "UNLIMITED", "PriorityJobFactor": "1", "RootOnly": "NO",
    "ReqResv": "NO", "OverSubscribe": "NO", "OverTimeLimit": "NONE", "JobDefaults": "(null)", "DefMemPerNode": "UNLIMITED",
    "MaxMemPerNode": "UNLIMITED", "DefMemPerCPU": "", "MaxMemPerCPU": "", "TRESBillingWeights": "", "Topology": "",
}  # fmt: skip
"""What a pool partition has from its base, with the value that needs no saying. Only what the base shows is ever sent: Slurm
26.05 shows Exclusive in place of ExclusiveUser and ExclusiveTopo, and takes ``ExclusiveTopo=NO`` for ``Exclusive=NODE``."""
_NOT_INHERITED = frozenset(
    {"MinNodes", "State", "Nodes", "NodeSets", "Default", "Alternate", "GraceTime", "MaxCPUsPerNode", "PriorityTier",
     "PreemptMode", "TotalCPUs", "TotalNodes", "TRES"}
)  # fmt: skip
"""What it has of its own, or what Slurm works out."""
_POOL_SETTINGS = ("Nodes", "PriorityTier", "PreemptMode", "GraceTime", "MinNodes", "MaxCPUsPerNode", "State")
"""What it has of its own and is told."""
_COMPUTED = frozenset({"TotalCPUs", "TotalNodes", "TRES", "NodeSets"})
_RESETTABLE = frozenset({"ALL", "NO", "UNLIMITED", "1"})
"""Defaults that scontrol takes as values."""
_ELSEWHERE_DEFAULTS = {"SelectTypeParameters": "NONE"}


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One change to one partition."""

    verb: Literal["create", "update", "retire"]
    name: str
    settings: PartitionSettings
    before: PartitionSettings
    """The same settings as they are; empty for a partition that is not there."""

    @property
    def command(self) -> str:
        """The call as an admin would type it."""
        if self.verb == "retire":
            return f"scontrol update PartitionName={self.name} State=DRAIN; scontrol delete PartitionName={self.name}"
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        return " ".join(["scontrol", self.verb, f"PartitionName={self.name}", *settings])


def pool_partition_settings(part: PoolPartition, base: SlurmPartition) -> dict[str, str]:
    """Everything that the partition is created with: the base's settings and what makes it a pool's."""
    carried = _inherited(base.fields)
    limits = [part.cores_per_node, count_or_zero(base.fields.get("MaxCPUsPerNode", ""))]
    cores = min((limit for limit in limits if limit), default=0)
    return {
        "Nodes": compress_hosts(part.nodes),
        "PriorityTier": str(part.tier),
        "PreemptMode": "REQUEUE" if part.borrowing else "OFF",
        "GraceTime": "0",
        "MinNodes": base.fields.get("MinNodes", "0"),
        **({"MaxCPUsPerNode": str(cores)} if cores else {}),
        **carried,
        "State": base.fields.get("State", "UP"),
    }


def settings_of_partition(partition: SlurmPartition) -> dict[str, str]:
    """A partition that is there as if we had sent what Slurm shows of it."""
    said = {key: partition.fields[key] for key in _POOL_SETTINGS if key in partition.fields}
    if said.get("MaxCPUsPerNode") == "UNLIMITED":
        del said["MaxCPUsPerNode"]
    return said | _inherited(partition.fields)


def _inherited(fields: PartitionSettings) -> dict[str, str]:
    shown = {key: fields.get(key, default) for key, default in _INHERITED_DEFAULTS.items()}
    return {key: value for key, value in shown.items() if not _is_default(key, value)}


def _is_default(key: str, value: str) -> bool:
    # A limit of memory per CPU that was set and taken off again is shown as one that scontrol would not take.
    return value in ("", _INHERITED_DEFAULTS[key]) or (value == "UNLIMITED" and key in ("DefMemPerCPU", "MaxMemPerCPU"))


def list_settings_not_inherited(base: SlurmPartition) -> list[str]:
    """Settings of the base that its pools cannot have, as ``KEY=VALUE``."""
    known = _NOT_INHERITED | _INHERITED_DEFAULTS.keys()
    return [
        f"{key}={value}"
        for key, value in base.fields.items()
        if key not in known and value not in ("", "(null)", "N/A", _ELSEWHERE_DEFAULTS.get(key))
    ]


def include_text(partitions: Mapping[str, PartitionSettings]) -> str:
    """The file that slurm.conf includes; slurmctld finds the partitions there when it starts.

    It is never empty and never missing: then every Slurm command would wait for it for a minute, and fail.

    Raises:
        SlurmReplyError: a name, setting or value is none: what a file says that others write is not passed on to root.
    """
    head = [
        "# Pool partitions of slurm-soda. Written by sodactl and sodad: changes by hand are lost.",
        "# slurm.conf includes this file. It must be there on every host that reads slurm.conf; if it is missing Slurm does",
        "# not start. Jobs in partitions that are not in it when slurmctld restarts would fail.",
    ]
    lines = [" ".join(partition_words(name, _as_file(of))) for name, of in partitions.items()]
    return "\n".join([*head, *lines, ""])


def plan_partition_changes(
    old: Mapping[str, PartitionSettings], new: Mapping[str, PartitionSettings]
) -> list[PartitionChange]:
    """From what we made to what is wanted; nothing where they agree.

    Raises:
        SlurmError: a setting went that scontrol cannot take back.
    """
    found = [_plan_change(name, old.get(name), settings) for name, settings in new.items()]
    gone = [PartitionChange("retire", name, {}, old[name]) for name in old if name not in new]
    return [step for step in found if step.settings] + gone


def _plan_change(name: str, old: PartitionSettings | None, new: PartitionSettings) -> PartitionChange:
    if old is None:
        return PartitionChange("create", name, new, {})
    changed = {key: value for key, value in new.items() if not _same(key, old.get(key), value)}
    for key in old.keys() - new.keys():
        default = "UNLIMITED" if key == "MaxCPUsPerNode" else _INHERITED_DEFAULTS.get(key, "")
        if default not in _RESETTABLE:
            raise SlurmError(
                f"partition {name}: Slurm cannot take {key}={old[key]} back while it runs;"
                " run `sodactl pools revert --wait`, then `sodactl pools apply`"
            )
        changed[key] = default
    ordered = {key: changed[key] for key in sorted(changed)}
    return PartitionChange(
        "update", name, ordered, {key: old.get(key, _INHERITED_DEFAULTS.get(key, "UNLIMITED")) for key in ordered}
    )


def _same(key: str, old: str | None, new: str) -> bool:
    """Slurm may write the same nodes in another way."""
    return old == new or (key == "Nodes" and old is not None and set(expand_hosts(old)) == set(expand_hosts(new)))


def split_into_calls(step: PartitionChange) -> list[tuple[Literal["create", "update"], dict[str, str]]]:
    """A step as calls: OverSubscribe and MaxCPUsPerNode cannot be in one."""
    if step.verb == "retire":
        return [("update", {"State": "DRAIN"})]
    settings = dict(step.settings)
    if "OverSubscribe" not in settings or "MaxCPUsPerNode" not in settings:
        return [(step.verb, settings)]
    apart = {"OverSubscribe": settings.pop("OverSubscribe")}
    return [(step.verb, settings), ("update", apart)]


def list_foreign_changes(shown: PartitionSettings, now: PartitionSettings, *, passing: Sequence[str] = ()) -> list[str]:
    """What somebody else changed since we looked, as ``KEY is X, was Y``; ``passing`` names settings not to compare."""
    keys = [key for key in {**shown, **now} if key not in _COMPUTED and key not in passing]
    return [
        f"{key} is {now.get(key, 'unset')}, was {shown.get(key, 'unset')}"
        for key in keys
        if shown.get(key) != now.get(key)
    ]


def find_foreign_partitions(
    table: PoolTable, ours: Mapping[str, object], present: Mapping[str, SlurmPartition]
) -> list[str]:
    """Wanted names that somebody else's partitions have."""
    return [part.name for part in table if part.name in present and part.name not in ours]


def _as_file(settings: PartitionSettings) -> dict[str, str]:
    """slurm.conf has the job defaults as settings of their own."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if key == "JobDefaults":
            found.update(piece.split("=", 1) for piece in value.split(",") if "=" in piece)  # type: ignore[misc]
        else:
            found[key] = value
    return found
