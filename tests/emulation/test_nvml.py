"""The unmodified nvidia-ml-py over our library, each test in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Hardware

MIB = 1024 * 1024


def nvml(hardware: Hardware, script: str, **env: str) -> Any:
    """Run `script`, which leaves its answer in `out`, with pynvml as `n` and one helper for errors."""
    code = (
        "import json, os, pynvml as n\n"
        "def error(call, *a):\n"
        "    try: call(*a)\n"
        "    except n.NVMLError as e: return e.value\n"
        f"    return 0\n{script}\nprint(json.dumps(out))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=hardware.env(**env), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def use(hardware: Hardware, lines: str, pid: int, start: int | None = None, server: int = 0) -> Path:
    return state_file(hardware.state, lines, pid, start, server)


def state_file(state: Path, lines: str, pid: int, start: int | None = None, server: int = 0) -> Path:
    """Write a state file as `pid` would."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]) if start is None else start
    path = state / str(pid)
    path.write_text(f"soda-gpu 2 {ticks} {server} resnet50\n{lines}")
    return path


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_an_idle_node(hardware: Hardware) -> None:
    out = nvml(
        hardware,
        """n.nvmlInit(); h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
out = [[n.nvmlDeviceGetName(x), n.nvmlDeviceGetIndex(x), n.nvmlDeviceGetMinorNumber(x),
        n.nvmlDeviceGetUtilizationRates(x).gpu, n.nvmlDeviceGetComputeRunningProcesses(x),
        n.nvmlDeviceGetMemoryInfo(x).total, n.nvmlDeviceGetTemperature(x, 0) == n.nvmlDeviceGetTemperatureV(x, 0),
        n.nvmlDeviceGetPowerUsage(x) < n.nvmlDeviceGetPowerManagementLimit(x)] for x in h]""",
    )
    assert out == [["Emulated GPU", i, i, 0, [], 40960 * MIB, True, True] for i in range(4)]


def test_uuids_find_their_device_and_last(hardware: Hardware) -> None:
    script = """n.nvmlInit(); u = [n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in range(4)]
out = u, [n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(x.encode())) for x in u]"""
    (first, found), (second, _) = nvml(hardware, script), nvml(hardware, script)
    assert first == second
    assert len(set(first)) == 4
    assert all(uuid.startswith("GPU-") and len(uuid) == 40 for uuid in first)
    assert found == [0, 1, 2, 3]


def test_two_processes_on_one_gpu_add_up(hardware: Hardware, sleeper: subprocess.Popen[bytes]) -> None:
    script = """n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(2)
m, m2 = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
own = open('/proc/self/stat').read().rsplit(')', 1)[1].split()[19]
open(os.environ['SODA_GPU_STATE'] + f'/{os.getpid()}', 'w').write(f'soda-gpu 2 {own} 0 -\\n2 1000 60 60 7 9\\n')
v2, v3 = n.nvmlDeviceGetComputeRunningProcesses_v2(h), n.nvmlDeviceGetComputeRunningProcesses(h)
out = {'before': m2.used, 'util': n.nvmlDeviceGetUtilizationRates(h).gpu, 'me': os.getpid(),
 'other': n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(1)).gpu,
 'v1': m.used - m2.used == m2.reserved, 'free': m2.total - m2.reserved - m2.used == m2.free,
 'after': n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used, 'same': [str(p) for p in v2] == [str(p) for p in v3],
 'procs': [[p.pid, p.usedGpuMemory] for p in v3],
 'pcie': [n.nvmlDeviceGetPcieThroughput(h, c) for c in (n.NVML_PCIE_UTIL_TX_BYTES, n.NVML_PCIE_UTIL_RX_BYTES)]}"""
    use(hardware, "2 5000 70 70 3 11\n1 10 20 20 0 0\n", sleeper.pid)
    out = nvml(hardware, script)
    assert (out["before"], out["after"]) == (5000 * MIB, 6000 * MIB)
    assert (out["util"], out["other"]) == (100, 20)
    assert out["v1"]
    assert out["free"]
    assert out["same"]
    assert sorted(out["procs"]) == sorted([[sleeper.pid, 5000 * MIB], [out["me"], 1000 * MIB]])
    assert out["pcie"] == [10, 20]


