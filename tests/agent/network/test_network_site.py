"""What the site has on its link stays as it is, and what an agent left when it was killed goes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest

from slurm_soda.agent.network.net_cls import NetClsGroups
from slurm_soda.agent.network.network_controller import STATE_FILE, NetworkController, NetworkDependencies
from slurm_soda.agent.network.nft_rules import NftRules
from slurm_soda.agent.network.shaper import HtbShaper, NetworkError, read_link_mbit_per_s
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.agent.state_file import write_state
from tests.agent.network.node import CPU_JOB, SETTINGS, WIDE, Node, Table


def test_a_qdisc_of_the_site_is_never_touched_and_said(node: Node) -> None:
    node.namespace.do("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "tbf", *TBF)
    before = node.namespace.qdiscs()
    resource_controller = node.resource_controller()
    (fault,) = node.turn(resource_controller, WIDE, CPU_JOB)
    assert fault.startswith("network: eth0 has a queueing discipline of somebody else (tbf 7:), which is left alone")
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.namespace.qdiscs() == before
    assert not (node.state / STATE_FILE).exists()
    node.namespace.do("tc", "qdisc", "del", "dev", "eth0", "root")
    assert node.turn(resource_controller, WIDE, CPU_JOB, later_s=60.0) == ()
    assert node.is_shared_out()


TBF = ("rate", "1mbit", "burst", "10k", "latency", "50ms")


def test_a_qdisc_of_the_site_that_has_our_number_is_not_ours(node: Node) -> None:
    node.namespace.do("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "50da:", "tbf", *TBF)
    before = node.namespace.qdiscs()
    (fault,) = node.turn(node.resource_controller(), WIDE, CPU_JOB)
    assert "a queueing discipline of somebody else (tbf 50da:)" in fault
    assert node.namespace.qdiscs() == before
    assert "soda" not in node.namespace.rules()


def test_a_mark_that_will_not_go_is_a_fault_and_nothing_else_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    assert node.is_shared_out()

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    (fault,) = node.turn(resource_controller)
    monkeypatch.undo()
    assert "Read-only file system" in fault
    assert "soda" not in node.namespace.rules()
    assert node.turn(resource_controller) == ()
    assert node.untouched()


def test_the_sites_rules_stay_as_they_are(node: Node) -> None:
    node.namespace.do("nft", "add", "table", "inet", "site")
    node.namespace.do("nft", "add", "chain", "inet", "site", "output", "{ type filter hook output priority 0; }")
    before = node.namespace.rules()
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    node.turn(resource_controller)
    assert node.namespace.rules() == before


def test_what_others_removed_is_set_again(node: Node) -> None:
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    node.namespace.do("nft", "flush", "ruleset")
    assert node.turn(resource_controller, WIDE, CPU_JOB, later_s=31.0) == ()
    assert "50da:20" in node.namespace.rules()
    node.namespace.do("tc", "qdisc", "del", "dev", "eth0", "root")
    assert node.turn(resource_controller, WIDE, CPU_JOB, later_s=31.0) == ()
    assert node.is_shared_out()


def test_a_qdisc_that_somebody_put_in_our_trees_place_is_left_alone(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    node.namespace.do("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "7:", "tbf", *TBF)
    (fault,) = node.turn(resource_controller, WIDE, CPU_JOB, later_s=31.0)
    assert "left alone" in fault
    assert node.namespace.qdiscs().startswith("qdisc tbf 7:")
    assert "soda" not in node.namespace.rules()
    assert not node.groups.top().exists()


@pytest.mark.parametrize("enabled", [True, False])
def test_an_agent_that_was_killed_leaves_nothing_for_ever(node: Node, sleepers: list[int], enabled: bool) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    node.turn(node.resource_controller(), WIDE, CPU_JOB)
    assert node.groups.pids("cpu") == sorted(sleepers)
    node.resource_controller(SETTINGS if enabled else NetworkSettings())
    assert node.untouched()


def test_the_next_agent_goes_on_where_it_is_still_wanted(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    node.turn(node.resource_controller(), WIDE, CPU_JOB)
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    assert node.is_shared_out()
    assert node.groups.pids("cpu") == sorted(sleepers)
    assert node.namespace.run(resource_controller.close) == ()
    assert node.untouched()


def test_a_damaged_mark_is_enough_to_take_everything_back(node: Node) -> None:
    node.turn(node.resource_controller(), WIDE, CPU_JOB)
    (node.state / STATE_FILE).write_text("{")
    node.groups.node = "elsewhere"
    node.resource_controller()
    assert node.namespace.qdiscs().startswith("qdisc noqueue 0:")
    assert "soda" not in node.namespace.rules()


def test_what_cannot_be_recorded_is_not_done(node: Node) -> None:
    node.state.write_text("a file where the directory should be")
    (fault,) = node.turn(node.resource_controller(), WIDE, CPU_JOB)
    assert str(node.state) in fault
    assert node.namespace.qdiscs().startswith("qdisc noqueue 0:")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (NetworkSettings(gpu_interface="none0", link_mbit=10.0), "there is no interface none0"),
        (NetworkSettings(gpu_interface="none0"), "there is no interface none0"),
        (NetworkSettings(gpu_interface="lo"), "lo does not report its speed: set network.link_mbit"),
    ],
)
def test_an_interface_that_cannot_be_shared_out(node: Node, settings: NetworkSettings, said: str) -> None:
    (fault,) = node.turn(node.resource_controller(settings), WIDE, CPU_JOB)
    assert said in fault
    assert node.untouched()


def test_nothing_is_done_unless_the_site_says_so(node: Node) -> None:
    resource_controller = node.resource_controller(NetworkSettings())
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.untouched()
    fresh = NetworkController(SETTINGS, node.state, NetworkDependencies(Table({}, {}), net_classes=node.groups))
    assert node.turn(fresh, WIDE, CPU_JOB) == (), "an agent that only reports once must not set what nobody takes back"
    assert node.untouched()


class Removed:
    """Stands for rules, tree and groups, which can all be removed, the first times perhaps not."""

    def __init__(self, refusals: int = 0) -> None:
        self.times, self.refusals = 0, refusals

    def remove(self) -> None:
        self.times += 1
        if self.times <= self.refusals:
            raise NetworkError("device or resource busy")


def left_behind(tmp_path: Path, *parts: Removed) -> NetworkController:
    """Where an agent was killed, without the kernel's own network, which not every machine with tests lends."""
    rules, shaper, groups = parts
    ports = NetworkDependencies(
        Table({}, {}),
        shaper=cast("HtbShaper", shaper),
        rules=cast("NftRules", rules),
        net_classes=lambda _node: cast("NetClsGroups", groups),
    )
    write_state(tmp_path / STATE_FILE, 1, {"net_cls": "n1"})
    return NetworkController(SETTINGS, tmp_path, ports)


