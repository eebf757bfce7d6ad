"""The tests for machines with a GPU pass with the emulated one too, as far as it goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="hooks run as root")
def test_the_suite_for_real_gpus_passes_with_emulated_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-rs", "-p", "no:cacheprovider", "tests/gpu"],
        cwd=CHECKOUT, env={**os.environ, "SODA_GPU_TESTS": "emulated"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed, (\d+) skipped", done.stdout)
    assert found, done.stdout
    assert int(found[1]) >= 5
    assert int(found[2]) == 1  # nvidia-smi is not emulated
