"""The agent's sampler on real GPUs, against nvidia-smi."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from .conftest import Machine

SAMPLE = """
import json
from slurm_soda.agent.sampling.gpus import Gpus
gpus = Gpus()
gpus.open(0.0)
found = gpus.read(range(64), 1.0)
print(json.dumps([gpus.fault, {i: [r.util_ratio, r.memory_mib] for i, r in found.items()}, gpus.verdicts_on_mps(2.0)]))
"""


def test_the_sampler_agrees_with_nvidia_smi(machine: Machine) -> None:
    smi = machine.find("nvidia-smi")
    query = [smi, "--query-gpu=index,memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
    shown = subprocess.run(
        query, env=machine.environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    fault, found, _ = json.loads(machine.python(SAMPLE))
    assert fault == ""
    assert len(found) == len(shown)
    for line in shown:
        index, memory_mib, util = (float(word) for word in line.split(","))
        read_util, read_mib = found[str(int(index))]
        assert read_mib == pytest.approx(memory_mib, abs=1024)  # one of them counts the driver's own part
        assert read_util == pytest.approx(util / 100, abs=0.25)


def test_every_gpu_has_a_reading_and_a_verdict_on_mps(machine: Machine) -> None:
    fault, found, verdicts = json.loads(machine.python(SAMPLE))
    assert (fault, set(verdicts)) == ("", set(found))
    assert all(0 <= util <= 1 and memory >= 0 for util, memory in found.values())
    assert all(isinstance(verdict, str) for verdict in verdicts.values())


def test_reading_every_gpu_is_quick(machine: Machine) -> None:
    program = SAMPLE + "import time; b = time.monotonic(); gpus.read(range(64), 3.0); print(time.monotonic() - b)"
    begin = time.monotonic()
    assert float(machine.python(program).splitlines()[-1]) < 0.5
    assert time.monotonic() - begin < 60
