"""The port on a mounted stand-in that answers as the kernel does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.contention.resctrl import Resctrl, ResctrlError, ResctrlFull, ResctrlGroup
from slurm_soda.agent.contention.resctrl_features import MbaFeatures

from .conftest import Machine

CONTROL, MONITOR = ResctrlGroup(12, control=True), ResctrlGroup(12, control=False)
TOTAL = "mbm_total_bytes"


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("soda-12", CONTROL),
        ("mon_groups/soda-12", MONITOR),
        ("soda-012", None),
        ("soda-0", None),
        ("soda-", None),
        ("soda-12x", None),
        ("soda-１２", None),
        ("soda-12\n", None),
        ("Soda-12", None),
        ("site", None),
        ("site/soda-12", None),
        ("site/mon_groups/soda-12", None),
        ("", None),
    ],
)
def test_only_groups_named_after_a_job_are_ours(path: str, group: ResctrlGroup | None) -> None:
    assert ResctrlGroup.parse(path) == group
    assert group is None or group.path == path


def test_what_a_node_can_do(machine: Machine) -> None:
    features = Resctrl(machine.mount).features()
    assert features.throttle == MbaFeatures(10, 10, 4, True, (0, 1))
    assert (features.event, features.monitor_ids, features.domains, features.missing) == (TOTAL, 16, (0, 1), "")


@pytest.mark.parametrize(
    ("setup", "throttled", "event", "said"),
    [
        ({"mba": False}, False, TOTAL, "MBA"),
        ({"mbm": False}, True, "", "MBM"),
        ({"mba": False, "mbm": False}, False, "", "MBM"),
        ({"full_bandwidth": 2048, "min_bandwidth": 1, "bandwidth_gran": 1}, False, TOTAL, "absolute"),
        ({"cat": False}, True, TOTAL, ""),
        ({"domains": [0, 8, 3]}, True, TOTAL, ""),
    ],
)
def test_what_a_node_lacks(machine: Machine, setup: dict[str, object], throttled: bool, event: str, said: str) -> None:
    machine.tell(reset=setup)
    features = Resctrl(machine.mount).features()
    assert (features.throttle is not None, features.event) == (throttled, event)
    assert said in features.missing
    assert bool(features.missing) == bool(said)


def test_no_mount_can_do_nothing(tmp_path: Path) -> None:
    port = Resctrl(tmp_path / "absent")
    features = port.features()
    assert (features.throttle, features.event) == (None, "")
    assert "mount -t resctrl" in features.missing
    assert (port.ours(), port.counters(TOTAL), port.limits(CONTROL), port.tasks(MONITOR)) == ((), {}, {}, ())
    port.remove(CONTROL)


def test_threads_move_and_those_that_ended_are_passed_over(machine: Machine) -> None:
    machine.run({7: {}, 8: {}})
    port = Resctrl(machine.mount)
    port.create(MONITOR)
    assert port.add_tasks(MONITOR, [7, 404, 8]) == 2
    assert port.tasks(MONITOR) == (7, 8)
    port.create(CONTROL)
    port.add_tasks(CONTROL, [7])
    assert (port.tasks(CONTROL), port.tasks(MONITOR)) == ((7,), (8,))
    with pytest.raises(ResctrlError, match="Can't move task to different control group"):
        port.add_tasks(MONITOR, [7])
    port.remove(CONTROL)
    assert machine.look()[""]["tasks"] == [7]


@given(percent=st.integers(1, 100), gran=st.sampled_from([1, 5, 7, 10, 20, 50]), least=st.sampled_from([1, 10, 20]))
def test_rounding_is_upwards_to_a_step_within_bounds(percent: int, gran: int, least: int) -> None:
    rounded = MbaFeatures(least, gran, 4, True, (0,)).round(percent)
    assert min(max(percent, least), 100) <= rounded <= 100
    assert rounded % gran == 0 or rounded == 100
    assert rounded - max(percent, least) < gran


@pytest.mark.parametrize("percent", [1, 10, 11, 35, 99, 100])
def test_what_is_rounded_here_is_what_the_kernel_holds(machine: Machine, percent: int) -> None:
    port = Resctrl(machine.mount)
    throttle = port.features().throttle
    assert throttle is not None
    port.create(CONTROL)
    port.limit(CONTROL, dict.fromkeys(throttle.domains, throttle.round(percent)))
    assert port.limits(CONTROL) == dict.fromkeys((0, 1), throttle.round(percent))


def test_steps_that_are_the_same_on_this_node_are_one() -> None:
    assert MbaFeatures(20, 20, 8, True, (0,)).steps([100, 95, 60, 50, 41, 20, 5]) == (60, 20)
    assert MbaFeatures(100, 100, 8, True, (0,)).steps([50, 10]) == ()


def test_cache_ways_stay_as_somebody_set_them(machine: Machine) -> None:
    port = Resctrl(machine.mount)
    port.create(CONTROL)
    (machine.mount / "soda-12/schemata").write_text("L3:0=f0;1=f\n")
    port.limit(CONTROL, {0: 30, 1: 60})
    assert machine.look()["soda-12"]["l3"] == [0xF0, 0xF]
    assert machine.look()["soda-12"]["mb"] == [30, 60]


def test_a_refusal_carries_the_kernels_words(machine: Machine) -> None:
    port = Resctrl(machine.mount)
    port.create(CONTROL)
    with pytest.raises(ResctrlError, match=r"MB:0=5 cannot be set on soda-12.*out of range \[10,100\]") as caught:
        port.limit(CONTROL, {0: 5})
    assert caught.value.code == errno.EINVAL
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setup", "control", "words"),
    [
        ({"closids": 2}, True, "Out of CLOSIDs"),
        ({"rmids": 2}, True, "Out of RMIDs"),
        ({"rmids": 2}, False, "Out of RMIDs"),
    ],
)
def test_a_node_full_of_foreign_groups(machine: Machine, setup: dict[str, int], control: bool, words: str) -> None:
    machine.tell(reset=setup)
    (machine.mount / "site").mkdir()
    with pytest.raises(ResctrlFull, match=words):
        Resctrl(machine.mount).create(ResctrlGroup(1, control=control))
    assert sorted(machine.look()) == ["", "site"]


def test_ids_in_limbo_are_another_error_than_none_left(machine: Machine) -> None:
    machine.tell(limbo=True)
    with pytest.raises(ResctrlError, match="busy") as caught:
        Resctrl(machine.mount).create(MONITOR)
    assert not isinstance(caught.value, ResctrlFull)


def test_making_and_removing_twice_is_no_error(machine: Machine) -> None:
    port = Resctrl(machine.mount)
    for group in (CONTROL, CONTROL, MONITOR, MONITOR):
        port.create(group)
    assert port.ours() == (CONTROL, MONITOR)
    for group in (CONTROL, CONTROL, MONITOR, MONITOR):
        port.remove(group)
    assert port.ours() == ()


@pytest.mark.parametrize("operation", ["tasks", "schemata"])
def test_a_group_that_vanishes_between_open_and_write(machine: Machine, operation: str) -> None:
    machine.run({7: {}})
    port = Resctrl(machine.mount)
    port.create(CONTROL)
    machine.tell(vanish="soda-12")
    with pytest.raises(ResctrlError, match="No such device") as caught:
        port.add_tasks(CONTROL, [7]) if operation == "tasks" else port.limit(CONTROL, {0: 50})
    assert caught.value.code == errno.ENODEV


@pytest.mark.parametrize("name", ["site", "soda-12"])
def test_a_group_that_vanishes_between_open_and_read_has_no_value(machine: Machine, name: str) -> None:
    (machine.mount / name).mkdir()
    machine.tell(vanish_read=name)
    assert Resctrl(machine.mount).counters(TOTAL)[name] == {0: None, 1: None}
    assert Resctrl(machine.mount).counters(TOTAL) == {"": {0: 0, 1: 0}}


def test_counters_of_every_group_and_the_words_that_are_no_number(machine: Machine) -> None:
    machine.run({7: {0: 5e9}, 8: {1: 2e9}, 9: {0: 1e9}})
    port = Resctrl(machine.mount)
    (machine.mount / "site").mkdir()
    (machine.mount / "site/tasks").write_text("8\n")
    port.create(MONITOR)
    port.add_tasks(MONITOR, [7])
    machine.tell(advance=2)
    assert port.counters(TOTAL) == {
        "": {0: 12_000_000_000, 1: 0},
        "site": {0: 0, 1: 4_000_000_000},
        "mon_groups/soda-12": {0: 10_000_000_000, 1: 0},
    }
    machine.tell(say={"site": "Unavailable", "mon_groups/soda-12": "Error"})
    assert port.counters(TOTAL)["site"] == {0: None, 1: None}
    assert port.counters(TOTAL)["mon_groups/soda-12"] == {0: None, 1: None}


def test_foreign_threads_are_those_in_groups_of_others(machine: Machine) -> None:
    machine.run({7: {}, 8: {}})
    port = Resctrl(machine.mount)
    (machine.mount / "site").mkdir()
    (machine.mount / "site/tasks").write_text("8\n")
    port.create(CONTROL)
    port.add_tasks(CONTROL, [7])
    assert port.foreign_tasks() == {8}
