"""The whole agent as a process of its own, with the mounted stand-in: started, killed, started again, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.agent.contention.memory_controller import RECORD
from slurm_soda.wire.event_delivery import deliver_event

from .conftest import Machine

GB = 1e9
GPU_JOB, LOUD = 1_700_000_900, 1_700_000_013
WITHIN_S = 30.0


@dataclass
class Site:
    """A node's directories, its agents one after another, and its memory, whose time passes while a test waits."""

    machine: Machine
    path: Path
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    advanced_s: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        argv = [sys.executable, "-m", "slurm_soda.agent.main", "--config", str(self.path / "agent.toml")]
        log = (self.path / "agent.log").open("ab")
        self.agents.append(subprocess.Popen(argv, stdout=log, stderr=log))

    def end(self, number: signal.Signals) -> None:
        self.agents[-1].send_signal(number)
        self.agents[-1].wait(WITHIN_S)

    def tell(self, kind: str, job_id: int, gpus: list[int] | None = None) -> None:
        """What prolog and epilog tell the agent, through the spool where it is away."""
        event: dict[str, object] = {"kind": kind, "job_id": job_id, "start_s": 1000, "restart": 0, "node": "n1"}
        if kind == "open":
            event |= {"uid": 2001, "user": "alice", "partition": "main", "gpus": gpus or [], "cpus_per_node": "8"}
            event |= {"node_names": "n1", "env": {}}
        deliver_event({**event, "at_s": time.time()}, str(self.path / "sock"), str(self.path / "spool"))

    def until(self, condition: Callable[[dict[str, dict[str, list[int]]]], bool], what: str) -> None:
        """Let time pass on the machine until its groups are as wanted."""
        deadline_s = time.monotonic() + WITHIN_S
        while not condition(self.machine.look()):
            if time.monotonic() > deadline_s:
                pytest.fail(f"not within {WITHIN_S:.0f} s: {what}; {(self.path / 'agent.log').read_text()}")
            now_s = time.monotonic()
            self.machine.tell(advance=now_s - self.advanced_s)
            self.advanced_s = now_s
            time.sleep(0.02)


@pytest.fixture
def site(machine: Machine, tmp_path: Path) -> Iterator[Site]:
    group = tmp_path / f"cgroup/freezer/slurm_n1/uid_2001/job_{LOUD}/step_batch"
    group.mkdir(parents=True)
    (group / "tasks").write_text("8\n9\n")
    (tmp_path / "cgroup/cpuacct/slurm_n1").mkdir(parents=True)
    (tmp_path / "agent.toml").write_text(
        f'controller = "http://127.0.0.1:9"\nnode = "n1"\nsocket = "{tmp_path}/sock"\nspool = "{tmp_path}/spool"\n'
        f'cgroup_root = "{tmp_path}/cgroup"\nstate = "{tmp_path}/state"\ninterval_s = 0.2\n'
        f'[memory]\nenabled = true\nresctrl = "{machine.mount}"\nnode_bandwidth_gb = 200\nsample_s = 0.3\n'
    )
    machine.run({1: {0: 20 * GB}, 8: {0: 80 * GB, 1: 60 * GB}, 9: {1: 40 * GB}})
    site = Site(machine, tmp_path)
    yield site
    for agent in site.agents:
        if agent.poll() is None:
            agent.kill()
            agent.wait()


def _throttled(groups: dict[str, dict[str, list[int]]]) -> bool:
    group = groups.get(f"soda-{LOUD}")
    return group is not None and group["tasks"] == [8, 9] and max(group["mb"]) < 100


def test_throttled_also_by_the_agent_after_one_that_was_killed_and_nothing_is_left(site: Site) -> None:
    site.start()
    site.until(lambda _: (site.path / "sock").exists(), "the agent answers")
    site.tell("open", GPU_JOB, gpus=[0])
    site.tell("open", LOUD)
    site.until(_throttled, "the CPU job is throttled")
    site.end(signal.SIGKILL)
    assert _throttled(site.machine.look())
    before = len(site.machine.log())
    site.start()
    site.until(_throttled, "the next agent throttles it again")
    site.until(lambda _: f"rmdir soda-{LOUD}" in site.machine.log()[before:], "it took back what the first one left")
    site.tell("close", GPU_JOB)
    site.until(lambda groups: sorted(groups) == [""], "all groups are gone with the GPU job")
    site.end(signal.SIGTERM)
    assert site.agents[-1].returncode == 0


def test_the_job_ends_while_no_agent_is_there(site: Site) -> None:
    site.tell("open", GPU_JOB, gpus=[0])
    site.tell("open", LOUD)
    site.start()
    site.until(_throttled, "the CPU job is throttled")
    site.end(signal.SIGKILL)
    site.tell("close", LOUD)
    site.machine.tell(end=[8, 9])
    site.start()
    site.until(lambda groups: sorted(groups) == [""], "the group of the ended job is gone")


def test_an_agent_that_is_stopped_gives_back(site: Site) -> None:
    site.tell("open", GPU_JOB, gpus=[0])
    site.tell("open", LOUD)
    site.start()
    site.until(_throttled, "the CPU job is throttled")
    site.end(signal.SIGTERM)
    assert sorted(site.machine.look()) == [""]
    assert (site.path / "state" / RECORD).stat().st_uid == os.getuid()
