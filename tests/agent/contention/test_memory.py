"""The agent's part for memory bandwidth: jobs and threads as an agent sees them, resctrl by the mounted stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.contention.memory_controller import (
    MBA_RETRY_AFTER_S,
    MEAN_OVER,
    RECORD,
    MemoryBandwidthController,
)
from slurm_soda.agent.contention.resctrl import Resctrl, ResctrlError, ResctrlGroup
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.settings.memory import MemorySettings
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.records import JobOpened

from .conftest import Machine

GB = 1e9
GPU_JOB, CALM, LOUD = 900, 12, 13
WANTS = {7: {0: 5 * GB}, 8: {0: 90 * GB, 1: 30 * GB}, 9: {1: 40 * GB}}
QUIET = {8: {0: 5 * GB}, 9: {}}
THREADS = {CALM: [7], LOUD: [8, 9]}


@dataclass
class Cores:
    """Cores of jobs, by what was asked of them."""

    now: dict[int, int] = field(default_factory=dict)

    def limit(self, job_id: int, cores: int) -> None:
        self.now[job_id] = cores

    def restore(self, job_id: int) -> None:
        self.now.pop(job_id, None)


@dataclass
class Node:
    """A node of two sockets of 100 GB/s: its jobs in Slurm's cgroups, its agent's controller, and time."""

    machine: Machine
    path: Path
    cores: Cores = field(default_factory=Cores)
    now_s: float = 1000.0
    util_ratio: float = 0.9
    faults: list[str] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    """Cores that somebody else limits jobs to."""
    left_out: set[int] = field(default_factory=set)
    """Jobs that are not in scope."""

    def resource_controller(
        self, *, resctrl: Path | None = None, enabled: bool = True, **settings: Any
    ) -> MemoryBandwidthController:
        """An agent's controller after its start."""
        (self.path / "cgroup/cpuacct/slurm_n1").mkdir(parents=True, exist_ok=True)
        where = str(resctrl or self.machine.mount)
        chosen = replace(MemorySettings(enabled=enabled, resctrl=where, node_bandwidth_gb=200.0), **settings)
        members = JobProcesses(str(self.path / "cgroup"))
        resource_controller = MemoryBandwidthController(
            chosen, self.path / "state", members, self.cores, lambda job_id: self.held.get(job_id, 0)
        )
        self.faults += resource_controller.recover(self.now_s)
        return resource_controller

    def turn(self, resource_controller: MemoryBandwidthController, jobs: Iterable[int], later_s: float = 2.0) -> None:
        self.machine.tell(advance=later_s)
        self.now_s += later_s
        gpus = {0: GpuReading(self.util_ratio, 1024.0)}
        self.faults += resource_controller.turn(
            NodeSample(self.now_s, [self.run(job_id) for job_id in jobs], gpus, unix_s=0.0)
        )

    def run(self, job_id: int) -> NodeRun:
        """A job as the agent's books have it, with its threads where Slurm puts them."""
        group = self.path / f"cgroup/freezer/slurm_n1/uid_2001/job_{job_id}/step_batch"
        group.mkdir(parents=True, exist_ok=True)
        (group / "tasks").write_text("".join(f"{thread}\n" for thread in THREADS.get(job_id, ())))
        gpus = (0,) if job_id == GPU_JOB else ()
        opened = JobOpened(job_id, 0, "n1", 2001, "alice", "main", 900.0, gpus, 8)
        return NodeRun(RunKey(job_id, 900), opened, left_out=job_id in self.left_out)

    def groups(self) -> list[str]:
        return sorted(filter(None, self.machine.look()))


ALL = (GPU_JOB, CALM, LOUD)


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Node:
    machine.run({1: {0: 20 * GB}, **WANTS})
    return Node(machine, tmp_path)


def test_the_nodes_bandwidth_is_told_while_it_is_measured(node: Node) -> None:
    """More than the 150 GB/s (of 200) from which CPU jobs are held back; later 30."""
    resource_controller = node.resource_controller()
    assert resource_controller.bandwidth() is None
    node.turn(resource_controller, ALL)
    assert resource_controller.bandwidth() is None, "two readings make a rate"
    node.turn(resource_controller, ALL)
    told = resource_controller.bandwidth()
    assert told is not None
    assert told.used_gb_s > 150.0
    assert (told.contended_gb_s, told.free_gb_s) == (150.0, 0.0)
    node.machine.run(QUIET)
    for _ in range(MEAN_OVER):
        node.turn(resource_controller, ALL)
    told = resource_controller.bandwidth()
    assert told is not None
    assert told.free_gb_s == pytest.approx(120.0)
    node.turn(resource_controller, (CALM,))
    assert resource_controller.bandwidth() is None, "without GPU jobs nothing is measured"


