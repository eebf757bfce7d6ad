"""Array partitions in Slurm's words: what is carried over, the file, the steps, and who else changed something."""

from __future__ import annotations

import pytest

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import plan_pool_partitions
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.pools.partition_settings import (
    PartitionChange,
    include_text,
    list_foreign_changes,
    list_settings_not_inherited,
    plan_partition_changes,
    pool_partition_settings,
    split_into_calls,
)
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions, SlurmPartition, parse_partitions
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from tests.slurm_ext.scontrol import FRESH, Scontrol, partition

A100 = NodeClass("a100", 4, 28)
PARTS = plan_pool_partitions("gpu", 1, 0, [("n1", A100), ("n2", A100)], {A100: PoolShare(8, 1)}).partitions
RICH = (
    "PartitionName=t1 AllowGroups=root AllowAccounts=acc DenyQos=normal AllocNodes=n1,ctl Default=NO CpuBind=cores "
    " QoS=normal DefaultTime=NONE DisableRootJobs=YES ExclusiveUser=YES ExclusiveTopo=NO GraceTime=0 Hidden=YES MaxNodes=3"
    " MaxTime=1-00:00:00 MinNodes=1 LLN=YES MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=4 Nodes=n1 PriorityJobFactor=5"
    " PriorityTier=1 RootOnly=YES ReqResv=NO OverSubscribe=FORCE:2 OverTimeLimit=3 PreemptMode=REQUEUE State=DRAIN"
    " TotalCPUs=28 TotalNodes=1 SelectTypeParameters=NONE JobDefaults=DefCpuPerGPU=3,DefMemPerGPU=5 DefMemPerCPU=100"
    " MaxMemPerCPU=300 TRES=cpu=28,mem=62.50G,node=1,billing=36,gres/cog=4,gres/gpu=4 TRESBillingWeights=CPU=1.0,GRES/gpu=2"
)
"""As Slurm 24.11.5 showed it."""


def parsed(line: str) -> SlurmPartition:
    framing = ReplyFraming("Recorded")
    (record,) = parse_partitions((line + "\n" + framing.end).encode(), framing).values()
    return record


def test_what_a_base_has_its_pools_have() -> None:
    base = parsed(RICH)
    assert (base.name, base.nodes, base.tier, base.is_default) == ("t1", ("n1",), 1, False)
    assert pool_partition_settings(PARTS["gpu_cpu"], base) == {
        "Nodes": "n[1-2]", "PriorityTier": "0", "PreemptMode": "OFF", "GraceTime": "0", "MinNodes": "1",
        "MaxCPUsPerNode": "8", "AllowGroups": "root", "AllowAccounts": "acc", "DenyQos": "normal", "AllocNodes": "n1,ctl",
        "CpuBind": "cores", "QoS": "normal", "DisableRootJobs": "YES", "ExclusiveUser": "YES", "Hidden": "YES",
        "MaxNodes": "3", "MaxTime": "1-00:00:00", "LLN": "YES", "MaxCPUsPerSocket": "4", "PriorityJobFactor": "5",
        "RootOnly": "YES", "OverSubscribe": "FORCE:2", "OverTimeLimit": "3", "DefMemPerCPU": "100", "MaxMemPerCPU": "300",
        "JobDefaults": "DefCpuPerGPU=3,DefMemPerGPU=5", "TRESBillingWeights": "CPU=1.0,GRES/gpu=2", "State": "DRAIN",
    }  # fmt: skip
    assert list_settings_not_inherited(base) == []
    odd = SlurmPartition("x", partition(Nodes="n1", SelectTypeParameters="CR_CORE", Colour="red"))
    assert list_settings_not_inherited(odd) == ["SelectTypeParameters=CR_CORE", "Colour=red"]


def test_a_plain_base_says_little() -> None:
    plain = SlurmPartition("gpu", partition(Nodes="n[1-2]", MinNodes="0"))
    assert pool_partition_settings(PARTS["gpu_small_lend"], plain) == {
        "Nodes": "n2", "PriorityTier": "0", "PreemptMode": "REQUEUE", "GraceTime": "0", "MinNodes": "0",
        "MaxCPUsPerNode": "20", "State": "UP",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "carried"), [("NO", {}), ("USER", {"Exclusive": "USER"}), ("NODE", {"Exclusive": "NODE"})]
)
def test_the_word_of_26_05_for_exclusive_nodes_is_carried(said: str, carried: dict[str, str]) -> None:
    base = parsed(
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A"
        f" DefaultTime=01:00:00 DisableRootJobs=NO Exclusive={said} GraceTime=0 Hidden=NO MaxNodes=UNLIMITED"
        " MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED NodeSets=ALL Nodes=n[1-2]"
        " PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE"
        " State=UP TotalCPUs=56 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED"
        " MaxMemPerNode=UNLIMITED TRES=cpu=56,mem=125G,node=2,billing=56,gres/cog=8,gres/gpu=8"
    )
    assert list_settings_not_inherited(base) == []
    settings = pool_partition_settings(PARTS["gpu_cpu"], base)
    assert {key: value for key, value in settings.items() if "Exclusive" in key} == carried
    assert not [key for key in settings if "Exclusive" in key and key not in base.fields]


