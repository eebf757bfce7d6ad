"""MPS by our own hooks, on a real GPU: start, clients, stop, leftovers, a fault.

Root is needed, as hooks are root's. Daemon and clients are ``nobody``'s; a client needs the driver's library alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prolog.mps_node import CONF, CONTROL, UID, Node, install_scripts

from .conftest import Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hooks run as root")

CLIENT = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit(f"CUDA error {error} of {name}")
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
print("ready", flush=True)
module, function = ctypes.c_void_p(), ctypes.c_void_p()
PTX = b'''.version 6.0
.target sm_60
.address_size 64
.visible .entry fault() { .reg .u64 %a; mov.u64 %a, 1099511627776; st.global.u64 [%a], %a; ret; }
'''
if "fault" in sys.argv:
    call("cuModuleLoadData", ctypes.byref(module), PTX + bytes(1))
    call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
while True:
    call("cuCtxSynchronize")
    memory = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
    call("cuMemFree_v2", memory)
    time.sleep(0.05)
"""


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    (tmp_path / "bin").mkdir()
    for program in (CONTROL, "nvidia-cuda-mps-server"):
        found = machine.find(program)
        if machine.emulated:
            shutil.copy(found, tmp_path / "bin")
        else:
            (tmp_path / "bin" / program).symlink_to(found)
    if machine.emulated:
        shutil.copy(machine.find("soda-train"), tmp_path / "bin")
    install_scripts(node)
    (tmp_path / "etc/sharing.conf").write_text(CONF)
    (node.run / "mps-gpus").write_text("0 fit\n")
    yield node
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)


def client(machine: Machine, node: Node, job: int, *, fault: bool = False) -> subprocess.Popen[str]:
    """A program of the job and of its user that holds GPU 0."""
    argv = ["/usr/bin/python3", "-c", CLIENT, *(["fault"] if fault else [])]
    if machine.emulated:
        more = ["--fault-at", "1"] if fault else []
        argv = [str(node.top / "bin/soda-train"), "--model", "vgg16", "--duration-s", "1e6", "--cpu-load", "0", *more]
    env = {**machine.environment, **dict(line.split("=", 1) for line in node.lines(job)), "CUDA_VISIBLE_DEVICES": "0"}
    return subprocess.Popen(
        argv, env=env, cwd="/", user=UID, group=UID, extra_groups=[], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def ready(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    assert program.stdout.readline(), program.communicate()[1]


def servers(node: Node) -> list[int]:
    """Children of the daemon."""
    children = Path(f"/proc/{node.daemon()}/task/{node.daemon()}/children").read_text()
    return [int(pid) for pid in children.split()]


def test_a_job_starts_under_mps_and_the_last_one_leaves_nothing(machine: Machine, node: Node) -> None:
    begin = time.monotonic()
    assert node.start(7) == 0
    assert time.monotonic() - begin < 2
    assert node.start(8) == 0
    programs = [client(machine, node, 7), client(machine, node, 8)]
    for program in programs:
        ready(program)
    assert len(servers(node)) == 1
    for program in programs:
        program.kill()
        program.communicate()
    assert node.stop(7).returncode == node.stop(8).returncode == 0
    assert node.left() == []


def test_what_a_killed_daemon_left_is_cleaned(machine: Machine, node: Node) -> None:
    assert node.start(7) == 0
    program = client(machine, node, 7)
    ready(program)
    os.kill(node.daemon(), signal.SIGKILL)
    program.kill()
    program.communicate()
    assert node.start(8) == 0
    after = client(machine, node, 8)
    ready(after)
    after.kill()
    after.communicate()
    assert node.stop(7).returncode == node.stop(8).returncode == 0
    assert node.left() == []


def test_a_fault_ends_both_clients_and_the_gpu_is_of_use_in_ten_seconds(machine: Machine, node: Node) -> None:
    assert node.start(7) == node.start(8) == 0
    other = client(machine, node, 7)
    ready(other)
    faulty = client(machine, node, 8, fault=True)
    assert "CUDA error" in faulty.communicate(timeout=60)[1]
    assert "CUDA error" in other.communicate(timeout=60)[1]
    begin = time.monotonic()
    while True:
        after = client(machine, node, 7)
        assert after.stdout is not None
        if after.stdout.readline():
            break
        after.communicate()
        assert time.monotonic() - begin < 10
    log = (node.mps / str(UID) / "log" / "server.log").read_text(errors="replace")
    after.kill()
    after.communicate()
    node.stop(7), node.stop(8)
    assert node.left() == []
    assert "fatal" in log.lower() or "fault" in log.lower(), f"the agent looks for these words; the log says: {log}"
