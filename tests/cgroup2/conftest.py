"""One machine with cgroup v2 for all of these tests, emulated by QEMU; it goes when the session ends, however it ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.virtual_cluster import VirtualCluster

GROUPS = "/sys/fs/cgroup/system.slice"


@dataclass(frozen=True)
class Site:
    """alice's jobs on n1 of the machine."""

    cluster: VirtualCluster

    def root(self, script: str, node: str = "n1") -> str:
        return self.cluster.exec("root", ("sh", "-c", script), node=node).check().stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/tmp/out.%j", "--mem=200", *options)
        return int(self.cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def output(self, job: int) -> str:
        return self.cluster.exec("root", ("cat", f"/tmp/out.{job}")).stdout

    def state(self, job: int) -> str:
        argv = ("squeue", "--noheader", "--states=all", "--format=%T %r", f"--jobs={job}")
        return self.cluster.exec("root", argv).stdout.strip()

    def wait_state(self, job: int, state: str) -> None:
        self.until(lambda: self.state(job).startswith(state), f"job {job} is {state}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.wait_until(condition, what)

    def groups(self, job: int, file: str) -> dict[str, str]:
        """A file of the job's group and of each below it that says anything, by their paths below the job's."""
        script = f"cd {GROUPS}/*slurmstepd.scope/job_{job} && grep -r '' --include={file}"
        found = self.cluster.exec("root", ("sh", "-c", script))
        lines = (line.partition(f"{file}:") for line in found.stdout.splitlines())
        return {path.strip("./"): text for path, _, text in lines if text}

    def configure(self, text: str) -> None:
        """Another agent.toml on n1, and an agent that has read it."""
        self.cluster.stop("soda-agent", node="n1")
        self.cluster.copy_in(text.encode(), "/etc/slurm-soda/agent.toml")
        self.start_agent()

    def start_agent(self) -> None:
        """Until it listens: emulated, the hooks' way without an agent takes longer than the hooks may take."""
        self.cluster.start("soda-agent", node="n1")
        self.until(lambda: "agent.sock" in self.root("ls /run/slurm-soda-agent"), "the agent listens")

    def clear(self) -> None:
        self.cluster.exec("root", ("scancel", "--user=alice"))
        self.until(lambda: not self.root("squeue --noheader"), "no job is left")
        self.until(lambda: set(self.cluster.node_states().values()) == {"idle"}, "both nodes are idle")


@pytest.fixture(scope="session")
def cluster() -> Iterator[VirtualCluster]:
    try:
        client, image = VirtualCluster.image(_say)
    except ClusterError as error:
        pytest.skip(f"no emulated machine with cgroup v2 can be made here: {error}")
    began_s = time.monotonic()
    cluster = VirtualCluster.boot(f"cgroup2-{secrets.token_hex(3)}", client, image, _say)
    try:
        _say(f"both nodes are idle, {time.monotonic() - began_s:.0f} s after the start")
        yield cluster
    finally:
        log = Path("build/cgroup2-console.log")
        log.parent.mkdir(exist_ok=True)
        log.write_text(cluster.console())
        cluster.down()


def _say(line: str) -> None:
    print(line, flush=True)


@pytest.fixture
def site(cluster: VirtualCluster) -> Iterator[Site]:
    site = Site(cluster)
    site.start_agent()
    yield site
    site.clear()
