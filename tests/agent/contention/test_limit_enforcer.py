"""Limits carried out on the mounted stand-in, and everything taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.agent.contention.limit_enforcer import LimitEnforcer, RefusedAction
from slurm_soda.agent.contention.limit_record import LimitRecord, read_limit_record, write_limit_record
from slurm_soda.agent.contention.resctrl import Resctrl
from slurm_soda.policies.node_limits.contention_sample import ContentionSample, CpuJob, GpuJob
from slurm_soda.policies.node_limits.eliminator import (
    EliminatorState,
    LimitCores,
    ReleaseBandwidth,
    RestoreCores,
    ThrottleBandwidth,
    decide_limits,
)
from slurm_soda.policies.node_limits.thresholds import ContentionThresholds
from slurm_soda.wire.errors import SodaError

from .conftest import Machine

GB = 1e9


@dataclass
class Cores:
    """Cores of jobs, by what was asked of them."""

    now: dict[int, int] = field(default_factory=dict)
    broken: bool = False

    def limit(self, job_id: int, cores: int) -> None:
        if self.broken:
            raise SodaError("cpuset.cpus: No such file or directory")
        self.now[job_id] = cores

    def restore(self, job_id: int) -> None:
        if self.broken:
            raise SodaError("cpuset.cpus: No such file or directory")
        self.now.pop(job_id, None)


@dataclass
class Node:
    """An enforcer with what it needs."""

    machine: Machine
    path: Path
    cores: Cores = field(default_factory=Cores)
    faults: list[str] = field(default_factory=list)

    def resource_controller(self) -> LimitEnforcer:
        return LimitEnforcer(Resctrl(self.machine.mount), self.cores, self.path, self.faults.append)

    def recorded(self) -> list[str]:
        found: list[str] = json.loads(self.path.read_text())["groups"] if self.path.exists() else []
        return found


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Node:
    return Node(machine, tmp_path / "limits.json")


def test_from_measured_to_throttled_and_back(node: Node) -> None:
    node.machine.run({7: {}, 8: {}})
    resource_controller = node.resource_controller()
    resource_controller.refresh({12: [7, 8]})
    assert node.machine.look()["mon_groups/soda-12"]["tasks"] == [7, 8]
    assert resource_controller.carry_out([ThrottleBandwidth(12, 35)], {12: [7, 8]}) == ()
    assert node.machine.look() == {
        "": {"tasks": [], "mb": [100, 100], "l3": [0xFFF, 0xFFF]},
        "soda-12": {"tasks": [7, 8], "mb": [40, 40], "l3": [0xFFF, 0xFFF]},
    }
    assert node.recorded() == ["soda-12"]
    resource_controller.carry_out([ReleaseBandwidth(12)], {12: [7, 8]})
    assert sorted(node.machine.look()) == ["", "mon_groups/soda-12"]
    assert node.recorded() == ["mon_groups/soda-12"]
    resource_controller.refresh({})
    assert sorted(node.machine.look()) == [""]
    assert node.recorded() == []
    assert node.faults == []


def test_a_group_is_limited_before_it_gets_threads(node: Node) -> None:
    node.machine.run({7: {}})
    node.resource_controller().carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    assert node.machine.log() == ["mkdir soda-12", "write soda-12/schemata MB:0=50;1=50", "write soda-12/tasks 7"]


def test_a_throttled_job_goes_a_step_further_and_a_changed_limit_is_set_again(node: Node) -> None:
    node.machine.run({7: {}})
    resource_controller = node.resource_controller()
    resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    resource_controller.carry_out([ThrottleBandwidth(12, 20)], {12: [7]})
    assert node.machine.look()["soda-12"]["mb"] == [20, 20]
    (node.machine.mount / "soda-12/schemata").write_text("MB:1=90\n")
    resource_controller.refresh({12: [7]})
    assert node.machine.look()["soda-12"]["mb"] == [20, 20]


def test_a_throttled_job_keeps_what_the_site_left_to_the_root(node: Node) -> None:
    """Cache ways of the root group, and no more bandwidth than it has on either socket."""
    (node.machine.mount / "schemata").write_text("L3:0=ff;1=f0\nMB:0=30;1=100\n")
    node.machine.run({7: {}})
    resource_controller = node.resource_controller()
    resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    assert node.machine.look()["soda-12"] == {"tasks": [7], "mb": [30, 50], "l3": [0xFF, 0xF0]}
    before = len(node.machine.log())
    resource_controller.refresh({12: [7]})
    assert len(node.machine.log()) == before


def test_a_refresh_writes_only_new_threads(node: Node) -> None:
    node.machine.run({7: {}, 8: {}})
    resource_controller = node.resource_controller()
    resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    before = len(node.machine.log())
    resource_controller.refresh({12: [7, 8]})
    resource_controller.refresh({12: [7, 8]})
    assert node.machine.log()[before:] == ["write soda-12/tasks 8"]


def test_threads_that_end_while_they_are_moved(node: Node) -> None:
    node.machine.run({7: {}})
    assert node.resource_controller().carry_out([ThrottleBandwidth(12, 50)], {12: [6, 7, 404]}) == ()
    assert node.machine.look()["soda-12"]["tasks"] == [7]


def test_a_job_that_ends_while_throttled_leaves_nothing(node: Node) -> None:
    node.machine.run({7: {}, 8: {}})
    resource_controller = node.resource_controller()
    resource_controller.carry_out([ThrottleBandwidth(12, 50), LimitCores(13, 2)], {12: [7], 13: [8]})
    node.machine.tell(end=[7])
    resource_controller.end(12)
    resource_controller.end(13)
    assert sorted(node.machine.look()) == [""]
    assert node.cores.now == {}
    assert json.loads(node.path.read_text()) == {"version": 1, "groups": [], "cores": [], "peak_bytes_per_s": 0.0}


def test_a_node_full_of_foreign_groups_degrades_with_one_fault(node: Node) -> None:
    node.machine.run({7: {}, 8: {}})
    for name in ("site1", "site2", "soda-lab"):
        (node.machine.mount / name).mkdir()
    before = node.machine.look()
    resource_controller = node.resource_controller()
    jobs = {12: [7], 13: [8]}
    for _ in range(3):
        resource_controller.refresh(jobs)
        refusals = resource_controller.carry_out([ThrottleBandwidth(12, 50), ThrottleBandwidth(13, 50)], jobs)
        assert [(r.job_id, r.full) for r in refusals] == [(12, True), (13, True)]
    assert len(node.faults) == 1
    assert "4 control ids" in node.faults[0]
    found = node.machine.look()
    assert {name: found[name] for name in before if name} == {name: before[name] for name in before if name}
    assert found["mon_groups/soda-12"]["tasks"] == [7], "a job that cannot be throttled is measured as before"
    assert node.recorded() == ["mon_groups/soda-12", "mon_groups/soda-13"]


def test_no_monitoring_ids_left_is_one_fault_and_no_error(node: Node) -> None:
    node.machine.tell(reset={"rmids": 2})
    node.machine.run({7: {}, 8: {}, 9: {}})
    resource_controller = node.resource_controller()
    for _ in range(3):
        resource_controller.refresh({12: [7], 13: [8], 14: [9]})
    assert sorted(node.machine.look()) == ["", "mon_groups/soda-12"]
    assert node.faults == ["not all CPU jobs can be measured: all 2 monitoring ids (RMIDs) are taken"]
    assert node.recorded() == ["mon_groups/soda-12"]


def test_a_group_that_vanishes_mid_write_is_made_once_more(node: Node) -> None:
    node.machine.run({7: {}})
    resource_controller = node.resource_controller()
    node.machine.tell(vanish="soda-12")
    assert resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]}) == ()
    assert node.machine.look()["soda-12"] == {"tasks": [7], "mb": [50, 50], "l3": [0xFFF, 0xFFF]}
    (node.machine.mount / "soda-12").rmdir()
    resource_controller.refresh({12: [7]})
    assert node.machine.look()["soda-12"]["mb"] == [50, 50]


def test_a_limit_that_the_kernel_refuses_leaves_no_group(node: Node) -> None:
    node.machine.run({7: {}})
    resource_controller = node.resource_controller()
    node.machine.tell(limbo=True)
    (refused,) = resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    assert not refused.full
    assert "busy" in refused.why
    assert sorted(node.machine.look()) == [""]
    assert node.recorded() == []


def test_threads_in_somebody_elses_control_group_stay_there(node: Node) -> None:
    node.machine.run({7: {}, 8: {}})
    (node.machine.mount / "site").mkdir()
    (node.machine.mount / "site/tasks").write_text("7\n")
    resource_controller = node.resource_controller()
    (refused,) = resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7]})
    assert "somebody else" in refused.why
    assert node.machine.look()["site"]["tasks"] == [7]
    assert resource_controller.carry_out([ThrottleBandwidth(12, 50)], {12: [7, 8]}) == ()
    assert (node.machine.look()["site"]["tasks"], node.machine.look()["soda-12"]["tasks"]) == ([7], [8])
    assert "site" in node.machine.look()


def test_a_job_that_is_partly_in_somebody_elses_control_group_is_measured_as_far_as_it_is_not(node: Node) -> None:
    node.machine.run({7: {}, 8: {}, 9: {}})
    (node.machine.mount / "site").mkdir()
    for thread in (7, 9):
        (node.machine.mount / "site/tasks").write_text(f"{thread}\n")
    resource_controller = node.resource_controller()
    for _ in range(2):
        resource_controller.refresh({12: [7, 8], 13: [9]})
    assert node.machine.look()["mon_groups/soda-12"]["tasks"] == [8]
    assert node.machine.look()["site"]["tasks"] == [7, 9]
    assert "mon_groups/soda-13" not in node.machine.look()
    assert node.faults == ["job 13 is not measured: its threads are in a control group that somebody else made"]
    made = [line for line in node.machine.log() if line.startswith("mkdir")]
    assert made == ["mkdir site", "mkdir mon_groups/soda-12"], "ids of groups are not used up turn by turn"


def test_what_cannot_be_recorded_is_not_done(node: Node) -> None:
    node.machine.run({7: {}})
    resource_controller = node.resource_controller()
    node.path.with_name("limits.json.new").mkdir()
    refusals = resource_controller.carry_out([ThrottleBandwidth(12, 50), LimitCores(13, 2)], {12: [7]})
    assert [r.job_id for r in refusals] == [12, 13]
    assert sorted(node.machine.look()) == [""]
    assert node.cores.now == {}


DAMAGED = [
    "", "{", "[]", '{"version": 9}', '{"version": 1, "groups": 3}', "\x00\xff", "[" * 100_000,
    '{"version": 1, "groups": [], "cores": [Infinity], "peak_bytes_per_s": 0}',
    '{"version": 1, "groups": [], "cores": [], "peak_bytes_per_s": Infinity}',
]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=[content[:80] for content in DAMAGED])
def test_a_damaged_record_is_a_fault_and_groups_are_found_by_name(node: Node, content: str) -> None:
    for name in ("soda-12", "mon_groups/soda-13", "site", "soda-lab"):
        (node.machine.mount / name).mkdir()
    node.path.write_text(content, encoding="latin-1")
    resource_controller = node.resource_controller()
    resource_controller.recover()
    assert sorted(node.machine.look()) == ["", "site", "soda-lab"]
    assert len(node.faults) == 1
    assert node.recorded() == []


def test_a_record_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    old, new = LimitRecord(frozenset({"soda-1"})), LimitRecord(frozenset({"soda-2"}), frozenset({3}), 5e9)
    write_limit_record(path, old)
    before = path.read_bytes()
    with path.open("rb") as reader:
        write_limit_record(path, new)
        assert reader.read() == before
    assert read_limit_record(path) == new
    assert [entry.name for entry in tmp_path.iterdir()] == ["limits.json"]


def test_a_record_that_names_foreign_groups_removes_none(node: Node) -> None:
    (node.machine.mount / "site").mkdir()
    groups = ["site", "../site", "mon_groups", "info", "", "soda-5/../site"]
    node.path.write_text(json.dumps({"version": 1, "groups": groups, "cores": [], "peak_bytes_per_s": 0}))
    node.resource_controller().recover()
    assert sorted(node.machine.look()) == ["", "site"]
    assert node.recorded() == []


def test_cores_that_cannot_be_given_back_stay_recorded_until_they_are(node: Node) -> None:
    resource_controller = node.resource_controller()
    resource_controller.carry_out([LimitCores(13, 2)], {})
    node.cores.broken = True
    resource_controller.carry_out([RestoreCores(13)], {})
    assert len(node.faults) == 1
    later = node.resource_controller()
    later.recover()
    assert node.cores.now == {13: 2}
    node.cores.broken = False
    later.recover()
    assert node.cores.now == {}


def test_cores_that_cannot_be_limited_are_refused(node: Node) -> None:
    node.cores.broken = True
    (refused,) = node.resource_controller().carry_out([LimitCores(13, 2)], {})
    why = "job 13 is not limited to 2 cores: cpuset.cpus: No such file or directory"
    assert refused == RefusedAction(13, why, full=False)


def test_a_node_without_resctrl_limits_cores_only(node: Node, tmp_path: Path) -> None:
    resource_controller = LimitEnforcer(Resctrl(tmp_path / "absent"), node.cores, node.path, node.faults.append)
    resource_controller.recover()
    resource_controller.refresh({12: [7]})
    assert resource_controller.sample(1.0) is None
    (refused,) = resource_controller.carry_out([ThrottleBandwidth(12, 50), LimitCores(12, 2)], {12: [7]})
    assert refused.job_id == 12
    assert node.cores.now == {12: 2}
    resource_controller.close()
    assert node.cores.now == {}


def test_the_highest_bandwidth_outlives_the_agent(node: Node) -> None:
    node.machine.run({7: {0: 60 * GB, 1: 10 * GB}})
    resource_controller = node.resource_controller()
    resource_controller.sample(0.0)
    node.machine.tell(advance=2)
    rates = resource_controller.sample(2.0)
    assert rates is not None
    assert rates.node == 70 * GB
    assert node.resource_controller().peak_bytes_per_s == 70 * GB


def _step(
    node: Node,
    resource_controller: LimitEnforcer,
    now_s: float,
    state: EliminatorState,
    limits: ContentionThresholds,
    jobs: dict[int, list[int]],
) -> EliminatorState:
    """One turn of an agent: threads placed, time passes, counters read, decided, carried out."""
    resource_controller.refresh(jobs)
    node.machine.tell(advance=2)
    rates = resource_controller.sample(now_s)
    cpu = tuple(CpuJob(j, len(tids), rates.jobs.get(j) if rates else None) for j, tids in sorted(jobs.items()))
    sample = ContentionSample(
        cpu,
        (GpuJob(900, 0.9),),
        rates.node if rates else None,
        max(rates.domains.values(), default=0.0) if rates else None,
        complete=rates.complete if rates else False,
    )
    decision = decide_limits(sample, state, limits)
    assert resource_controller.carry_out(decision.actions, jobs) == ()
    return decision.state


def test_a_whole_story_on_two_sockets(node: Node) -> None:
    """A GPU job at 20 GB/s, a calm CPU job, a loud one on both sockets: throttled within two samples, then released."""
    machine, resource_controller = node.machine, node.resource_controller()
    machine.run({1: {0: 20 * GB}, 7: {0: 5 * GB}, 8: {0: 70 * GB, 1: 30 * GB}, 9: {1: 40 * GB}})
    limits = ContentionThresholds(mba_steps=(50, 20, 10), node_bytes_per_s=200 * GB)
    jobs = {12: [7], 13: [8, 9]}
    state = _step(node, resource_controller, 0.0, EliminatorState(), limits, jobs)
    for turn in (1, 2):
        assert "soda-13" not in machine.look()
        state = _step(node, resource_controller, 2.0 * turn, state, limits, jobs)
    assert machine.look()["soda-13"]["mb"] == [50, 50]
    assert machine.look()["soda-13"]["tasks"] == [8, 9]
    assert machine.look()["mon_groups/soda-12"]["tasks"] == [7]
    machine.run({8: {0: 5 * GB}, 9: {}})
    for turn in range(3, 9):
        state = _step(node, resource_controller, 2.0 * turn, state, limits, jobs)
    assert sorted(machine.look()) == ["", "mon_groups/soda-12", "mon_groups/soda-13"]
    machine.tell(end=[7, 8, 9])
    _step(node, resource_controller, 20.0, state, limits, {})
    assert sorted(machine.look()) == [""]
    assert (node.recorded(), node.faults) == ([], [])
