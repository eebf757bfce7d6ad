"""The link shared out on a real interface with the kernel's tc, nft and net_cls, and everything taken back."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from slurm_soda.agent.events import RunKey
from slurm_soda.agent.keeper import Sample
from slurm_soda.agent.ledger import Run
from slurm_soda.agent.members import Members
from slurm_soda.agent.network.keeper import MARK, NetworkKeeper, Ports
from slurm_soda.agent.network.rules import Rules
from slurm_soda.agent.network.settings import NetworkSettings
from slurm_soda.wire.records import JobOpened

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


class Table(Members):
    """Processes of jobs, as the test says."""

    def __init__(self, pids: dict[int, set[int]], unified: dict[int, str]) -> None:
        super().__init__()
        self.pids, self.unified = pids, unified

    def processes(self, jobs: Sequence[JobOpened]) -> dict[int, frozenset[int]]:
        return {job.job_id: frozenset(self.pids.get(job.job_id, ())) for job in jobs}

    def cgroup_v2(self, job: JobOpened) -> str:
        return self.unified.get(job.job_id, "")


class Counted(Rules):
    """The kernel's table, but for what GPU jobs receive."""

    gpu_bytes = 0

    def gpu_received(self) -> int | None:
        """What the test says; nothing comes in here."""
        assert super().gpu_received() == 0
        return self.gpu_bytes


@dataclass
class Node:
    """A node with one interface, its agent's keeper, and its jobs."""

    namespace: Namespace
    groups: Groups
    state: Path
    pids: dict[int, set[int]] = field(default_factory=dict)
    unified: dict[int, str] = field(default_factory=dict)
    now_s: float = 1000.0
    rules: Counted = field(default_factory=Counted)

    def keeper(self, settings: NetworkSettings = SETTINGS) -> NetworkKeeper:
        """An agent's keeper after its start; it found nothing wrong."""
        ports = Ports(Table(self.pids, self.unified), rules=self.rules, net_classes=self.groups, traffic=self.dev)
        self.receive(0)
        keeper = NetworkKeeper(settings, self.state, ports)
        assert self.namespace.run(lambda: keeper.recover(self.now_s)) == ()
        return keeper

    def turn(self, keeper: NetworkKeeper, *jobs: int, later_s: float = 2.0) -> tuple[str, ...]:
        self.now_s += later_s
        runs = [_run(job_id, self.groups.node, wide=job_id == WIDE) for job_id in jobs]
        return tuple(self.namespace.run(lambda: keeper.turn(Sample(self.now_s, runs, unix_s=0.0))))

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
        return clean and not self.groups.top().exists() and not (self.state / MARK).exists()

    def is_shared_out(self) -> bool:
        shown = self.namespace.classes()
        return len(shown) == len(TREE) and all(part in line for part, line in zip(TREE, shown, strict=True))


def _run(job_id: int, node: str, *, wide: bool) -> Run:
    gpus, nodes = ((0, 1), 2) if wide else ((), 1)
    opened = JobOpened(job_id, 0, node, 2001, "alice", "main", 900.0, gpus, 4, {}, nodes)
    return Run(RunKey(job_id, 900), opened)


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


def test_shared_out_while_both_kinds_are_here_and_nothing_left_after(node: Node, sleepers: list[int]) -> None:
    node.pids.update({WIDE: {sleepers[0]}, CPU_JOB: {sleepers[1]}})
    keeper = node.keeper()
    assert keeper.interval_s == float("inf")
    assert node.turn(keeper, WIDE) == ()
    assert node.untouched()
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
    assert keeper.interval_s == 2.0
    assert node.is_shared_out()
    assert node.groups.pids("gpu") == [sleepers[0]]
    assert node.groups.pids("cpu") == [sleepers[1]]
    assert (node.groups.top() / "cpu/net_cls.classid").read_text() == f"{0x50DA0020}\n"
    assert f'oifname "eth0" meta cgroup {0x50DA0020} meta priority set 50da:20' in node.namespace.rules()
    assert node.turn(keeper, CPU_JOB) == ()
    assert node.untouched()
    assert keeper.interval_s == float("inf")
    assert "slurm-soda" not in Path(f"/proc/{sleepers[1]}/cgroup").read_text()


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
    node.turn(node.keeper(), WIDE, CPU_JOB)
    senders.send()
    sent = senders.sent_bytes()
    assert (sent["10"], sent["20"]) == (FRAMES_BYTES, 2 * FRAMES_BYTES)
    assert 2 * FRAMES_BYTES <= sent["30"] < 3 * FRAMES_BYTES


def test_the_classes_have_the_papers_shares(node: Node) -> None:
    node.turn(node.keeper(), WIDE, CPU_JOB)
    shown = {line.split()[2]: line for line in node.namespace.classes()}
    assert "prio 1 rate 675Mbit ceil 1Gbit" in shown["50da:10"]
    assert "prio 2 rate 250Mbit ceil 1Gbit" in shown["50da:20"]
    assert "prio 0 rate 75Mbit ceil 1Gbit" in shown["50da:30"]


