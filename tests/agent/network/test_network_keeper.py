"""The link shared out on a real interface with the kernel's tc, nft and net_cls, and everything taken back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.wire.records import JobOpened
from tests.agent.network.node import CPU_JOB, SETTINGS, WIDE, Node, Table

from .conftest import Namespace


def test_shared_out_while_both_kinds_are_here_and_nothing_left_after(node: Node, sleepers: list[int]) -> None:
    node.pids.update({WIDE: {sleepers[0]}, CPU_JOB: {sleepers[1]}})
    resource_controller = node.resource_controller()
    assert resource_controller.interval_s == float("inf")
    assert node.turn(resource_controller, WIDE) == ()
    assert node.untouched()
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert resource_controller.interval_s == 2.0
    assert node.is_shared_out()
    assert resource_controller.counts() == {"jobs_in_network_classes": 2}
    assert node.groups.pids("gpu") == [sleepers[0]]
    assert node.groups.pids("cpu") == [sleepers[1]]
    assert (node.groups.top() / "cpu/net_cls.classid").read_text() == f"{0x50DA0020}\n"
    assert f'oifname "eth0" meta cgroup {0x50DA0020} meta priority set 50da:20' in node.namespace.rules()
    assert node.turn(resource_controller, CPU_JOB) == ()
    assert node.untouched()
    assert resource_controller.counts() == {"jobs_in_network_classes": 0}
    assert resource_controller.interval_s == float("inf")
    assert "slurm-soda" not in Path(f"/proc/{sleepers[1]}/cgroup").read_text()


def test_nothing_is_shared_out_beside_a_job_that_is_not_in_scope(node: Node, sleepers: list[int]) -> None:
    node.pids.update({WIDE: {sleepers[0]}, CPU_JOB: {sleepers[1]}})
    resource_controller = node.resource_controller()
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.is_shared_out()
    node.left_out = {CPU_JOB}
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.untouched()


SENDER = """
import os, socket, sys
group, uid = sys.argv[1:]
if group:
    open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
os.setuid(int(uid))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    sender.sendto(bytes(1000), ("10.77.0.2", 9))
print("sent", flush=True)
sys.stdin.readline()
"""
FRAMES_BYTES = 20 * 1042


@dataclass
class Senders:
    """Processes that send 20 datagrams when they are told to."""

    namespace: Namespace
    made: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, group: str = "", uid: int = 2001) -> int:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", SENDER, group, str(uid)]
        process = self.namespace.run(lambda: subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True))
        self.made.append(process)
        self._hear(process, "ready")
        return process.pid

    def send(self) -> None:
        for process in self.made:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            self._hear(process, "sent")

    def sent_bytes(self) -> dict[str, int]:
        """By class."""
        shown = self.namespace.do("tc", "-s", "class", "show", "dev", "eth0")
        return {name: int(count) for name, count in re.findall(r"class htb 50da:(\w+) .*\n Sent (\d+) bytes", shown)}

    @staticmethod
    def _hear(process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == word


@pytest.fixture
def senders(namespace: Namespace) -> Iterator[Senders]:
    namespace.do("ip", "addr", "add", "10.77.0.1/24", "dev", "eth0")
    namespace.do("ip", "link", "set", "peer0", "up")
    namespace.do("ip", "neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:02", "dev", "eth0")
    senders = Senders(namespace)
    yield senders
    for process in senders.made:
        process.kill()
        process.communicate()


def test_packets_go_to_their_jobs_class_and_roots_to_the_one_for_others(node: Node, senders: Senders) -> None:
    """Sockets that were made before the job's processes were sorted in are no exception."""
    node.pids.update({WIDE: {senders.start()}, CPU_JOB: {senders.start(), senders.start(), senders.start(uid=0)}})
    senders.start()
    node.turn(node.resource_controller(), WIDE, CPU_JOB)
    senders.send()
    sent = senders.sent_bytes()
    assert (sent["10"], sent["20"]) == (FRAMES_BYTES, 2 * FRAMES_BYTES)
    assert 2 * FRAMES_BYTES <= sent["30"] < 3 * FRAMES_BYTES


def test_the_classes_have_the_papers_shares(node: Node) -> None:
    node.turn(node.resource_controller(), WIDE, CPU_JOB)
    shown = {line.split()[2]: line for line in node.namespace.classes()}
    assert "prio 1 rate 675Mbit ceil 1Gbit" in shown["50da:10"]
    assert "prio 2 rate 250Mbit ceil 1Gbit" in shown["50da:20"]
    assert "prio 0 rate 75Mbit ceil 1Gbit" in shown["50da:30"]


def test_what_cpu_jobs_receive_is_limited_while_the_link_is_full(node: Node) -> None:
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    assert "drop" not in node.namespace.rules()
    for megabytes in (240, 480):
        assert "drop" not in node.namespace.rules()
        node.receive(megabytes)
        assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    rules = node.namespace.rules()
    assert f'iifname "eth0" meta cgroup {0x50DA0020} goto cpu_jobs' in rules
    for _ in range(5):
        assert "drop" in node.namespace.rules()
        node.turn(resource_controller, WIDE, CPU_JOB)
    assert "drop" not in node.namespace.rules()
    node.turn(resource_controller)
    assert node.untouched()