def test_a_bandwidth_that_nobody_knows_is_not_told(node: Node) -> None:
    resource_controller = node.resource_controller(node_bandwidth_gb=0.0)
    node.machine.run({1: {0: 5 * GB}, 7: {0: 1 * GB}, 8: {}, 9: {}})
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert resource_controller.bandwidth() is None, "less than 30 GB/s is no node's bandwidth"
    node.machine.run({1: {0: 20 * GB}, **WANTS})
    for _ in range(2):
        node.turn(resource_controller, ALL)
    told = resource_controller.bandwidth()
    assert told is not None
    assert told.contended_gb_s > 0.75 * 150.0, "of the highest that was seen"


def test_throttled_within_two_samples_released_below_and_all_groups_gone(node: Node) -> None:
    resource_controller = node.resource_controller()
    assert resource_controller.interval_s == float("inf")
    node.turn(resource_controller, ALL)
    assert resource_controller.interval_s == 2.0
    for _ in range(2):
        assert f"soda-{LOUD}" not in node.groups()
        node.turn(resource_controller, ALL)
    assert node.machine.look()[f"soda-{LOUD}"] == {"tasks": [8, 9], "mb": [60, 60], "l3": [0xFFF, 0xFFF]}
    assert node.machine.look()[f"mon_groups/soda-{CALM}"]["tasks"] == [7]
    assert resource_controller.counts() == {"jobs_with_less_memory_bandwidth": 1}
    node.machine.run(QUIET)
    for _ in range(6):
        node.turn(resource_controller, ALL)
    assert node.groups() == [f"mon_groups/soda-{CALM}", f"mon_groups/soda-{LOUD}"]
    assert resource_controller.counts() == {"jobs_with_less_memory_bandwidth": 0}
    node.turn(resource_controller, (GPU_JOB, CALM))
    assert node.groups() == [f"mon_groups/soda-{CALM}"]
    node.turn(resource_controller, (CALM,))
    assert node.groups() == []
    assert (node.faults, resource_controller.interval_s) == ([], float("inf"))