def test_what_cpu_jobs_receive_is_limited_while_the_link_is_full(node: Node) -> None:
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    assert "drop" not in node.namespace.rules()
    for megabytes in (240, 480):
        assert "drop" not in node.namespace.rules()
        node.receive(megabytes)
        assert node.turn(keeper, WIDE, CPU_JOB) == ()
    rules = node.namespace.rules()
    assert f'iifname "eth0" meta cgroup {0x50DA0020} goto cpu_jobs' in rules
    for _ in range(5):
        assert "drop" in node.namespace.rules()
        node.turn(keeper, WIDE, CPU_JOB)
    assert "drop" not in node.namespace.rules()
    node.turn(keeper)
    assert node.untouched()


@pytest.mark.parametrize(
    ("borrow", "receive", "limited"), [(False, True, True), (True, False, False), (False, False, False)]
)
def test_receiving_without_borrowing_and_without_limit(node: Node, borrow: bool, receive: bool, limited: bool) -> None:
    settings = replace(SETTINGS, cpu_may_borrow=borrow, limit_received=receive)
    keeper = node.keeper(settings)
    node.turn(keeper, WIDE, CPU_JOB)
    for megabytes in (240, 480, 720):
        node.receive(megabytes)
        node.turn(keeper, WIDE, CPU_JOB)
    assert ("drop" in node.namespace.rules()) == limited


def test_an_interface_without_a_queue_gets_one_from_the_kernel(node: Node) -> None:
    """HTB's queues are as long as the interface's, and a queue of no packet would be the end of all traffic."""
    node.namespace.do("ip", "link", "set", "eth0", "txqueuelen", "0")
    assert node.turn(node.keeper(), WIDE, CPU_JOB) == ()
    assert "qlen 1000" in node.namespace.do("ip", "link", "show", "dev", "eth0")


def test_a_fast_link_is_no_overflow(node: Node) -> None:
    node.turn(node.keeper(NetworkSettings(gpu_interface="eth0", link_mbit=400_000.0)), WIDE, CPU_JOB)
    shown = {line.split()[2]: line for line in node.namespace.classes()}
    assert "rate 400Gbit ceil 400Gbit" in shown["50da:1"]
    assert "rate 100Gbit ceil 400Gbit" in shown["50da:20"]


