"""The emulated MPS: daemon, servers and clients by real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import SOURCE, Hardware
from .mps import Daemon, control_daemon, end, used, wait_until

ROOT = os.geteuid() == 0


@pytest.fixture
def daemon(hardware: Hardware, tmp_path: Path) -> Iterator[Daemon]:
    with control_daemon(hardware, tmp_path / "mps") as daemon:
        yield daemon


def xi(model: str, beside: str, way: str) -> float:
    for line in (SOURCE / "trainer" / "pairs.tsv").read_text().splitlines():
        if line.split()[:2] == [model, beside]:
            return float(line.split()[2 if way == "mps" else 3])
    raise KeyError(model)


def iterations(process: subprocess.Popen[str]) -> float:
    """What a stopped training had done."""
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    return float(output.rpartition("stopped at iteration ")[2].split(",")[0])


def test_a_daemon_answers_and_is_gone_after_quit(daemon: Daemon) -> None:
    assert daemon.servers() == []
    assert daemon.ask("start_server -uid " + str(os.getuid())) == ""
    (server,) = daemon.servers()
    assert daemon.ask(f"get_server_status {server}") == "ACTIVE\n"
    assert daemon.ask(f"get_client_list {server}") == ""
    pid = daemon.pid
    quit_ = daemon.run(commands="quit\n")
    assert quit_.returncode == 0
    assert not Path(f"/proc/{server}").exists()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not (daemon.pipe / "nvidia-cuda-mps-control.pid").exists()
    again = daemon.run(commands="get_server_list\n")
    assert (again.returncode, again.stdout) == (1, "Cannot find MPS control daemon process\n")


def test_a_second_daemon_does_not_start_in_one_directory(daemon: Daemon) -> None:
    second = daemon.run("-d")
    assert second.returncode == 1
    assert "already running" in second.stderr


def test_sockets_are_for_those_who_may_use_them(daemon: Daemon) -> None:
    assert stat.S_IMODE((daemon.pipe / "control").stat().st_mode) == 0o666
    assert stat.S_IMODE((daemon.pipe / "control_privileged").stat().st_mode) == 0o700


def test_a_client_joins_and_leaves(daemon: Daemon, hardware: Hardware) -> None:
    client = daemon.client("resnet50", "0,1")
    wait_until(lambda: used(hardware, 1))
    (server,) = daemon.servers()
    assert daemon.ask(f"get_client_list {server}") == f"{client.pid}\n"
    assert str(client.pid) in daemon.ask("ps")
    end(client)
    wait_until(lambda: daemon.ask(f"get_client_list {server}") == "")
    log = (daemon.log / "server.log").read_text()
    assert f"New client {client.pid} connected" in log
    assert f"Client {client.pid} disconnected" in log
    assert "Starting new server" in (daemon.log / "control.log").read_text()


@pytest.mark.parametrize("way", ["mps", "slices"])
def test_pairs_slow_down_as_the_table_says(hardware: Hardware, tmp_path: Path, way: str) -> None:
    nobody = Daemon(hardware, tmp_path / "nobody", tmp_path / "nobody")
    with control_daemon(hardware, tmp_path / "mps") as running:
        daemon = running if way == "mps" else nobody
        other = daemon.client("deepspeech", "0")
        wait_until(lambda: used(hardware, 0))
        beside = daemon.client("resnet50", "0", "--report-s", "0.5")
        alone = daemon.client("resnet50", "1", "--report-s", "0.5")
        wait_until(lambda: used(hardware, 0) == 2 and used(hardware, 1))
        time.sleep(3)
        slowdown = iterations(alone) / iterations(beside)
        end(other)
    assert slowdown == pytest.approx(xi("resnet50", "deepspeech", way), rel=0.1)


def test_time_slices_are_worse_than_mps_for_all_pairs() -> None:
    rows = [line.split() for line in (SOURCE / "trainer" / "pairs.tsv").read_text().splitlines() if line[0] != "#"]
    assert len(rows) == 64
    assert all(1 < float(mps) < float(slices) for _, _, mps, slices in rows)


def test_a_fault_ends_all_who_share_a_gpu_with_it_and_no_others(daemon: Daemon, hardware: Hardware) -> None:
    across, beside, apart = daemon.client("bert", "0,1"), daemon.client("vgg16", "1"), daemon.client("vgg16", "2")
    wait_until(lambda: all(used(hardware, gpu) for gpu in (0, 1, 2)))
    (server,) = daemon.servers()
    beside.send_signal(signal.SIGSTOP)  # it keeps the server waiting
    faulty = daemon.client("wavenet", "0", "--fault-at", "1")
    assert faulty.communicate()[1].startswith("soda-train: CUDA error 700")
    assert across.wait(5) == faulty.returncode == 70
    assert daemon.ask(f"get_server_status {server}") == "FAULT\n"
    late = daemon.client("vgg16", "3")
    assert "CUDA error 807" in late.communicate()[1]
    beside.send_signal(signal.SIGCONT)
    assert beside.wait(5) == 70
    wait_until(lambda: daemon.ask(f"get_server_status {server}") == "ACTIVE\n")
    assert apart.poll() is None
    after = daemon.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    assert daemon.servers() == [server]
    end(apart, after)
    across.communicate()
    beside.communicate()


def test_a_fault_without_mps_is_ones_own(hardware: Hardware, tmp_path: Path) -> None:
    alone = Daemon(hardware, tmp_path / "nobody", tmp_path / "nobody")
    other = alone.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    assert alone.client("bert", "0", "--fault-at", "1").communicate()[1].startswith("soda-train: CUDA error 700")
    assert other.poll() is None
    end(other)


def test_a_dead_server_ends_its_clients(daemon: Daemon, hardware: Hardware) -> None:
    client = daemon.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    (server,) = daemon.servers()
    os.kill(server, signal.SIGKILL)
    assert "CUDA error 806" in client.communicate()[1]
    wait_until(lambda: daemon.servers() == [])


def test_a_dead_daemon_leaves_its_server_and_nobody_can_join(daemon: Daemon, hardware: Hardware) -> None:
    client = daemon.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    (server,) = daemon.servers()
    os.kill(daemon.pid, signal.SIGKILL)
    time.sleep(0.3)
    assert client.poll() is None
    assert Path(f"/proc/{server}").exists()
    late = daemon.client("vgg16", "1")
    assert "CUDA error 805" in late.communicate()[1]
    end(client)
    os.kill(server, signal.SIGKILL)


def test_quit_waits_for_clients_or_ends_them(daemon: Daemon, hardware: Hardware) -> None:
    client = daemon.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    begin = time.monotonic()
    daemon.run(commands="quit -t 1\n")
    assert time.monotonic() - begin > 0.9
    assert "CUDA error 806" in client.communicate()[1]


def test_shutdown_of_a_server_waits_for_its_clients(daemon: Daemon, hardware: Hardware) -> None:
    client = daemon.client("vgg16", "0")
    wait_until(lambda: used(hardware, 0))
    (server,) = daemon.servers()
    daemon.ask(f"shutdown_server {server}")
    time.sleep(0.3)
    assert daemon.servers() == [server]
    end(client)
    wait_until(lambda: daemon.servers() == [])


def test_a_client_that_is_terminated(daemon: Daemon, hardware: Hardware) -> None:
    client, other = daemon.client("vgg16", "0"), daemon.client("bert", "0")
    wait_until(lambda: used(hardware, 0) == 2)
    (server,) = daemon.servers()
    daemon.ask(f"terminate_client {server} {client.pid}")
    assert "CUDA error 810" in client.communicate()[1]
    assert other.poll() is None
    end(other)


def test_who_overfills_a_gpu_ends_and_nobody_else(daemon: Daemon, hardware: Hardware) -> None:
    first = daemon.client("vgg16", "0", "--gpu-memory-mib", "30000")
    wait_until(lambda: used(hardware, 0))
    second = daemon.client("bert", "0", "--gpu-memory-mib", "12000")
    assert second.communicate()[1] == "soda-train: CUDA error 2: out of memory\n"
    assert second.returncode == 70
    assert first.poll() is None
    end(first)


def test_two_at_once_cannot_both_have_the_last_memory(hardware: Hardware, tmp_path: Path) -> None:
    nobody = Daemon(hardware, tmp_path / "nobody", tmp_path / "nobody")
    both = [nobody.client("vgg16", "0", "--gpu-memory-mib", "30000", "--report-s", "0") for _ in range(6)]
    wait_until(lambda: sum(one.poll() is None for one in both) == 1)
    time.sleep(0.2)
    assert sum(one.poll() is None for one in both) == 1
    end(*both)


@pytest.mark.parametrize("who", ["daemon", "client"])
def test_limits_of_memory_and_threads(hardware: Hardware, tmp_path: Path, who: str) -> None:
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "46"}
    mine = limit if who == "client" else {}
    with control_daemon(hardware, tmp_path / "mps", **(limit if who == "daemon" else {})) as daemon:
        assert "CUDA error 2:" in daemon.client("bert", "1", **mine).communicate()[1]  # it takes 16 GiB of its device 0
        slow, fast = daemon.client("resnet50", "0", "--gpu-memory-mib", "7000", **mine), None
        nobody = Daemon(hardware, tmp_path / "nobody", tmp_path / "nobody")
        fast = nobody.client("resnet50", "1")
        wait_until(lambda: used(hardware, 0) and used(hardware, 1))
        time.sleep(3)
        assert iterations(fast) / iterations(slow) == pytest.approx(92 / 46, rel=0.1)


def test_default_percentage_is_for_the_next_server(daemon: Daemon) -> None:
    daemon.ask("set_default_active_thread_percentage 40")
    assert daemon.ask("get_default_active_thread_percentage") == "40.0\n"
    daemon.ask(f"start_server -uid {os.getuid()}")
    (server,) = daemon.servers()
    assert daemon.ask(f"get_active_thread_percentage {server}") == "40.0\n"


@pytest.mark.parametrize("mode", ["exclusive_process", "prohibited"])
def test_compute_modes(hardware: Hardware, tmp_path: Path, mode: str) -> None:
    (hardware.state / "gpus.conf").write_text(f"devices=0,1\ncompute_mode={mode}\n")
    nobody = Daemon(hardware, tmp_path / "nobody", tmp_path / "nobody")
    with control_daemon(hardware, tmp_path / "mps") as daemon:
        first = daemon.client("vgg16", "0")
        if mode == "prohibited":
            assert "CUDA error 46" in first.communicate()[1]
            return
        wait_until(lambda: used(hardware, 0))
        assert "CUDA error 46" in nobody.client("bert", "0").communicate()[1]
        second = daemon.client("bert", "0")
        wait_until(lambda: used(hardware, 0) == 2)
        end(first, second)


@pytest.mark.skipif(not ROOT, reason="only root can be several users")
class TestUsers:
    """A daemon of root, and clients of two users."""

    @staticmethod
    def client(daemon: Daemon, uid: int) -> subprocess.Popen[str]:
        argv = [daemon.hardware.train, "--cpu-load", "0", "--model", "vgg16", "--duration-s", "1e6"]
        env = daemon.hardware.env(CUDA_VISIBLE_DEVICES="0", SLURM_CPUS_ON_NODE="28", **daemon.environment)
        return subprocess.Popen(
            ["setpriv", f"--reuid={uid}", "--clear-groups", *argv],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @pytest.fixture
    def place(self, hardware: Hardware, tmp_path: Path) -> Path:
        hardware.state.chmod(0o1777)
        for path in (hardware.built, *hardware.built.parents, *tmp_path.parents, tmp_path):
            if str(path) not in ("/", "/tmp"):
                path.chmod(path.stat().st_mode | 0o055)
        return tmp_path / "mps"

    def test_another_user_waits_for_the_server(self, hardware: Hardware, place: Path) -> None:
        with control_daemon(hardware, place) as daemon:
            one = self.client(daemon, 4001)
            wait_until(lambda: used(hardware, 0) == 1)
            (first,) = daemon.servers()
            two = self.client(daemon, 4002)
            time.sleep(0.5)
            assert used(hardware, 0) == 1
            end(one)
            wait_until(lambda: used(hardware, 0) == 1 and daemon.servers() not in ([], [first]))
            assert Path(f"/proc/{daemon.servers()[0]}").stat().st_uid == 4002
            end(two)

    def test_one_server_for_all_users(self, hardware: Hardware, place: Path) -> None:
        with control_daemon(hardware, place, "-multiuser-server") as daemon:
            clients = [self.client(daemon, uid) for uid in (4001, 4002)]
            wait_until(lambda: used(hardware, 0) == 2)
            assert len(daemon.servers()) == 1
            end(*clients)

    def test_a_users_daemon_serves_nobody_else(self, hardware: Hardware, place: Path) -> None:
        place.mkdir()
        os.chown(place, 4001, 4001)
        daemon = Daemon(hardware, place / "pipe", place / "log")
        control = [str(hardware.built / "nvidia-cuda-mps-control"), "-f"]
        running = subprocess.Popen(
            ["setpriv", "--reuid=4001", "--clear-groups", *control], env=hardware.env(**daemon.environment)
        )
        wait_until((daemon.pipe / "nvidia-cuda-mps-control.pid").exists)
        other, own = self.client(daemon, 4002), self.client(daemon, 4001)
        assert "CUDA error 805" in other.communicate()[1]
        wait_until(lambda: used(hardware, 0) == 1)
        end(own)
        daemon.run(commands="quit -t 0\n")
        assert running.wait(5) == 0