@pytest.mark.parametrize(("own", "cores"), [("6", "6"), ("10", "8"), ("UNLIMITED", "8")])
def test_a_base_with_a_limit_of_its_own_keeps_it(own: str, cores: str) -> None:
    base = SlurmPartition("gpu", partition(MaxCPUsPerNode=own))
    assert pool_partition_settings(PARTS["gpu_cpu"], base)["MaxCPUsPerNode"] == cores
    lent = pool_partition_settings(PARTS["gpu_cpu_lend"], base).get("MaxCPUsPerNode")
    assert lent == (None if own == "UNLIMITED" else own)


def test_the_file_is_never_empty_and_has_the_file_s_words() -> None:
    assert include_text({}).startswith("#")
    text = include_text({"p": {"Nodes": "n1", "JobDefaults": "DefCpuPerGPU=3,DefMemPerGPU=5", "State": "UP"}})
    assert text.endswith("PartitionName=p Nodes=n1 DefCpuPerGPU=3 DefMemPerGPU=5 State=UP\n")


def test_steps_are_the_difference() -> None:
    old = {"a": {"Nodes": "n1", "MaxCPUsPerNode": "8"}, "b": {"Nodes": "n1"}, "c": {"Nodes": "n1"}}
    new = {"a": {"Nodes": "n1", "MaxTime": "5"}, "c": {"Nodes": "n1"}, "d": {"Nodes": "n2"}}
    assert plan_partition_changes(old, new) == [
        PartitionChange(
            "update",
            "a",
            {"MaxCPUsPerNode": "UNLIMITED", "MaxTime": "5"},
            {"MaxCPUsPerNode": "8", "MaxTime": "UNLIMITED"},
        ),
        PartitionChange("create", "d", {"Nodes": "n2"}, {}),
        PartitionChange("retire", "b", {}, {"Nodes": "n1"}),
    ]
    assert plan_partition_changes(new, new) == []
    with pytest.raises(SlurmError, match="cannot take DefaultTime=5 back"):
        plan_partition_changes({"a": {"DefaultTime": "5"}}, {"a": {}})


def test_two_settings_that_slurm_does_not_take_at_once_are_set_apart() -> None:
    step = PartitionChange("create", "a", {"Nodes": "n1", "MaxCPUsPerNode": "8", "OverSubscribe": "FORCE:2"}, {})
    assert split_into_calls(step) == [
        ("create", {"Nodes": "n1", "MaxCPUsPerNode": "8"}), ("update", {"OverSubscribe": "FORCE:2"}),
    ]  # fmt: skip
    assert step.command == "scontrol create PartitionName=a Nodes=n1 MaxCPUsPerNode=8 OverSubscribe=FORCE:2"


def test_differences_leave_out_what_slurm_works_out() -> None:
    assert list_foreign_changes(partition(TotalCPUs="1"), partition(TRES="x")) == []
    changed = partition(MaxTime="5", State="DOWN")
    assert list_foreign_changes(partition(), changed) == ["MaxTime is 5, was UNLIMITED", "State is DOWN, was UP"]
    assert list_foreign_changes(partition(), changed, passing=("State",)) == ["MaxTime is 5, was UNLIMITED"]
    assert list_foreign_changes(partition(DenyQos="q"), partition()) == ["DenyQos is unset, was q"]


@pytest.mark.parametrize(
    ("stdout", "words"),
    [
        (b"PartitionName=gpu State=UP", "cut short"),
        (b"PartitionName=gpu PriorityTier=low State=UP\n\x04Recorded", "cannot be read"),
        (b"PartitionName=gpu PriorityTier=1\n\x04Recorded", "cannot be read"),
    ],
)
def test_replies_that_cannot_be_read(stdout: bytes, words: str) -> None:
    with pytest.raises(SlurmReplyError, match=words):
        parse_partitions(stdout, ReplyFraming("Recorded"))


def test_through_scontrol() -> None:
    scontrol = Scontrol()
    port = ScontrolPartitions(scontrol)
    port.create("x", {"Nodes": "n1", "MaxCPUsPerNode": "8"})
    port.update("x", {"State": "DRAIN"})
    assert port.partitions()["x"].fields == dict(parsed(f"PartitionName=x {FRESH}").fields) | {
        "Nodes": "n1", "MaxCPUsPerNode": "8", "State": "DRAIN",
    }  # fmt: skip
    scontrol.used.add("x")
    with pytest.raises(SlurmCommandError, match="in use"):
        port.delete("x")
    scontrol.used.clear()
    port.delete("x")
    assert list(port.partitions()) == ["gpu"]
    assert port.config()["KillWait"] == "10 sec"
    scontrol.bound = "gpu\n\n"
    assert port.bound_partitions() == {"gpu"}


@pytest.mark.parametrize("bad", [{"Nodes": "n1; reboot"}, {"No des": "n1"}, {"Nodes": ""}, {"Nodes": "n1 State=DOWN"}])
def test_nothing_strange_is_sent(bad: dict[str, str]) -> None:
    scontrol = Scontrol()
    with pytest.raises(SlurmReplyError, match="is not given"):
        ScontrolPartitions(scontrol).create("x", bad)
    assert scontrol.sent == []
