"""Loads: drawn ones, and those of a site's files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.services.service import Device, DeviceProfile
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.services.load import LoadCurve, draw_week, load_from_csv
from slurm_soda.simulator.services.serving_recorder import packed_gpus, slowest_ms
from slurm_soda.simulator.services.site_files import load_services
from slurm_soda.simulator.services.twelve import GPUS_HELD, soda_twelve

SERVICE = """
name = "{name}"
command = "serve {{port}}"
[replicas]
most = 3
[cpu]
sbatch = ["--partition=main"]
[gpu]
sbatch = ["-p", "main"]
"""
PROFILE = {
    "target_ms": 200.0, "window_ms": 50.0, "measured_at_s": 0.0,
    "devices": [
        {"device": "cpu", "batch": 2, "batch_ms": 60.0, "cores": 8, "bandwidth_gb_s": 20.0},
        {"device": "gpu", "batch": 32, "batch_ms": 40.0, "cores": 2, "gpu_type": "v100"},
    ],
}  # fmt: skip


def site(folder: Path, load: str, *names: str) -> Path:
    """A folder as an owner has it."""
    for name in names:
        (folder / f"{name}.toml").write_text(SERVICE.format(name=name))
        (folder / name).mkdir()
        (folder / name / "profile.json").write_text(json.dumps(PROFILE))
    path = folder / "load.csv"
    path.write_text(load)
    return path


def test_a_sites_services_are_read(tmp_path: Path) -> None:
    """Load by minute, profile and partition of each."""
    path = site(tmp_path, "minute,service,qps\n0,a,10\n2,a,30.5\n1,b,7\n", "a", "b")
    found = load_services(str(path), 1)
    assert found.load.qps.tolist() == [[10.0, 10.0, 30.5], [0.0, 7.0, 7.0]]
    assert found.load.step_s == 60.0
    (first, second) = found.services
    assert (first.name, second.name, first.most, first.cpu_partition, first.gpu_partition) == (
        "a",
        "b",
        3,
        "main",
        "main",
    )
    assert first.cpu == DeviceProfile(Device.CPU, 2, 60.0, cores=8, bandwidth_gb_s=20.0)
    assert first.gpu[0].gpu_type == "v100"


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("minute,qps\n0,1\n", "header is 'minute,qps'"),
        ("minute,service,qps\n", "there is no line"),
        ("minute,service,qps\n0,a,-1\n", "qps '-1'"),
        ("minute,service,qps\n0,a,nan\n", "qps 'nan'"),
        ("minute,service,qps\n0.5,a,1\n", "minute '0.5'"),
        ("minute,service,qps\n99999999,a,1\n", "minute '99999999'"),
        ("minute,service,qps\n0,,1\n", "names no service"),
        ("minute,service,qps\n0,c,1\n", "c.toml: cannot be read"),
    ],
)
def test_what_is_wrong_with_a_load_is_named(tmp_path: Path, load: str, said: str) -> None:
    """One line with the file, the value and what is allowed."""
    path = site(tmp_path, load, "a")
    with pytest.raises(SimulatorError, match=r"load\.csv|toml") as error:
        load_services(str(path), 1)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("a.toml", "name = 'b'\ncommand = 'x {port}'\n[gpu]\n", "its name is 'b'"),
        ("a.toml", "[[", "TOML"),
        ("a/profile.json", "{", "no JSON"),
        ("a/profile.json", "{}", "target_ms"),
    ],
)
def test_what_is_wrong_with_a_service_is_named(tmp_path: Path, file: str, text: str, said: str) -> None:
    path = site(tmp_path, "minute,service,qps\n0,a,1\n", "a")
    (tmp_path / file).write_text(text)
    with pytest.raises(SimulatorError, match=said):
        load_services(str(path), 1)


def test_a_minute_beyond_the_file_starts_it_over(tmp_path: Path) -> None:
    path = site(tmp_path, "minute,service,qps\n0,a,1\n1,a,2\n", "a")
    curve = load_from_csv(path, ["a"])
    assert [float(curve.at(60.0 * minute)[0]) for minute in range(4)] == [1.0, 2.0, 1.0, 2.0]
    assert curve.next_change_s(61.0) == 120.0
    assert float(curve.most_within(0.0, 60.0)[0]) == 2.0


def test_drawn_weeks_depend_on_the_seed_alone() -> None:
    one, again, other = draw_week([10.0, 20.0], 1), draw_week([10.0, 20.0], 1), draw_week([10.0, 20.0], 2)
    assert np.array_equal(one.qps, again.qps)
    assert not np.array_equal(one.qps, other.qps)
    assert one.peak_qps.tolist() == [10.0, 20.0]
    assert one.qps.min() > 0.0


def test_there_are_few_queries_at_night() -> None:
    """Section IV-E; midnight has less than a fifth of noon."""
    qps = draw_week([100.0], 1).qps.reshape(7, 24, -1).mean(axis=(0, 2))
    assert qps[0] < 0.2 * qps[11]


def test_the_twelve_hold_what_the_paper_says_and_meet_their_target() -> None:
    found = soda_twelve(1)
    assert len(found.services) == 12
    peaks = zip(found.load.peak_qps.tolist(), found.services, strict=True)
    assert sum(-(-qps // (0.8 * one.gpu[0].capacity_qps)) for qps, one in peaks) == GPUS_HELD
    profiles = [profile for one in found.services for profile in (one.cpu, *one.gpu) if profile is not None]
    assert all(profile.slowest_ms(50.0) <= 200.0 for profile in profiles)
    assert all(profile.cores <= 16 for profile in profiles)


@given(
    batch=st.integers(1, 64), batch_ms=st.floats(1.0, 75.0), window_ms=st.floats(1.0, 100.0), part=st.floats(0.001, 1.0)
)
def test_within_the_capacity_no_query_is_slower_than_the_profile_says(
    batch: int, batch_ms: float, window_ms: float, part: float
) -> None:
    """The bound by which a profile is judged holds for every even load."""
    profile = DeviceProfile(Device.GPU, batch, batch_ms)
    assert slowest_ms(profile, window_ms, part * profile.capacity_qps) <= profile.slowest_ms(window_ms) * (1 + 1e-9)


@given(needs=st.lists(st.floats(0.0, 3.0), max_size=12), most=st.integers(1, 4))
def test_packing_holds_the_load_and_no_more_than_alone(needs: list[float], most: int) -> None:
    """Room for all, not more GPUs than services by themselves, and no more services on one than allowed."""
    found = packed_gpus(needs, 0.8, most)
    assert found * 0.8 >= sum(needs) - 1e-6
    assert found <= sum(int(need / 0.8) + 1 for need in needs)
    assert found * most >= len([need for need in needs if 0 < need < 0.8])


def test_a_curve_is_constant_within_a_step() -> None:
    curve = LoadCurve(np.array([[1.0, 2.0]]), 10.0)
    assert [float(curve.at(second)[0]) for second in (0.0, 9.9, 10.0)] == [1.0, 1.0, 2.0]