def test_new_processes_are_sorted_in_and_ended_ones_passed_over(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = {sleepers[0]}
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    gone = subprocess.Popen(["true"])
    gone.wait()
    node.pids[CPU_JOB] = {*sleepers, gone.pid}
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
    assert node.groups.pids("cpu") == sorted(sleepers)


def test_processes_that_somebody_put_into_a_group_stay_there(node: Node, sleepers: list[int]) -> None:
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    site = node.groups.mount / f"site-{node.groups.node}"
    site.mkdir()
    try:
        (site / "cgroup.procs").write_text(f"{sleepers[0]}\n")
        node.pids[CPU_JOB] = set(sleepers)
        assert node.turn(keeper, WIDE, CPU_JOB) == ()
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
    keeper = node.keeper(replace(SETTINGS, cpu_may_borrow=False))
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
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
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
    assert "50da:20" not in node.namespace.rules()
    node.turn(keeper)
    assert node.untouched()


def test_a_job_whose_group_ends_before_nft_looks_is_left_out(node: Node) -> None:
    node.unified[WIDE] = "gone/job_21"
    calls: list[str] = []
    keeper = node.keeper()
    lookup = Table.cgroup_v2

    def once(self: Table, job: JobOpened) -> str:
        calls.append("")
        return lookup(self, job) if len(calls) < 4 else ""

    Table.cgroup_v2 = once  # type: ignore[method-assign]
    try:
        assert node.turn(keeper, WIDE, CPU_JOB) == ()
    finally:
        Table.cgroup_v2 = lookup  # type: ignore[method-assign]
    assert node.is_shared_out()
    assert "socket" not in node.namespace.rules()


def test_a_qdisc_of_the_site_is_never_touched_and_said(node: Node) -> None:
    node.namespace.do("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "tbf", *TBF)
    before = node.namespace.qdiscs()
    keeper = node.keeper()
    (fault,) = node.turn(keeper, WIDE, CPU_JOB)
    assert fault.startswith("network: eth0 has a queueing discipline of somebody else (tbf 7:), which is left alone")
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
    assert node.namespace.qdiscs() == before
    assert not (node.state / MARK).exists()
    node.namespace.do("tc", "qdisc", "del", "dev", "eth0", "root")
    assert node.turn(keeper, WIDE, CPU_JOB, later_s=60.0) == ()
    assert node.is_shared_out()


TBF = ("rate", "1mbit", "burst", "10k", "latency", "50ms")


def test_a_qdisc_of_the_site_that_has_our_number_is_not_ours(node: Node) -> None:
    node.namespace.do("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "50da:", "tbf", *TBF)
    before = node.namespace.qdiscs()
    (fault,) = node.turn(node.keeper(), WIDE, CPU_JOB)
    assert "a queueing discipline of somebody else (tbf 50da:)" in fault
    assert node.namespace.qdiscs() == before
    assert "soda" not in node.namespace.rules()


def test_a_mark_that_will_not_go_is_a_fault_and_nothing_else_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    assert node.is_shared_out()

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    (fault,) = node.turn(keeper)
    monkeypatch.undo()
    assert "Read-only file system" in fault
    assert "soda" not in node.namespace.rules()
    assert node.turn(keeper) == ()
    assert node.untouched()


def test_the_sites_rules_stay_as_they_are(node: Node) -> None:
    node.namespace.do("nft", "add", "table", "inet", "site")
    node.namespace.do("nft", "add", "chain", "inet", "site", "output", "{ type filter hook output priority 0; }")
    before = node.namespace.rules()
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    node.turn(keeper)
    assert node.namespace.rules() == before


def test_what_others_removed_is_set_again(node: Node) -> None:
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    node.namespace.do("nft", "flush", "ruleset")
    assert node.turn(keeper, WIDE, CPU_JOB, later_s=31.0) == ()
    assert "50da:20" in node.namespace.rules()
    node.namespace.do("tc", "qdisc", "del", "dev", "eth0", "root")
    assert node.turn(keeper, WIDE, CPU_JOB, later_s=31.0) == ()
    assert node.is_shared_out()


def test_a_qdisc_that_somebody_put_in_our_trees_place_is_left_alone(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    node.namespace.do("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "7:", "tbf", *TBF)
    (fault,) = node.turn(keeper, WIDE, CPU_JOB, later_s=31.0)
    assert "left alone" in fault
    assert node.namespace.qdiscs().startswith("qdisc tbf 7:")
    assert "soda" not in node.namespace.rules()
    assert not node.groups.top().exists()


@pytest.mark.parametrize("enabled", [True, False])
def test_an_agent_that_was_killed_leaves_nothing_for_ever(node: Node, sleepers: list[int], enabled: bool) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    node.turn(node.keeper(), WIDE, CPU_JOB)
    assert node.groups.pids("cpu") == sorted(sleepers)
    node.keeper(SETTINGS if enabled else NetworkSettings())
    assert node.untouched()


def test_the_next_agent_goes_on_where_it_is_still_wanted(node: Node, sleepers: list[int]) -> None:
    node.pids[CPU_JOB] = set(sleepers)
    node.turn(node.keeper(), WIDE, CPU_JOB)
    keeper = node.keeper()
    node.turn(keeper, WIDE, CPU_JOB)
    assert node.is_shared_out()
    assert node.groups.pids("cpu") == sorted(sleepers)
    assert node.namespace.run(keeper.close) == ()
    assert node.untouched()


def test_a_damaged_mark_is_enough_to_take_everything_back(node: Node) -> None:
    node.turn(node.keeper(), WIDE, CPU_JOB)
    (node.state / MARK).write_text("{")
    node.groups.node = "elsewhere"
    node.keeper()
    assert node.namespace.qdiscs().startswith("qdisc noqueue 0:")
    assert "soda" not in node.namespace.rules()


def test_what_cannot_be_recorded_is_not_done(node: Node) -> None:
    node.state.write_text("a file where the directory should be")
    (fault,) = node.turn(node.keeper(), WIDE, CPU_JOB)
    assert str(node.state) in fault
    assert node.namespace.qdiscs().startswith("qdisc noqueue 0:")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (NetworkSettings(gpu_interface="none0", link_mbit=10.0), "there is no interface none0"),
        (NetworkSettings(gpu_interface="none0"), "there is no interface none0"),
        (NetworkSettings(gpu_interface="lo"), "lo does not tell its speed: set network.link_mbit"),
    ],
)
def test_an_interface_that_cannot_be_shared_out(node: Node, settings: NetworkSettings, said: str) -> None:
    (fault,) = node.turn(node.keeper(settings), WIDE, CPU_JOB)
    assert said in fault
    assert node.untouched()


def test_nothing_is_done_unless_the_site_says_so(node: Node) -> None:
    keeper = node.keeper(NetworkSettings())
    assert node.turn(keeper, WIDE, CPU_JOB) == ()
    assert node.untouched()
    fresh = NetworkKeeper(SETTINGS, node.state, Ports(Table({}, {}), net_classes=node.groups))
    assert node.turn(fresh, WIDE, CPU_JOB) == (), "an agent that only reports once must not set what nobody takes back"
    assert node.untouched()
