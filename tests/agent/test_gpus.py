"""GPUs through the unmodified NVML binding: with the emulated library, and without any."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.sampling.gpus import REOPEN_AFTER_S, Gpus
from tests.emulation.conftest import emulated_hardware

CONFIGURATION = "devices=0,1,2,3\nname=Emulated GPU\nmemory_mib=40960\n"
PROGRAM = """
import json
from slurm_soda.agent.sampling.gpus import Gpus
gpus = Gpus()
found = gpus.read([0, 1, 9], 1.0)
told = {i: [r.util_ratio, r.memory_mib, r.memory_total_mib, r.power_w] for i, r in found.items()}
print(json.dumps([gpus.fault, gpus.count, told]))
"""
MIG_PROGRAM = """
import json
from slurm_soda.agent.sampling.gpus import Gpus
gpus = Gpus()
print(json.dumps([[sorted(gpus.read(asked, now_s)), gpus.fault] for now_s, asked in [(1.0, [0, 1, 2]), (2.0, [0, 2])]]))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("the emulated NVML is C: install gcc and make")
    return emulated_hardware(tmp_path_factory)


def on_a_node(library: Path, state: Path, configuration: str, program: str) -> Any:
    """What a program prints on an emulated node; the binding loads its library once a process."""
    (state / "gpus.conf").write_text(configuration)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(library), "SODA_GPU_STATE": str(state)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_readings_of_an_idle_emulated_node(library: Path, tmp_path: Path) -> None:
    fault, count, found = on_a_node(library, tmp_path, CONFIGURATION, PROGRAM)
    assert (fault, count) == ("", 4)
    assert set(found) == {"0", "1"}
    for util_ratio, memory_mib, memory_total_mib, power_w in found.values():
        assert util_ratio == 0.0
        assert 0.0 <= memory_mib < 2048.0
        assert memory_total_mib == 40960.0
        assert 0.0 < power_w < 400.0


def test_a_gpu_without_a_reading_takes_nothing_from_the_others(library: Path, tmp_path: Path) -> None:
    first, second = on_a_node(library, tmp_path, f"{CONFIGURATION}mig=1\n", MIG_PROGRAM)
    assert first == [[0, 2], "GPU 1 has no utilisation or memory reading (is it in MIG mode?): Not Supported"]
    assert second == [[0, 2], ""], "the next reading of the others comes at once and is no fault"


def test_without_a_driver_there_are_no_gpus_and_it_is_looked_for_again_later() -> None:
    gpus = Gpus()
    assert gpus.read([0], 100.0) == {}
    if gpus.count:
        pytest.skip("this machine has GPUs")
    assert gpus.fault.startswith("NVML cannot be used")
    gpus.fault = ""
    gpus.read([0], 100.0 + REOPEN_AFTER_S - 1)
    assert gpus.fault == ""
    gpus.read([0], 100.0 + REOPEN_AFTER_S)
    assert gpus.fault.startswith("NVML cannot be used")
