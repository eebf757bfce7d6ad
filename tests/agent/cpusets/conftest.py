"""A mounted stand-in for cpuset groups, one process a test session, a fresh machine of 28 CPUs for each test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.wire.records import JobOpened

SERVER = Path(__file__).parents[3] / "emulation" / "cpuset" / "serve.py"
JOB = 7


@dataclass(frozen=True)
class Machine:
    """The stand-in: its mount, and what no file shows."""

    mount: Path
    server: subprocess.Popen[str]

    def tell(self, **command: Any) -> Any:
        """One command of ``serve.take``."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(command) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    point = tmp_path_factory.mktemp("cpuset")
    argv = [sys.executable, str(SERVER), "private", str(point), '{"version": 1, "cpus": "0-27"}']
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    said = json.loads(process.stdout.readline() or '{"refused": "the stand-in did not start"}')
    if "refused" in said:
        process.wait(10)
        pytest.skip(f"the cpuset stand-in needs /dev/fuse and the right to mount: {said['refused']}")
    yield Machine(Path(said["mount"]), process)
    process.stdin.close()
    process.wait(10)


@dataclass
class Jobs:
    """A node with jobs in groups, and the sets over them."""

    machine: Machine
    version: int
    path: Path

    def __post_init__(self) -> None:
        self.machine.tell(reset={"version": self.version, "cpus": "0-27"})
        self.path.mkdir()
        self.root = str(self.machine.mount)
        if self.version == 1:
            (self.path / "root/cpuacct/slurm_n1").mkdir(parents=True)
            (self.path / "root/cpuset").symlink_to(self.machine.mount)
            self.root = str(self.path / "root")
        self.runs: list[NodeRun] = []
        self.sets = self.agent()

    def agent(self) -> JobCoreLimits:
        """Sets over what is on record."""
        return JobCoreLimits(self.root, self.path / "state/cores.json", lambda opened: (), lambda gpus: frozenset())

    def top(self, job_id: int = JOB) -> str:
        return "system.slice/slurmstepd.scope" if self.version == 2 else "slurm_n1/uid_1000"

    def add(self, groups: Mapping[str, str], cpus: int = 20, job_id: int = JOB, start_s: int = 1) -> None:
        """A job with these groups, by their paths below its own."""
        self.write(groups, job_id)
        opened = JobOpened(job_id, 0, "n1", 1000, "alice", "gpu", 1.0, (0,), cpus)
        self.runs = [run for run in self.runs if run.key.job_id != job_id]
        self.runs.append(NodeRun(RunKey(job_id, start_s), opened))
        self.sets.observe(self.runs)

    def write(self, groups: Mapping[str, str], job_id: int = JOB) -> None:
        """As slurmd makes them."""
        base = f"{self.top()}/job_{job_id}"
        self.machine.tell(groups={f"{base}/{name}".rstrip("/"): cpus for name, cpus in groups.items()})

    def has(self, job_id: int = JOB) -> dict[str, str]:
        """What every group of a job has."""
        base = f"{self.top()}/job_{job_id}"
        found = self.machine.tell(look=None)["groups"]
        return {k.removeprefix(base).strip("/"): v for k, v in found.items() if k == base or k.startswith(base + "/")}

    def log(self) -> list[str]:
        found: list[str] = self.machine.tell(look=None)["log"]
        return found


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def jobs(server: Machine, request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    return Jobs(server, request.param, tmp_path / "node")
