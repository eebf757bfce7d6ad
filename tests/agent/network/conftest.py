"""A network namespace of its own for each test, with one interface; everything in it is real."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from slurm_soda.agent.network.net_cls import NetClsGroups
from slurm_soda.agent.network.shaper import NetworkError
from tests.agent.network.node import Node

CLONE_NEWNET = 0x40000000
PROGRAMS = ("ip", "tc", "nft")
T = TypeVar("T")


@dataclass
class Namespace:
    """A thread in a network namespace: what it runs sees the namespace's interfaces and rules only."""

    thread: ThreadPoolExecutor

    def run(self, work: Callable[[], T]) -> T:
        return self.thread.submit(work).result()

    def do(self, *argv: str) -> str:
        """A command's output."""
        return self.run(lambda: subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    def qdiscs(self, interface: str = "eth0") -> str:
        return self.do("tc", "qdisc", "show", "dev", interface).strip()

    def classes(self, interface: str = "eth0") -> list[str]:
        return sorted(self.do("tc", "class", "show", "dev", interface).splitlines())

    def rules(self) -> str:
        return self.do("nft", "list", "ruleset")


def _new_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)} (packages iproute2, nftables)")
    with ThreadPoolExecutor(1) as thread:
        namespace = Namespace(thread)
        try:
            namespace.run(_new_namespace)
            namespace.do("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
            namespace.do("ip", "link", "set", "eth0", "up")
            namespace.do("tc", "qdisc", "add", "dev", "peer0", "root", "htb")
            namespace.do("tc", "qdisc", "del", "dev", "peer0", "root")
            namespace.do("nft", "list", "ruleset")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespace with tc and nft here: {error}")
        yield namespace


@dataclass
class Groups:
    """net_cls on a mount of the test's own."""

    mount: Path
    node: str
    made: list[NetClsGroups] = field(default_factory=list)

    def __call__(self, node: str) -> NetClsGroups:
        return NetClsGroups(node, self.mount)

    def pids(self, name: str) -> list[int]:
        return [int(pid) for pid in (self.top() / name / "cgroup.procs").read_text().split()]

    def top(self) -> Path:
        return self.mount / f"slurm-soda-{self.node}"


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    """Skipped where the kernel has no net_cls, or the system has it mounted: tests make groups on their own mount only.

    One test at a time, in all processes that test: a second mount would be taken for the system's.
    """
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield from _groups(tmp_path)


def _groups(tmp_path: Path) -> Iterator[Groups]:
    if os.geteuid() != 0:
        pytest.skip("groups of net_cls are root's to make")
    if any(
        " - cgroup " in line and "net_cls" in line for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ):
        pytest.skip("net_cls is mounted by the system here")
    found = Groups(tmp_path / "net_cls", f"test{os.getpid()}")
    classes = found(found.node)
    try:
        classes.make()
    except NetworkError as error:
        pytest.skip(str(error))
    classes.remove()
    yield found
    classes.remove()


@pytest.fixture
def node(namespace: Namespace, groups: Groups, tmp_path: Path) -> Node:
    return Node(namespace, groups, tmp_path / "state")


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Two processes that do nothing."""
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    yield [process.pid for process in made]
    for process in made:
        process.kill()
        process.wait()