def test_what_an_agent_left_is_gone_without_a_fault(tmp_path: Path) -> None:
    rules, shaper, groups = Removed(), Removed(), Removed()
    resource_controller = left_behind(tmp_path, rules, shaper, groups)
    assert resource_controller.recover(0.0) == ()
    assert (rules.times, shaper.times, groups.times) == (1, 1, 1)
    assert resource_controller.close() == ()
    assert (rules.times, (tmp_path / STATE_FILE).exists()) == (1, False)


def test_what_cannot_be_removed_is_said_and_tried_again(tmp_path: Path) -> None:
    rules, shaper, groups = Removed(), Removed(refusals=1), Removed()
    resource_controller = left_behind(tmp_path, rules, shaper, groups)
    assert resource_controller.recover(0.0) == ("device or resource busy",)
    assert groups.times == 1, "one that stays keeps nothing else"
    assert resource_controller.close() == ()
    assert (shaper.times, (tmp_path / STATE_FILE).exists()) == (2, False)


def test_an_agent_that_has_not_recovered_changes_nothing(tmp_path: Path) -> None:
    """One that only reports once, beside the one that shares the link out."""
    rules, shaper, groups = Removed(), Removed(), Removed()
    resource_controller = left_behind(tmp_path, rules, shaper, groups)
    assert resource_controller.turn(NodeSample(0.0, (), {}, unix_s=0.0)) == ()
    assert (rules.times, shaper.times, groups.times, (tmp_path / STATE_FILE).exists()) == (0, 0, 0, True)


def test_the_speed_of_a_link_is_its_drivers_word(tmp_path: Path) -> None:
    speed = tmp_path / "eth0/speed"
    speed.parent.mkdir()
    speed.write_text("25000\n")
    assert read_link_mbit_per_s("eth0", tmp_path) == 25_000
    with pytest.raises(NetworkError, match="there is no interface eth1"):
        read_link_mbit_per_s("eth1", tmp_path)
    speed.write_text("-1\n")
    with pytest.raises(NetworkError, match="eth0 does not report its speed"):
        read_link_mbit_per_s("eth0", tmp_path)
