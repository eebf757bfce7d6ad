"""Speed by CPU cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.core_speed import CoreCurve, CoreSpeed, load_core_curves
from slurm_soda.simulator.workload import Workload

CURVE = CoreCurve((1.0, 3.0, 6.0), (0.5, 0.9, 1.0))


@pytest.mark.parametrize(
    ("cores", "ratio"), [(0.5, 0.25), (1, 0.5), (2, 0.7), (3, 0.9), (4.5, 0.95), (6, 1.0), (60, 1.0)]
)
def test_a_curve_is_linear_between_points_and_flat_beyond(cores: float, ratio: float) -> None:
    assert CURVE.at(cores) == pytest.approx(ratio)


@given(low=st.floats(0, 20), more=st.floats(0, 20))
def test_more_cores_never_hurt_on_a_curve_that_rises(low: float, more: float) -> None:
    assert 0 <= CURVE.at(low) <= CURVE.at(low + more) <= 1


@pytest.mark.parametrize(("cores", "ratio", "problem"), [
    ((), (), "as many utilisations as cores"),
    ((1.0, 2.0), (1.0,), "as many utilisations as cores, not 1 and 2"),
    ((2.0, 2.0), (0.5, 1.0), "must be above 0 and ascend"),
    ((0.0, 2.0), (0.5, 1.0), "must be above 0 and ascend"),
    ((1.0, 2.0), (0.5, 1.5), "must be above 0 and at most 1"),
    ((1.0, 2.0), (0.0, 1.0), "must be above 0 and at most 1"),
])  # fmt: skip
def test_no_curve(cores: tuple[float, ...], ratio: tuple[float, ...], problem: str) -> None:
    with pytest.raises(SimulatorError, match=problem):
        CoreCurve(cores, ratio)


def test_jobs_run_by_their_cores() -> None:
    rows = [
        {"submit_s": 0, "run_s": 60, "gpus": 2, "cpus": 6, "model": "fed"},
        {"submit_s": 1, "run_s": 60, "gpus": 2, "cpus": 6, "model": "other"},
        {"submit_s": 2, "run_s": 60, "gpus": 2, "model": "fed"},
        {"submit_s": 3, "run_s": 60, "gpus": 0, "cpus": 6},
    ]
    speed = CoreSpeed({"fed": CURVE}, Workload.build("w", rows))
    assert speed.ratio(0, [NodeAllocation(0, 2, 6, 0)]) == 1.0
    assert speed.ratio(0, [NodeAllocation(0, 2, 12, 0)]) == pytest.approx(1 / 0.9)
    assert speed.ratio(
        0, [NodeAllocation(0, 1, 6, 0), NodeAllocation(1, 1, 1, 0), NodeAllocation(2, 0, 9, 0)]
    ) == pytest.approx(0.5 / 0.9)
    assert [speed.ratio(row, [NodeAllocation(0, 2, 1, 0)]) for row in (1, 2, 3)] == [1.0, 1.0, 1.0]
    with pytest.raises(SimulatorError, match="job a1: it has GPUs on a node where it has no CPU core"):
        CoreSpeed({"fed": CURVE}, Workload.build("w", [rows[0] | {"label": "a1"}])).ratio(
            0, [NodeAllocation(0, 2, 0, 0)]
        )


def test_curves_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cores.csv"
    path.write_text("model,cores,ratio\nbert,1,0.5\nvgg,2,1\nbert,3,0.9\nbert,6,1\n")
    assert load_core_curves(path) == {"bert": CURVE, "vgg": CoreCurve((2.0,), (1.0,))}


@pytest.mark.parametrize(("text", "line", "problem"), [
    ("model,cores,ratio\nbert,1,0.5\nbert,1,0.6\n", 3, "cores of bert must ascend from line to line, not 1.0 after 1.0"),
    ("model,cores,ratio\nbert,0,0.5\n", 2, "cores must be a number above 0, not '0'"),
    ("model,cores,ratio\nbert,1,50\n", 2, "ratio is a GPU utilisation, above 0 and at most 1, not 50.0"),
    ("model,cores,ratio\n,1,0.5\n", 2, "model must be a name, not ''"),
    ("model,cores\nbert,1\n", 1, "the header must name the columns model, cores, ratio, not 'model,cores'"),
])  # fmt: skip
def test_a_malformed_file(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = tmp_path / "cores.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=problem) as caught:
        load_core_curves(path)
    assert caught.value.line == line
