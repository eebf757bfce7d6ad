"""The emulated hardware, built once, and a state directory of four GPUs for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builds import made_once

SOURCE = Path(__file__).parents[2] / "emulation"


@dataclass(frozen=True)
class Hardware:
    """Built binaries and one state directory."""

    built: Path
    state: Path

    @property
    def train(self) -> str:
        return str(self.built / "soda-train")

    def env(self, **more: str) -> dict[str, str]:
        """The environment of a job: nothing of Slurm's but what the test gives."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "CUDA"))}
        return {
            **kept,
            "SODA_GPU_STATE": str(self.state),
            "SODA_TRAIN_PROFILES": str(SOURCE / "trainer" / "profiles.tsv"),
            "SODA_TRAIN_PAIRS": str(SOURCE / "trainer" / "pairs.tsv"),
            "LD_LIBRARY_PATH": str(self.built),
            **more,
        }


def emulated_hardware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is built."""

    def make(out: Path) -> None:
        argv = ["make", "-s", "-C", str(SOURCE), f"OUT={out}", "all"]
        made = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr

    return made_once(tmp_path_factory, "emulation", make)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("the emulated hardware is C: install gcc and make")
    return emulated_hardware(tmp_path_factory)


@pytest.fixture
def hardware(built: Path, tmp_path: Path) -> Hardware:
    state = tmp_path / "gpus"
    state.mkdir()
    (state / "gpus.conf").write_text("devices=0,1,2,3\nname=Emulated GPU\nmemory_mib=40960\n")
    return Hardware(built, state)
