"""Tests on a machine with an NVIDIA GPU (`make test-gpu`), or with the emulated one in its place.

``SODA_GPU_TESTS=emulated`` builds the emulation and puts its programs first in PATH and its library first for the loader:
what can be shown without the real driver is shown, so that the suite itself is known to work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulation.conftest import SOURCE, emulated_hardware

COUNT = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@dataclass(frozen=True)
class Machine:
    """Where tests find GPUs."""

    environment: dict[str, str]
    emulated: bool

    def find(self, program: str) -> str:
        """A program's path; skips the test where there is none."""
        path = shutil.which(program, path=self.environment["PATH"])
        if path is None:
            pytest.skip(f"there is no {program} here")
        return path

    def python(self, program: str) -> str:
        """What a Python program prints: the binding loads its library once a process."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    emulated = os.environ.get("SODA_GPU_TESTS") == "emulated"
    environment = dict(os.environ)
    if emulated:
        built, state = emulated_hardware(tmp_path_factory), tmp_path_factory.mktemp("gpus")
        (state / "gpus.conf").write_text("devices=0,1\n")
        state.chmod(0o1777)
        for table in ("profiles.tsv", "pairs.tsv"):  # where a test's user can read them
            shutil.copy(SOURCE / "trainer" / table, state)
        environment |= {
            "PATH": f"{built}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(built), "SODA_GPU_STATE": str(state),
            "SODA_TRAIN_PROFILES": str(state / "profiles.tsv"), "SODA_TRAIN_PAIRS": str(state / "pairs.tsv"),
        }  # fmt: skip
    machine = Machine(environment, emulated)
    found = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=False)
    if found.returncode != 0 or found.stdout.strip() == "0":
        pytest.skip(f"no NVIDIA GPU here: {(found.stderr.strip().splitlines() or ['no device'])[-1]}")
    return machine
