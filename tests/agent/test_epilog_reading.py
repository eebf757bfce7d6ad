"""What the epilog read of a job's cgroup itself counts once, whatever the agent reads after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_soda.wire.spool import Spool
from tests.agent.bench import CLOSE, JOB, OPEN, Bench
from tests.agent.test_cpu import Kernel

VERSIONS = [("cgroup/v1", "slurm_n1"), ("cgroup/v2", "slurmstepd.scope")]


class Node:
    """A node with one job and its agent."""

    def __init__(self, path: Path, version: str, top: str) -> None:
        self.kernel = Kernel(path / "cgroup", version, top)
        self.bench = Bench(path, 1)
        self.spool = Spool(self.bench.config.spool)
        self.agent = self.bench.agent()

    def open(self) -> None:
        assert not self.agent.receive_event(line(OPEN))
        self.kernel.work(JOB, 3.5)
        self.sample(1005.0)

    def sample(self, now_s: float) -> None:
        self.bench.now_s = now_s
        self.agent.sample()

    def cpu_s(self) -> float:
        """CPU seconds as the controller is told."""
        [usage] = self.agent._parts.run_records.news().usage
        return usage.cpu_s


def line(event: dict[str, object]) -> bytes:
    return json.dumps(event).encode() + b"\n"


READ = {**CLOSE, "cpu_s": 5.0, "memory_mib": 7.0, "cpu_source": "cgroup/v1"}


@pytest.fixture(params=VERSIONS, ids=[version for version, _ in VERSIONS])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, *request.param)


@pytest.mark.parametrize("through", ["socket", "spool"])
@pytest.mark.parametrize("gone", [False, True], ids=["cgroup there", "cgroup gone"])
def test_it_counts_once(node: Node, through: str, gone: bool) -> None:
    node.open()
    node.kernel.work(JOB, 1.5)
    if through == "socket":
        assert not node.agent.receive_event(line(READ))
    else:
        node.spool.write(f"{JOB}.1000.close", line(READ))
    if gone:
        node.kernel.end(JOB)
    node.sample(1015.0)
    assert node.cpu_s() == pytest.approx(5.0)


def test_an_agent_that_starts_later_takes_it_from_the_spool(node: Node) -> None:
    node.open()
    node.kernel.work(JOB, 1.5)
    node.kernel.end(JOB)
    node.spool.write(f"{JOB}.1000.close", line(READ))
    for _ in range(2):
        node.agent = node.bench.agent()
        node.sample(1015.0)
        assert node.cpu_s() == pytest.approx(5.0)


def test_a_run_that_counted_as_lost_takes_it_at_once(node: Node) -> None:
    node.open()
    node.kernel.end(JOB)
    node.sample(1005.0 + node.bench.config.lost_after_s + 1)
    assert not node.agent.receive_event(line(READ))
    assert not node.agent.receive_event(line(READ))
    assert node.cpu_s() == pytest.approx(5.0)
