"""What the plugin makes of the files that the prolog leaves: its own C, alone, with sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builds import made_once

TOP = Path(__file__).parents[2]
HIDDEN = ["CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=", "ZE_AFFINITY_MASK="]
GOOD = "CUDA_VISIBLE_DEVICES=2,3\n~CUDA_VISIBLE_DEVICES=0,1\n-SLURM_GPUS\nSODA_SUB_BATCH=32\nend\n"

Read = Callable[..., list[str]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the plugin is C: install gcc")

    def make(build: Path) -> None:
        spank = TOP / "slurm_ext" / "spank"
        sources = (Path(__file__).with_name("task_environment_main.c"), spank / "task_environment.c")
        flags = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
        build.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", *flags, f"-I{spank}", *sources, "-o", build / "program"], check=True, timeout=120)

    return made_once(tmp_path_factory, "task-environment", make) / "program"


@pytest.fixture
def read(program: Path, tmp_path: Path) -> Read:
    def run(directory: Path = tmp_path, *, numbered: bool = False) -> list[str]:
        argv = [program, directory, "7", str(int(numbered))]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    tmp_path.chmod(0o700)
    return run


def test_variables_are_set_and_removed(read: Read, tmp_path: Path) -> None:
    (tmp_path / "env.7").write_text(GOOD)
    rest = ["-SLURM_GPUS", "SODA_SUB_BATCH=32"]
    assert read() == ["CUDA_VISIBLE_DEVICES=2,3", *rest]
    assert read(numbered=True) == ["CUDA_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES=0,1", *rest]


def test_a_job_that_shares_nothing_is_left_alone(read: Read, tmp_path: Path) -> None:
    assert read(tmp_path / "none") == []
    (tmp_path / "gpus.7").write_text("0\n1000\n")
    (tmp_path / "env.77").write_text(GOOD)
    assert read() == []


def test_a_guest_without_its_file_sees_no_gpu(read: Read, tmp_path: Path) -> None:
    (tmp_path / "guest.7").write_text("gpus=0\nend\n")
    assert read() == HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "", "end", GOOD[:-1], GOOD[:-5], GOOD + "X=1\n", "friend\n", "a=1\nend\n", "A B=1\nend\n", "=1\nend\n", "A\nend\n",
        "-A=1\nend\n", "1A=1\nend\n", "A=\x1b\nend\n", "A=\0\nend\n", "\nend\n", "A" * 64 + "=1\nend\n",
        "A=1\n" * 5000 + "end\n",
    ],
)  # fmt: skip
def test_half_a_file_or_a_strange_one_hides_every_gpu(read: Read, tmp_path: Path, text: str) -> None:
    (tmp_path / "env.7").write_text(text)
    assert read() == HIDDEN


def test_a_file_that_others_may_write_is_not_believed(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "env.7"
    path.write_text(GOOD)
    path.chmod(0o620)
    assert read() == HIDDEN


def test_links_and_fifos_are_not_followed(read: Read, tmp_path: Path) -> None:
    (tmp_path / "good").write_text(GOOD)
    (tmp_path / "env.7").symlink_to(tmp_path / "good")
    assert read() == HIDDEN
    (tmp_path / "env.7").unlink()
    os.mkfifo(tmp_path / "env.7", 0o600)
    assert read() == HIDDEN
    (tmp_path / "link").symlink_to(tmp_path)
    assert read(tmp_path / "link") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", b"end\n", b"\nend\n"]))
def test_any_bytes_end_well(read: Read, tmp_path: Path, begin: bytes, end: bytes) -> None:
    (tmp_path / "env.7").write_bytes(begin + end)
    read()
