"""``sodactl service profile`` with a real command, whose batches take a known time at least."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slurm_soda.services.profiling import measurement
from slurm_soda.services.profiling.device_profile import ProfileLimits, profile_device
from slurm_soda.services.profiling.measurement import ProfileError, Query
from slurm_soda.sodactl.main import run as sodactl
from slurm_soda.sodactl.service.profile import profile
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.services.service_file import DeviceRequest, ServiceFile
from slurm_soda.wire.services.service_profile import ServiceProfile

EXAMPLE = Path(__file__).parents[3] / "examples" / "serving"

PROGRAM = """
import os, sys, time
sys.path.insert(0, {example!r})
from http_service import Service
port, batch, window_ms, cores, device = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
assert len(os.sched_getaffinity(0)) == cores
assert open("beside.txt").read() == "here"
def answer_all(queries):
    assert queries == ["a query"] * len(queries)
    time.sleep({each_s} * len(queries) / (8 if device == "gpu" else 1))
    return queries
Service(answer_all, batch, window_ms).run(port)
"""


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer batches of each size: these are as long as they are."""
    monkeypatch.setattr(measurement, "WARM_UP_ROUNDS", 1)
    monkeypatch.setattr(measurement, "LEAST_ROUNDS", 3)
    monkeypatch.setattr(measurement, "ROUNDS_S", 0.0)


def write_service(folder: Path, each_s: float, more: str = "", tables: str = "[cpu]\ncores = 1\n") -> Path:
    (folder / "program.py").write_text(PROGRAM.format(example=str(EXAMPLE), each_s=each_s))
    (folder / "beside.txt").write_text("here")
    (folder / "query.json").write_text('"a query"')
    words = "{port} {batch} {window_ms} {cores} {device}"
    (folder / "chat.toml").write_text(
        f'name = "chat"\ncommand = "exec {sys.executable} program.py {words}"\nquery = "query.json"\n{more}\n{tables}'
    )
    return folder / "chat.toml"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(profile, [str(one) for one in arguments])


def written(folder: Path) -> ServiceProfile:
    return ServiceProfile.from_dict(json.loads((folder / "services" / "chat" / "profile.json").read_text()), "profile")


def test_a_service_is_measured_on_both_devices_and_its_profile_kept(tmp_path: Path) -> None:
    """A query takes 50 ms of 500: more than 4 in a batch cannot be within the target."""
    timing = "target_ms = 500\nwindow_ms = 50\n"
    file = write_service(tmp_path, 0.05, timing, "[cpu]\ncores = 1\n[gpu]\nbatch = 5\n")
    done = run(file, "--json", "--gpu-type", "a100", "--most-cores", 1)
    assert done.exit_code == 0, done.output
    cpu, gpu = written(tmp_path).devices
    assert (cpu.device, cpu.cores, cpu.gpu_type) == ("cpu", 1, "")
    assert 1 <= cpu.batch <= 4
    assert 50.0 * cpu.batch <= cpu.batch_ms <= 225.0
    assert (gpu.device, gpu.batch, gpu.cores, gpu.gpu_type) == ("gpu", 5, 1, "a100")
    assert gpu.batch_ms >= 5 * 6.25
    for one in (cpu, gpu):
        assert 50.0 + 2.0 * one.batch_ms * (1.0 + one.error_ratio) <= 500.0
    told: dict[str, Any] = json.loads(done.stdout)
    assert [one["batch"] for one in told["devices"]] == [cpu.batch, gpu.batch]
    for one, shown in zip((cpu, gpu), told["devices"], strict=True):
        qps = 1000.0 * one.batch / (one.batch_ms * (1.0 + one.error_ratio))
        assert f"{qps:.0f} queries/s an instance" in shown["meaning"], "as many as sodad counts on"


def test_that_a_device_cannot_meet_the_target_is_a_result(tmp_path: Path) -> None:
    file = write_service(tmp_path, 0.3, "target_ms = 200\n")
    done = run(file)
    assert done.exit_code == 0, done.output
    (cpu,) = written(tmp_path).devices
    assert (cpu.batch, cpu.cores) == (0, 1)
    assert cpu.batch_ms >= 300.0
    assert f"cannot meet 200 ms: one query alone takes {cpu.batch_ms:.1f} ms" in done.output


def test_a_device_replaces_itself_and_another_target_all(tmp_path: Path) -> None:
    file = write_service(
        tmp_path, 0.001, "target_ms = 5000\n", "[cpu]\ncores = 1\nbatch = 1\n[gpu]\ncores = 1\nbatch = 1\n"
    )
    assert run(file, "--device", "cpu").exit_code == 0
    assert run(file, "--device", "gpu", "--gpu-type", "v100").exit_code == 0
    assert run(file, "--device", "cpu").exit_code == 0
    assert [(one.device, one.gpu_type) for one in written(tmp_path).devices] == [("gpu", "v100"), ("cpu", "")]
    file.write_text(file.read_text().replace("5000", "4000"))
    assert run(file, "--device", "cpu").exit_code == 0
    assert [one.device for one in written(tmp_path).devices] == ["cpu"]
    (tmp_path / "services" / "chat" / "profile.json").write_text("no profile")
    assert run(file, "--device", "cpu").exit_code == 0
    assert [one.device for one in written(tmp_path).devices] == ["cpu"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('query = "query.json"', "", "names no query"),
        ("query.json", "none.json", "none.json cannot be read"),
        (
            'query = "query.json"',
            'query = "query.json"\nquery_path = "/x"',
            "a query to /x was not answered: status 404",
        ),
        ("program.py", "none.py", "ended with status 2 before it was healthy; it said: "),
        ("cores = 1", "cores = 4096", "asks for 4096 cores"),
    ],
)
def test_what_cannot_be_measured_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    file = write_service(tmp_path, 0.001)
    file.write_text(file.read_text().replace(old, new))
    done = run(file)
    assert isinstance(done.exception, SodaError)
    assert told in str(done.exception)
    assert not (tmp_path / "services").exists()


def test_a_folder_in_which_others_may_write_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """They could put a profile of their own in the place of this one."""
    file = write_service(tmp_path, 0.001)
    file.write_text(file.read_text().replace("exec ", f"touch {tmp_path}/ran; exec "))
    (tmp_path / "services").mkdir()
    (tmp_path / "services").chmod(0o777)
    done = run(file, "--device", "cpu")
    assert "can be written by others" in str(done.exception)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "services" / "chat").exists()


def test_a_command_that_listens_elsewhere_is_given_up(tmp_path: Path) -> None:
    service = ServiceFile("chat", "echo waiting; sleep 600 # {port}", cpu=DeviceRequest(cores=1))
    limits = ProfileLimits(time.monotonic(), len(os.sched_getaffinity(0)))
    with pytest.raises(ProfileError, match=r"must listen on \{port\}.*it said: waiting"):
        profile_device(service, "cpu", Query("/predict", b"", "text/plain"), str(tmp_path), limits)
    with pytest.raises(ProfileError, match=r"has no table \[gpu\]"):
        profile_device(service, "gpu", Query("/predict", b"", "text/plain"), str(tmp_path), limits)


def test_sodactl_tells_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_service(tmp_path, 0.001)
    file.write_text(file.read_text().replace('query = "query.json"', ""))
    assert sodactl(["service", "profile", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
