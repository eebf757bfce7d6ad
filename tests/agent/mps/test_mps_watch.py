"""What the agent makes of MPS: with the emulated daemon, server and clients, all real processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.agent.mps import control_daemon
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.mps.mps_watch import FIT_FILE, INTERVAL_S, LIST_EVERY_S, PATIENCE_S, MpsWatch
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.wire.mps import MpsFault, MpsJob
from tests.emulation.conftest import Hardware, emulated_hardware
from tests.emulation.mps import Daemon, end, used, wait_until
from tests.emulation.mps import control_daemon as emulated_daemon


class KnownGpus(Gpus):
    def __init__(self) -> None:
        super().__init__()
        self.verdicts: dict[int, str] = {}

    def verdicts_on_mps(self, now_s: float) -> dict[int, str]:
        return self.verdicts


@dataclass
class Node:
    """The directories of a node, the watch over them, and a clock of the test's own."""

    top: Path
    gpus: KnownGpus = field(default_factory=KnownGpus)
    news: MpsNews = field(default_factory=MpsNews)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        (self.top / "lists").mkdir()
        self.watch = MpsWatch(self.gpus, self.news, self.top / "mps", self.top / "lists")

    @property
    def who(self) -> Path:
        return self.top / "mps" / "7"

    def turn(self, after_s: float = INTERVAL_S) -> list[str]:
        self.now_s += after_s
        return list(self.watch.turn(NodeSample(self.now_s, (), unix_s=5e8 + self.now_s)))

    def listed(self) -> list[str]:
        return (self.top / "lists" / FIT_FILE).read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def daemon(node: Node, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """As the hooks would have started it for user 7, with jobs 12 and 15 on GPU 0 and job 20 on GPU 1."""
    built = emulated_hardware(tmp_path_factory)
    state = node.top / "gpus"
    state.mkdir()
    (state / "gpus.conf").write_text("devices=0,1,2,3\n")
    monkeypatch.setattr(control_daemon, "CONTROLS", (str(built / "nvidia-cuda-mps-control"),))
    (node.top / "mps").mkdir()
    with emulated_daemon(Hardware(built, state), node.who) as daemon:
        (node.who / "daemon").write_text(f"{daemon.pid} 1\n")
        for job, gpus in ((12, "0"), (15, "0,2-3"), (20, "1")):
            (node.who / f"job.{job}").write_text(f"{gpus}\n")
        yield daemon


JOBS = (MpsJob(12, "7", (0,)), MpsJob(15, "7", (0, 2, 3)), MpsJob(20, "7", (1,)))


def test_who_is_under_mps_is_reported_and_forgotten(node: Node, daemon: Daemon) -> None:
    assert node.watch.interval_s == float("inf")
    assert node.turn() == []
    assert node.news.jobs == JOBS
    assert node.watch.counts() == {"mps_daemons": 1}
    assert node.watch.interval_s == INTERVAL_S
    (node.who / "job.15").unlink()
    node.turn()
    assert [job.job_id for job in node.news.jobs] == [12, 20]


def test_a_fault_is_told_once_with_those_it_may_concern(node: Node, daemon: Daemon) -> None:
    assert node.turn() == []
    other = daemon.client("vgg16", "0")
    wait_until(lambda: used(daemon.hardware, 0))
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    other.communicate()
    assert node.turn() == ["MPS of 7: a fatal fault of one client, which ends others too (jobs 12, 15, 20)"]
    assert list(node.news.faults) == [MpsFault(5e8 + node.now_s, JOBS)]
    assert node.news.faults[0].pairs() == ((12, 15),)
    assert node.turn() == node.turn() == []
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    assert len(node.turn()) == 1
    assert len(node.news.faults) == 2


def test_a_fault_names_jobs_that_it_ended_before_the_agent_looked(node: Node, daemon: Daemon) -> None:
    other = daemon.client("vgg16", "0")
    wait_until(lambda: used(daemon.hardware, 0))
    assert node.turn() == []
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    other.communicate()
    for job in (12, 15):
        (node.who / f"job.{job}").unlink()
    node.turn()
    assert node.news.faults[0].pairs() == ((12, 15),)


def test_a_fault_is_told_though_daemon_and_log_are_gone(node: Node, daemon: Daemon) -> None:
    other = daemon.client("vgg16", "0")
    wait_until(lambda: used(daemon.hardware, 0))
    assert node.turn() == []
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    other.communicate()
    node.who.rename(node.top / "gone")
    assert len(node.turn()) == 1
    assert node.news.faults[0].pairs() == ((12, 15),)
    assert node.news.jobs == ()
    assert node.watch.interval_s == float("inf")
    assert node.turn() == []


def test_a_client_that_stays_after_a_fault_costs_the_gpu_ten_seconds_at_most(node: Node, daemon: Daemon) -> None:
    hanging = daemon.client("vgg16", "0")
    wait_until(lambda: used(daemon.hardware, 0))
    hanging.send_signal(signal.SIGSTOP)
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    (server,) = daemon.servers()
    passed_s = 0.0
    while daemon.servers() == [server]:
        node.turn()
        passed_s += INTERVAL_S
        assert passed_s < 10
        time.sleep(0.2)
    assert passed_s >= PATIENCE_S
    assert len(node.news.faults) == 1
    after = daemon.client("vgg16", "0")
    wait_until(daemon.servers)
    hanging.send_signal(signal.SIGCONT)
    assert "CUDA error" in hanging.communicate()[1]
    assert after.poll() is None
    end(after)


def test_what_a_log_said_before_the_agent_started_is_no_news(node: Node, daemon: Daemon) -> None:
    daemon.client("bert", "0", "--fault-at", "1").communicate()
    node.watch.recover(node.now_s)
    assert node.turn() == []
    assert not node.news


def test_a_daemon_that_does_not_answer_is_asked_seldom(node: Node, daemon: Daemon) -> None:
    client = daemon.client("vgg16", "0")
    wait_until(lambda: used(daemon.hardware, 0))
    os.kill(daemon.pid, signal.SIGSTOP)
    begin = time.monotonic()
    for _ in range(5):
        assert node.turn() == []
    os.kill(daemon.pid, signal.SIGCONT)
    assert 0.4 < time.monotonic() - begin < 1.5
    end(client)


@pytest.fixture
def crowds(node: Node) -> Iterator[Callable[..., None]]:
    """Makes daemons of users, with so many children each, as a user with a debugger could."""
    started: list[subprocess.Popen[bytes]] = []

    def make(users: int, children: int) -> None:
        for user in range(users):
            base = node.top / "mps" / str(user)
            (base / "pipe").mkdir(parents=True)
            forks = f"for n in $(seq {children}); do sleep 60 & done; echo; wait"
            started.append(subprocess.Popen(["sh", "-c", forks], stdout=subprocess.PIPE, start_new_session=True))
            stdout = started[-1].stdout
            assert stdout is not None
            stdout.readline()
            (base / "daemon").write_text(f"{started[-1].pid} 1\n")

    yield make
    for crowd in started:
        os.killpg(crowd.pid, signal.SIGKILL)
        crowd.communicate()


def answer_by(node: Node, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In place of the program that asks a daemon, which its user could lead to do anything."""
    program = node.top / "control"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(control_daemon, "CONTROLS", (str(program),))


def test_many_children_of_a_daemon_cost_half_a_second(
    node: Node, monkeypatch: pytest.MonkeyPatch, crowds: Callable[..., None]
) -> None:
    answer_by(node, monkeypatch, "sleep 0.2; echo ACTIVE")
    crowds(1, 30)
    begin = time.monotonic()
    node.turn()
    assert 0.4 < time.monotonic() - begin < 1.5


def test_many_slow_daemons_cost_a_turn_little_more_than_a_second_and_all_are_asked(
    node: Node, monkeypatch: pytest.MonkeyPatch, crowds: Callable[..., None]
) -> None:
    answer_by(node, monkeypatch, f"echo $CUDA_MPS_PIPE_DIRECTORY >>{node.top}/asked; sleep 0.3; echo ACTIVE")
    crowds(12, 1)
    asked: set[str] = set()
    for _ in range(12):  # a busy machine asks one in a turn
        begin = time.monotonic()
        node.turn()
        assert time.monotonic() - begin < 2.5
        asked.update((node.top / "asked").read_text().split())
    assert len(asked) == 12


WRONG_ANSWERS = {"endless": "exec cat /dev/zero", "kept open": "sleep 5 & exit 0", "no end": "exec sleep 60"}


@pytest.mark.parametrize("script", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_whatever_answers_costs_neither_memory_nor_time(
    node: Node, monkeypatch: pytest.MonkeyPatch, crowds: Callable[..., None], script: str
) -> None:
    answer_by(node, monkeypatch, script)
    crowds(1, 3)
    begin, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    node.turn()
    assert time.monotonic() - begin < 1.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 20_000  # KiB


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_log_that_is_no_file_is_not_read(node: Node, daemon: Daemon, kind: str) -> None:
    log = daemon.log / "server.log"
    log.unlink(missing_ok=True)
    secret = node.top / "secret"
    secret.write_text("a fatal secret\n")
    {"link": lambda: log.symlink_to(secret), "fifo": lambda: os.mkfifo(log), "directory": log.mkdir}[kind]()
    assert node.turn() == []


def test_a_huge_log_costs_no_memory(node: Node, daemon: Daemon) -> None:
    with (daemon.log / "server.log").open("wb") as log:
        log.truncate(1 << 40)
    begin = time.monotonic()
    assert node.turn() == []
    assert time.monotonic() - begin < 1


def test_the_list_of_fit_gpus_is_renewed(node: Node) -> None:
    node.gpus.verdicts = {0: "", 1: "it is in MIG mode: nvidia-smi -mig 0"}
    assert node.watch.recover(node.now_s) == ()
    assert node.listed() == ["0 fit", "1 it is in MIG mode: nvidia-smi -mig 0"]
    assert (node.top / "lists" / FIT_FILE).stat().st_mode & 0o777 == 0o600
    node.gpus.verdicts = {0: "", 1: ""}
    node.turn()
    assert len(node.listed()) == 2
    node.turn(LIST_EVERY_S)
    assert node.listed() == ["0 fit", "1 fit"]
    assert node.watch.close() == ()
    assert node.listed() == ["0 fit", "1 fit"]


def test_a_list_that_cannot_be_written_is_a_fault(node: Node) -> None:
    (node.top / "lists").rmdir()
    assert "cannot be written" in next(iter(node.watch.recover(node.now_s)))


VERDICTS = {
    "": ["", ""],
    "compute_mode=exclusive_process\n": ["its compute mode is not DEFAULT: nvidia-smi -c DEFAULT"] * 2,
    "compute_mode=prohibited\n": ["its compute mode is not DEFAULT: nvidia-smi -c DEFAULT"] * 2,
    "capability=6.1\n": ["it is older than Volta: MPS has no limits there"] * 2,
    "mig=1\n": ["", "it is in MIG mode: nvidia-smi -mig 0"],
}


@pytest.mark.parametrize("more", VERDICTS, ids=lambda more: more.strip() or "as usual")
def test_which_gpus_are_fit(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, more: str) -> None:
    (tmp_path / "gpus.conf").write_text("devices=0,1\n" + more)
    program = "from slurm_soda.agent.sampling.gpus import Gpus; print(list(Gpus().verdicts_on_mps(1.0).values()))"
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(emulated_hardware(tmp_path_factory)),
        "SODA_GPU_STATE": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"{VERDICTS[more]}\n"
