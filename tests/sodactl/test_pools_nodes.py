"""Pools and slurm.conf no longer agree on nodes or on the divided partition: what is said, with slurmctld alive and dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol
from tests.sodactl.conftest import Bench

NODES = "NodeName=n[1-2] CPUs=28\nPartitionName=gpu Nodes=n[1-2]\n"


@pytest.fixture
def conf(soda: Bench, tmp_path: Path) -> Path:
    """The slurm.conf of a site where pools are applied."""
    include, conf = tmp_path / "soda-pools.conf", tmp_path / "slurm.conf"
    include.write_text("# none\n")
    conf.write_text(f"{NODES}include {include}\n")
    soda.config.write_text(f'state_dir = "{tmp_path}"\n[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n')
    soda.slurm, soda.commands = QueueOfPartitions(), Scontrol()
    soda.commands.config["SLURM_CONF"] = str(conf)
    soda("pools", "apply")
    return conf


def edit(conf: Path, old: str, new: str) -> None:
    conf.write_text(conf.read_text().replace(old, new))


def findings(soda: Bench, *, alive: bool = False) -> dict[str, str]:
    """What doctor says of pools, by check, with slurmctld dead or alive."""
    commands = soda.commands
    if not alive:
        dead(soda)
    found = soda("doctor", "--json", status=None).document["findings"]
    soda.commands = commands
    return {one["check"]: f"{one['found']}; {one['remedy']}" for one in found if one["check"].startswith("pool ")}


def dead(soda: Bench) -> None:
    soda.commands = lambda argv, **_: CompletedCommand(
        tuple(argv), 1, b"", b"slurm_load: Unable to contact controller\n"
    )


def test_nothing_is_said_where_they_agree(soda: Bench, conf: Path) -> None:
    assert findings(soda) == {}
    assert soda("pools", "status").err == ""


@pytest.mark.parametrize("alive", [True, False])
def test_a_node_that_slurm_conf_lacks(soda: Bench, conf: Path, alive: bool) -> None:
    edit(conf, "n[1-2]", "n1")
    if not alive:
        dead(soda)
    for said in (findings(soda)["pool nodes"], soda("pools", "status", status=1).err):
        assert f"{conf.parent}/soda-pools.conf names n2, which {conf} lacks" in said
        assert f"take n2 out of {conf.parent}/soda-pools.conf" in said
        assert "sodactl pools apply --force" in said


@pytest.mark.parametrize("alive", [True, False])
def test_a_base_that_was_renamed(soda: Bench, conf: Path, alive: bool) -> None:
    edit(conf, "PartitionName=gpu ", "PartitionName=new ")
    if not alive:
        dead(soda)
    for said in (findings(soda)["pool base"], soda("pools", "status", status=1).err):
        assert "partition gpu, which is divided, is not in" in said
        assert "sodactl pools revert" in said


def test_partitions_that_slurm_no_longer_has(soda: Bench, conf: Path) -> None:
    """As where configuration management wrote the include file back, and slurmctld was started again."""
    assert isinstance(soda.commands, Scontrol)
    for name in ("gpu_cpu", "gpu_large"):
        del soda.commands.partitions[name]
    found = findings(soda, alive=True)["pool partitions"]
    assert "Slurm does not have gpu_cpu, gpu_large" in found
    assert "sodactl pools apply; or take the pools back: sodactl pools revert" in found


def test_apply_after_the_repair_asks_for_force_and_does_it(soda: Bench, conf: Path) -> None:
    """The admin took the node out of both files; Slurm has one node and our partitions name it alone."""
    edit(conf, "n[1-2]", "n1")
    edit(conf.parent / "soda-pools.conf", "n[1-2]", "n1")
    assert isinstance(soda.commands, Scontrol)
    assert isinstance(soda.slurm, QueueOfPartitions)
    for shown in soda.commands.partitions.values():
        shown["Nodes"] = "n1"
    soda.slurm.machines = [one for one in soda.slurm.machines if one.name == "n1"]
    assert findings(soda) == {}
    said = soda("pools", "apply", status=1).err
    assert "say --force to make it anew from the nodes that there are" in said
    soda("pools", "apply", "--force")
    assert soda("pools", "status").err == ""