PIDS = "n.nvmlInit(); out = [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))]"


def test_a_killed_process_frees_its_gpu_even_as_a_zombie(hardware: Hardware, sleeper: subprocess.Popen[bytes]) -> None:
    use(hardware, "0 5000 70 70 0 0\n", sleeper.pid)
    assert nvml(hardware, PIDS) == [sleeper.pid]
    sleeper.kill()
    stat = Path(f"/proc/{sleeper.pid}/stat")
    while stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)
    assert nvml(hardware, PIDS) == []


@pytest.mark.parametrize(
    "content",
    ["", "soda-gpu 2 0 0 -\n0 1 1 1 0 0\n", "soda-gpu 2 12345 0 -\n0 1 1 1 0 0\n", "rubbish\x00\xff", "soda-gpu 2 1\n"],
)
def test_files_that_do_not_fit_their_process_are_ignored(
    hardware: Hardware, sleeper: subprocess.Popen[bytes], content: str
) -> None:
    (hardware.state / str(sleeper.pid)).write_text(content, encoding="latin-1")
    (hardware.state / "nonsense").write_text(content, encoding="latin-1")
    assert nvml(hardware, PIDS) == []


def test_a_link_in_the_open_directory_is_not_followed(hardware: Hardware, sleeper: subprocess.Popen[bytes]) -> None:
    real = use(hardware, "0 5000 70 70 0 0\n", sleeper.pid)
    moved = real.rename(hardware.state / "elsewhere")
    real.symlink_to(moved)
    assert nvml(hardware, PIDS) == []


ERRORS = {  # expression: NVML's error code
    "error(n.nvmlDeviceGetHandleByIndex, 4)": 2,
    "error(n.nvmlDeviceGetHandleByUUID, b'GPU-0')": 6,
    "error(n.nvmlDeviceGetTemperature, h, 7)": 2,
    "error(n.nvmlDeviceGetPcieThroughput, h, 2)": 2,
    "error(n.nvmlDeviceGetMemoryInfo, h, 1)": 25,
    "error(n.nvmlDeviceGetName, None)": 2,
    "error(n.nvmlDeviceGetFanSpeed, h)": 13,  # not part of this library
    "n.nvmlLib.nvmlDeviceGetName(h, n.create_string_buffer(3), 3)": 7,
    "n.nvmlLib.nvmlDeviceGetUtilizationRates(h, None)": 2,
    "error(n.nvmlSystemGetProcessName, 2 ** 22 + 1)": 6,
    "(n.nvmlShutdown(), error(n.nvmlDeviceGetCount))[1]": 1,
    "(n.nvmlShutdown(), error(n.nvmlShutdown))[1]": 1,
    "(n.nvmlInit(), n.nvmlShutdown(), error(n.nvmlDeviceGetCount))[2]": 0,  # initialised twice, shut down once
}


@pytest.mark.parametrize(("call", "code"), ERRORS.items(), ids=ERRORS)
def test_error_codes(hardware: Hardware, call: str, code: int) -> None:
    out = nvml(hardware, f"n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\nout = {call}")
    assert out == code


def test_errors_have_names(hardware: Hardware) -> None:
    assert nvml(hardware, "n.nvmlInit(); out = [n.nvmlErrorString(c) for c in (0, 2, 6, 7, 25)]") == [
        "Success", "Invalid Argument", "Not Found", "Insufficient Size", "Argument Version Mismatch",
    ]  # fmt: skip


def test_a_gpu_in_mig_mode_has_no_utilisation(hardware: Hardware) -> None:
    with (hardware.state / "gpus.conf").open("a") as file:
        file.write("mig=1,3\n")
    script = """n.nvmlInit(); h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(4)]
out = [[n.nvmlDeviceGetMigMode(x)[0], error(n.nvmlDeviceGetUtilizationRates, x),
        error(n.nvmlDeviceGetMemoryInfo, x)] for x in h]"""
    assert nvml(hardware, script) == [[0, 0, 0], [1, 3, 0], [0, 0, 0], [1, 3, 0]]