@pytest.mark.parametrize(
    ("borrow", "receive", "limited"), [(False, True, True), (True, False, False), (False, False, False)]
)
def test_receiving_without_borrowing_and_without_limit(node: Node, borrow: bool, receive: bool, limited: bool) -> None:
    settings = replace(SETTINGS, cpu_may_borrow=borrow, limit_received=receive)
    resource_controller = node.resource_controller(settings)
    node.turn(resource_controller, WIDE, CPU_JOB)
    for megabytes in (240, 480, 720):
        node.receive(megabytes)
        node.turn(resource_controller, WIDE, CPU_JOB)
    assert ("drop" in node.namespace.rules()) == limited


def test_an_interface_without_a_queue_gets_one_from_the_kernel(node: Node) -> None:
    """HTB's queues are as long as the interface's, and a queue of no packet would be the end of all traffic."""
    node.namespace.do("ip", "link", "set", "eth0", "txqueuelen", "0")
    assert node.turn(node.resource_controller(), WIDE, CPU_JOB) == ()
    assert "qlen 1000" in node.namespace.do("ip", "link", "show", "dev", "eth0")


def test_a_fast_link_is_no_overflow(node: Node) -> None:
    node.turn(node.resource_controller(NetworkSettings(gpu_interface="eth0", link_mbit=400_000.0)), WIDE, CPU_JOB)
    shown = {line.split()[2]: line for line in node.namespace.classes()}
    assert "rate 400Gbit ceil 400Gbit" in shown["50da:1"]
    assert "rate 100Gbit ceil 400Gbit" in shown["50da:20"]


def test_new_processes_are_sorted_in_and_ended_ones_passed_over(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = {sleepers[0]}
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    gone = subprocess.Popen(["true"])
    gone.wait()
    node.pids[CPU_JOB] = {*sleepers, gone.pid}
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.groups.pids("cpu") == sorted(sleepers)


def test_processes_that_somebody_put_into_a_group_stay_there(node: Node, sleepers: list[int]) -> None:
    resource_controller = node.resource_controller()
    node.turn(resource_controller, WIDE, CPU_JOB)
    site = node.groups.mount / f"site-{node.groups.node}"
    site.mkdir()
    try:
        (site / "cgroup.procs").write_text(f"{sleepers[0]}\n")
        node.pids[CPU_JOB] = set(sleepers)
        assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
        assert node.groups.pids("cpu") == [sleepers[1]]
        assert (site / "cgroup.procs").read_text() == f"{sleepers[0]}\n"
    finally:
        (node.groups.mount / "cgroup.procs").write_text(f"{sleepers[0]}\n")
        site.rmdir()


@pytest.fixture
def unified(node: Node) -> Iterator[list[Path]]:
    """Two groups of the unified hierarchy, the GPU job's and the CPU job's."""
    places = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    root = next((place for place in places if (place / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no unified cgroup hierarchy is mounted here")
    prefix = "unified/" if root.name == "unified" else ""
    made = [root / f"soda-{node.groups.node}-{job_id}" for job_id in (WIDE, CPU_JOB)]
    try:
        for group in made:
            group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of the unified hierarchy can be made: {error}")
    node.unified.update({job_id: prefix + group.name for job_id, group in zip((WIDE, CPU_JOB), made, strict=True)})
    yield made
    for group in made:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        until_s = time.monotonic() + 10
        while "populated 1" in (group / "cgroup.events").read_text() and time.monotonic() < until_s:
            time.sleep(0.01)
        group.rmdir()


def test_jobs_with_groups_of_the_unified_hierarchy_are_named_by_path(
    node: Node, unified: list[Path], senders: Senders
) -> None:
    for group in unified:
        senders.start(str(group))
    senders.start(str(unified[1]), uid=0)
    resource_controller = node.resource_controller(replace(SETTINGS, cpu_may_borrow=False))
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    rules = node.namespace.rules()
    assert f'{unified[1].name}" meta priority set 50da:20' in rules
    assert f'{unified[0].name}" meta priority set 50da:10' in rules
    assert f'{unified[1].name}" goto cpu_jobs' in rules
    assert not node.groups.mount.exists()
    senders.send()
    sent = senders.sent_bytes()
    assert (sent["10"], sent["20"]) == (FRAMES_BYTES, FRAMES_BYTES)
    assert FRAMES_BYTES <= sent["30"] < 2 * FRAMES_BYTES
    del node.unified[CPU_JOB]
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert "50da:20" not in node.namespace.rules()
    node.turn(resource_controller)
    assert node.untouched()


def test_jobs_that_have_no_group_yet_on_cgroup_v2_need_no_net_cls(node: Node, unified: list[Path]) -> None:
    """Both prologs have just run: Slurm makes the groups with the first step."""
    paths = dict(node.unified)
    node.unified.update(dict.fromkeys(paths, ""))
    resource_controller = node.resource_controller()
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert node.is_shared_out()
    assert not node.groups.mount.exists()
    assert "meta cgroup" not in node.namespace.rules()
    node.unified.update(paths)
    assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    assert all(group.name in node.namespace.rules() for group in unified)
    node.turn(resource_controller)
    assert node.untouched()


def test_a_job_whose_group_ends_before_nft_looks_is_left_out(node: Node) -> None:
    node.unified[WIDE] = "gone/job_21"
    calls: list[str] = []
    resource_controller = node.resource_controller()
    lookup = Table.cgroup_v2

    def once(self: Table, job: JobOpened) -> str:
        calls.append("")
        return lookup(self, job) if len(calls) < 3 else ""

    Table.cgroup_v2 = once  # type: ignore[method-assign]
    try:
        assert node.turn(resource_controller, WIDE, CPU_JOB) == ()
    finally:
        Table.cgroup_v2 = lookup  # type: ignore[method-assign]
    assert node.is_shared_out()
    assert "socket" not in node.namespace.rules()
