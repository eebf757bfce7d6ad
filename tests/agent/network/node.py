"""A node with one interface, as the controller of its network meets it: everything but its jobs is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.network.network_controller import STATE_FILE, NetworkController, NetworkDependencies
from slurm_soda.agent.network.nft_rules import NftRules
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.wire.records import JobOpened

if TYPE_CHECKING:
    from .conftest import Groups, Namespace

WIDE, CPU_JOB = 21, 22
SETTINGS = NetworkSettings(gpu_interface="eth0", link_mbit=1000.0)
TREE = [
    "50da:1 root",
    "50da:10 parent 50da:2",
    "50da:2 parent 50da:1",
    "50da:20 parent 50da:1",
    "50da:30 parent 50da:2",
]


class Table(JobProcesses):
    """Processes of jobs, as the test says."""

    def __init__(self, pids: dict[int, set[int]], unified: dict[int, str]) -> None:
        super().__init__()
        self.pids, self.unified = pids, unified

    def processes(self, jobs: Sequence[JobOpened]) -> dict[int, frozenset[int]]:
        return {job.job_id: frozenset(self.pids.get(job.job_id, ())) for job in jobs}

    def has_cgroup_v2(self, node: str) -> bool:
        return bool(self.unified)

    def cgroup_v2(self, job: JobOpened) -> str:
        return self.unified.get(job.job_id, "")


class Counted(NftRules):
    """The kernel's table, but for what GPU jobs receive."""

    gpu_bytes = 0

    def gpu_received(self) -> int | None:
        """What the test says; nothing comes in here."""
        assert super().gpu_received() == 0
        return self.gpu_bytes


@dataclass
class Node:
    """A node with one interface, its agent's controller, and its jobs."""

    namespace: Namespace
    groups: Groups
    state: Path
    pids: dict[int, set[int]] = field(default_factory=dict)
    unified: dict[int, str] = field(default_factory=dict)
    now_s: float = 1000.0
    rules: Counted = field(default_factory=Counted)
    left_out: set[int] = field(default_factory=set)
    """Jobs that are not in scope."""

    def resource_controller(self, settings: NetworkSettings = SETTINGS) -> NetworkController:
        """An agent's controller after its start; it found nothing wrong."""
        ports = NetworkDependencies(
            Table(self.pids, self.unified), rules=self.rules, net_classes=self.groups, traffic=self.dev
        )
        self.receive(0)
        resource_controller = NetworkController(settings, self.state, ports)
        assert self.namespace.run(lambda: resource_controller.recover(self.now_s)) == ()
        return resource_controller

    def turn(self, resource_controller: NetworkController, *jobs: int, later_s: float = 2.0) -> tuple[str, ...]:
        self.now_s += later_s
        runs = [run_of(job_id, self.groups.node, wide=job_id == WIDE) for job_id in jobs]
        for run in runs:
            run.left_out = run.key.job_id in self.left_out
        return tuple(self.namespace.run(lambda: resource_controller.turn(NodeSample(self.now_s, runs, unix_s=0.0))))

    @property
    def dev(self) -> Path:
        return self.state.with_name("dev")

    def receive(self, megabytes: int) -> None:
        """So many have come in altogether, a tenth of them for GPU jobs."""
        self.dev.write_text(f"  eth0: {megabytes}000000 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n")
        self.rules.gpu_bytes = megabytes * 100_000

    def untouched(self) -> bool:
        """Nothing of ours is left anywhere."""
        clean = self.namespace.qdiscs().startswith("qdisc noqueue 0:") and "soda" not in self.namespace.rules()
        return clean and not self.groups.top().exists() and not (self.state / STATE_FILE).exists()

    def is_shared_out(self) -> bool:
        shown = self.namespace.classes()
        return len(shown) == len(TREE) and all(part in line for part, line in zip(TREE, shown, strict=True))


def run_of(job_id: int, node: str, *, wide: bool) -> NodeRun:
    gpus, nodes = ((0, 1), 2) if wide else ((), 1)
    opened = JobOpened(job_id, 0, node, 2001, "alice", "main", 900.0, gpus, 4, {}, nodes)
    return NodeRun(RunKey(job_id, 900), opened)