@pytest.mark.parametrize("stopped", [False, True], ids=["the GPU job ends", "another agent, that is not to limit"])
def test_a_group_that_will_not_go_at_once_goes_later(
    node: Node, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" in node.groups()

    def refuse(self: Resctrl, group: ResctrlGroup) -> None:
        raise ResctrlError(f"group {group.path} cannot be removed: device or resource busy")

    monkeypatch.setattr(Resctrl, "remove", refuse)
    if stopped:
        resource_controller = node.resource_controller(enabled=False)
    node.turn(resource_controller, (CALM, LOUD))
    assert f"soda-{LOUD}" in node.groups()
    monkeypatch.undo()
    node.turn(resource_controller, (CALM, LOUD))
    assert node.groups() == []
    assert {fault.rpartition(": ")[2] for fault in node.faults} == {"device or resource busy; tried again later"}
    before = node.machine.log()
    node.turn(resource_controller, (CALM, LOUD))
    assert node.machine.log() == before


def test_nobody_is_held_back_beside_a_job_that_is_not_in_scope(node: Node) -> None:
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" in node.groups()
    node.left_out = {CALM}
    for _ in range(3):
        node.turn(resource_controller, ALL)
        assert node.groups() == []
    node.left_out = set()
    for _ in range(4):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" in node.groups()
    assert node.faults == []


def test_without_a_gpu_job_or_without_cpu_jobs_nothing_is_made(node: Node) -> None:
    resource_controller = node.resource_controller()
    for jobs in ((CALM, LOUD), (GPU_JOB,), ()):
        for _ in range(3):
            node.turn(resource_controller, jobs)
    assert node.machine.log() == []


def test_the_gpu_job_ends_and_the_throttled_job_is_free_at_once(node: Node) -> None:
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" in node.groups()
    node.turn(resource_controller, (CALM, LOUD))
    assert node.groups() == []
    for _ in range(2):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" not in node.groups(), "counting starts anew with the next GPU job"


def test_turns_that_come_too_early_are_no_samples(node: Node) -> None:
    resource_controller = node.resource_controller()
    for _ in range(12):
        node.turn(resource_controller, ALL, later_s=0.3)
    assert f"soda-{LOUD}" not in node.groups()


@pytest.mark.parametrize("enabled", [True, False])
def test_what_a_killed_agent_left_is_taken_back_by_the_next(node: Node, enabled: bool) -> None:
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" in node.groups()
    node.resource_controller(enabled=enabled)
    assert node.groups() == []
    assert json.loads((node.path / "state" / RECORD).read_text())["groups"] == []


def test_an_agent_that_stops_in_order_leaves_nothing(node: Node) -> None:
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    resource_controller.close()
    assert node.groups() == []


def test_the_nodes_bandwidth_is_remembered_over_a_restart(node: Node) -> None:
    resource_controller = node.resource_controller(node_bandwidth_gb=0.0)
    for _ in range(2):
        node.turn(resource_controller, ALL)
    assert f"soda-{LOUD}" not in node.groups()
    node.machine.run(QUIET)
    fresh = node.resource_controller(node_bandwidth_gb=0.0)
    for _ in range(4):
        node.turn(fresh, ALL)
    assert f"soda-{LOUD}" not in node.groups(), "30 GB/s are little beside the 170 that the agent before saw"


def test_without_mba_the_job_keeps_half_its_cores(node: Node) -> None:
    node.machine.tell(reset={"mba": False})
    node.machine.run({1: {0: 20 * GB}, **WANTS})
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {LOUD: 4}
    assert resource_controller.counts() == {"jobs_with_less_memory_bandwidth": 1}
    assert node.faults == ["memory: no memory-bandwidth allocation (MBA): the cores of CPU jobs are halved instead"]
    node.turn(resource_controller, (GPU_JOB, CALM))
    assert node.cores.now == {}


def test_a_node_without_control_groups_halves_cores_and_tries_again_later(node: Node) -> None:
    for name in ("site1", "site2", "site3"):
        (node.machine.mount / name).mkdir()
    resource_controller = node.resource_controller()
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {}
    for _ in range(2):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {LOUD: 4}
    assert len(node.faults) == 1
    (node.machine.mount / "site1").rmdir()
    node.turn(resource_controller, (GPU_JOB,), later_s=MBA_RETRY_AFTER_S)
    for _ in range(3):
        node.turn(resource_controller, ALL)
    assert (f"soda-{LOUD}" in node.groups(), node.cores.now) == (True, {})


def test_without_resctrl_a_fall_of_utilisation_halves_cores(node: Node, tmp_path: Path) -> None:
    resource_controller = node.resource_controller(resctrl=tmp_path / "absent")
    for _ in range(32):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {}
    node.util_ratio = 0.7
    for _ in range(2):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {CALM: 4}, "all have eight cores and none has a counter: the first"
    assert len(node.faults) == 1
    assert "is no resctrl mount" in node.faults[0]
    assert node.faults[0].endswith("the utilisation of GPUs is watched instead")
    resource_controller.close()
    assert node.cores.now == {}


def test_a_gpu_job_that_lost_cores_to_tuning_is_no_sign_of_contention(node: Node, tmp_path: Path) -> None:
    resource_controller = node.resource_controller(resctrl=tmp_path / "absent")
    for _ in range(32):
        node.turn(resource_controller, ALL)
    node.held[GPU_JOB], node.util_ratio = 2, 0.5
    for _ in range(32):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {}
    node.util_ratio = 0.3
    for _ in range(2):
        node.turn(resource_controller, ALL)
    assert node.cores.now == {CALM: 4}


def test_without_resctrl_and_without_watching_the_controller_is_idle_and_says_so_once(
    node: Node, tmp_path: Path
) -> None:
    resource_controller = node.resource_controller(resctrl=tmp_path / "absent", watch_utilisation=False)
    node.util_ratio = 0.9
    for _ in range(40):
        node.turn(resource_controller, ALL)
        node.util_ratio = 0.1
    assert node.cores.now == {}
    assert resource_controller.interval_s == float("inf")
    assert len(node.faults) == 1
    assert node.faults[0].endswith("nothing is limited")


def test_nothing_is_done_unless_the_site_says_so(node: Node, tmp_path: Path) -> None:
    resource_controller = node.resource_controller(enabled=False)
    for _ in range(4):
        node.turn(resource_controller, ALL)
    assert (node.machine.log(), node.faults, resource_controller.interval_s) == ([], [], float("inf"))
    assert not (tmp_path / "state").exists()


def test_a_controller_that_was_not_started_does_nothing(node: Node) -> None:
    settings = MemorySettings(enabled=True, resctrl=str(node.machine.mount), node_bandwidth_gb=200.0)
    resource_controller = MemoryBandwidthController(
        settings, node.path / "state", JobProcesses(str(node.path / "cgroup")), node.cores
    )
    for _ in range(4):
        node.turn(resource_controller, ALL)
    assert node.machine.log() == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"over_ratio": 1.5}, "memory.over_ratio 1.5"),
        ({"release_ratio": 0.8}, "memory.release_ratio is 0.8"),
        ({"node_bandwidth_gb": -1.0}, "memory.node_bandwidth_gb is -1"),
        ({"socket_bandwidth_gb": float("nan")}, "memory.socket_bandwidth_gb is nan"),
        ({"resctrl": "here"}, "memory.resctrl is 'here'"),
    ],
)
def test_mistakes_in_the_settings(values: dict[str, object], said: str) -> None:
    with pytest.raises(SodaError) as caught:
        MemorySettings(**values)  # type: ignore[arg-type]
    assert said in str(caught.value)