def test_no_gpus_means_no_driver(hardware: Hardware) -> None:
    (hardware.state / "gpus.conf").write_text("devices=\n")
    assert nvml(hardware, "out = error(n.nvmlInit)") == 9


def test_nodes_of_one_container_differ(hardware: Hardware, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "gpus.conf").write_text("devices=0,1\n")
    script = "n.nvmlInit(); out = n.nvmlDeviceGetCount(), n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0))"
    here, there = nvml(hardware, script), nvml(hardware, script, SODA_GPU_STATE=str(other))
    assert (here[0], there[0]) == (4, 2)
    assert here[1] != there[1]


PER_PROCESS = """n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
def samples(since):
    return {s.pid: [s.smUtil, s.memUtil] for s in n.nvmlDeviceGetProcessUtilization(h, since)}
newest = max(s.timeStamp for s in n.nvmlDeviceGetProcessUtilization(h, 0))
out = [samples(0), {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(h)},
       {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetMPSComputeRunningProcesses(h)},
       error(n.nvmlDeviceGetProcessUtilization, h, newest + 10**9),
       error(n.nvmlDeviceGetProcessUtilization, n.nvmlDeviceGetHandleByIndex(1), 0)]"""


def test_each_process_has_its_utilisation_and_clients_of_mps_a_list_of_their_own(
    hardware: Hardware, sleeper: subprocess.Popen[bytes]
) -> None:
    server, client = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"])
    use(hardware, "0 5000 70 70 3 11\n", sleeper.pid)
    use(hardware, "0 30 0 0 0 0\n", server.pid)
    use(hardware, "0 2000 25 90 0 0\n", client.pid, server=server.pid)
    utils, compute, mps, late, idle = nvml(hardware, PER_PROCESS)
    for process in (server, client):
        process.kill()
        process.wait()
    assert utils == {str(sleeper.pid): [70, 35], str(client.pid): [25, 12]}
    assert compute == {str(sleeper.pid): 5000 * MIB, str(server.pid): 30 * MIB}
    assert mps == {str(client.pid): 2000 * MIB}
    assert late == idle == 6  # NVML_ERROR_NOT_FOUND


def test_which_gpus_tell_no_utilisation_by_process(hardware: Hardware, sleeper: subprocess.Popen[bytes]) -> None:
    use(hardware, "0 5000 70 70 3 11\n1 5000 70 70 3 11\n", sleeper.pid)
    script = """n.nvmlInit(); h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
out = [error(n.nvmlDeviceGetProcessUtilization, x, 0) for x in h]"""
    (hardware.state / "gpus.conf").write_text("devices=0,1\nmig=1\n")
    assert nvml(hardware, script) == [0, 3]
    (hardware.state / "gpus.conf").write_text("devices=0,1\ncapability=3.7\n")
    assert nvml(hardware, script) == [3, 3]


def test_a_driver_may_name_the_server_in_place_of_its_clients(
    hardware: Hardware, sleeper: subprocess.Popen[bytes]
) -> None:
    (hardware.state / "gpus.conf").write_text("devices=0\nmps_samples=server\n")
    use(hardware, "0 2000 25 90 0 0\n", sleeper.pid, server=1)
    script = """n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
out = [[s.pid, s.smUtil] for s in n.nvmlDeviceGetProcessUtilization(h, 0)]"""
    assert nvml(hardware, script) == [[1, 25]]


def test_mode_and_generation_are_the_configured_ones(hardware: Hardware) -> None:
    script = """n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
out = [n.nvmlDeviceGetComputeMode(h), n.nvmlDeviceGetCudaComputeCapability(h)]"""
    assert nvml(hardware, script) == [0, [8, 0]]
    (hardware.state / "gpus.conf").write_text("devices=0\ncompute_mode=exclusive_process\ncapability=6.1\n")
    assert nvml(hardware, script) == [3, [6, 1]]
