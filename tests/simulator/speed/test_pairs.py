"""Pair tables: speeds alone and shared, and what is said of a file that has another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.pair_table import PairTable, PairTableKey, load_pairs
from slurm_soda.simulator.speed.small_files import MOST_BYTES
from slurm_soda.simulator.traces.formats.measured_times import TrainingStepTimes
from slurm_soda.simulator.traces.registry import load_trace

CV, RL, BIG, GANG = (
    PairTableKey("ResNet-18", 64, 1),
    PairTableKey("A3C", 0, 1),
    PairTableKey("LM", 80, 1),
    PairTableKey("ResNet-18", 64, 4),
)
TABLE: dict[str, Any] = {
    "v100": {
        str(CV): {"null": 20.0, str(CV): [12.0, 12.0], str(RL): [16.0, 3.0], str(BIG): [0.0, 0.0]},
        str(RL): {"null": 4.0},
        str(BIG): {"null": 2, str(RL): [1, 0]},
        str(GANG): {"null": 60.0},
    },
    "v100_unconsolidated": {str(CV): {"null": 20.0}, str(GANG): {"null": 45.0}},
    "k80": {str(CV): {"null": 5.0}, str(BIG): {"null": 0.0}},
}


def write(path: Path, table: Any) -> Path:
    path.write_text(json.dumps(table))
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> PairTable:
    return load_pairs(write(tmp_path / "pairs.json", TABLE))


def test_speeds_alone(pairs: PairTable) -> None:
    assert pairs.gpus == ("v100", "v100_unconsolidated", "k80")
    assert pairs.alone_steps_per_s("v100", "ResNet-18", 64, 4) == 60.0
    assert pairs.alone_steps_per_s("k80", "ResNet-18", 64, 1) == 5.0
    assert pairs.alone_steps_per_s("v100", "A3C", 0, 1) == 4.0
    assert pairs.spread_ratio("v100", GANG) == 0.75


@pytest.mark.parametrize(("a", "b", "ratios"), [
    (CV, CV, (0.6, 0.6)),
    (CV, RL, (0.8, 0.75)),
    (RL, CV, (0.75, 0.8)),  # measured the other way round
    (CV, BIG, None),  # does not fit
    (BIG, RL, None),  # one of both does not run
    (RL, RL, None),  # never measured
    (GANG, CV, None),
])  # fmt: skip
def test_speeds_of_pairs_are_relative_to_each_job_alone(
    pairs: PairTable, a: PairTableKey, b: PairTableKey, ratios: tuple[float, float] | None
) -> None:
    assert pairs.shared("v100", a, b) == (None if ratios is None else pytest.approx(ratios))


def test_what_was_not_measured_is_named(pairs: PairTable) -> None:
    with pytest.raises(SimulatorError, match=r"has no GPU 'a100'; it has: v100, v100_unconsolidated, k80"):
        pairs.on("a100")
    with pytest.raises(SimulatorError, match=r"GPU k80 has no measurement of \('A3C', 1\)"):
        pairs.shared("k80", CV, RL)
    with pytest.raises(SimulatorError, match=r"\('LM \(batch size 80\)', 1\) does not fit on GPU k80"):
        pairs.alone_steps_per_s("k80", *BIG)


def test_a_gavel_trace_gets_its_run_times_from_steps_alone(pairs: PairTable, tmp_path: Path) -> None:
    steps = pairs.on("v100")
    assert isinstance(steps, TrainingStepTimes)
    trace = tmp_path / "jobs.trace"
    cells = ("python3 main.py", "images", "--num_steps", "1")
    lines = [
        ("ResNet-18 (batch size 64)", *cells, "600", "4", "1", "-1", "0"),
        ("A3C", *cells, "8", "1", "1", "-1", "5"),
    ]
    trace.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    assert load_trace(trace, profiles=steps).workload.run_s.tolist() == pytest.approx([10.0, 2.0])


def test_a_kind_is_written_as_in_the_file() -> None:
    assert str(GANG) == "('ResNet-18 (batch size 64)', 4)"
    assert str(RL) == "('A3C', 1)"


@pytest.mark.parametrize(("table", "problem"), [
    ([], "it must be an object of GPUs"),
    ({"v100": {}}, "GPU 'v100': must be an object of jobs, not {}"),
    ({"v100": {"LM": {"null": 1}}}, "GPU 'v100': must be jobs such as .*, not 'LM'"),
    ({"v100": {"('LM', 0)": {"null": 1}}}, r"must be jobs such as .*, not \"\('LM', 0\)\""),
    ({"v100": {"('LM', 1)": 3}}, r"GPU 'v100', \('LM', 1\): must be an object with 'null', the speed alone, not 3"),
    ({"v100": {"('LM', 1)": {"('LM', 1)": [1, 1]}}}, "must be an object with 'null'"),
    ({"v100": {"('LM', 1)": {"null": -1}}}, r"GPU 'v100', \('LM', 1\), null: must be steps per second.*, not -1"),
    ({"v100": {"('LM', 1)": {"null": True}}}, "must be steps per second, a number from 0, not True"),
    ({"v100": {"('LM', 1)": {"null": 10**400}}}, "must be steps per second, 0 or a number from 1e-09 to 1e[+]09, not 1000"),
    ({"v100": {"('LM', 1)": {"null": 1e-300}}}, "must be steps per second, 0 or a number from 1e-09 to 1e[+]09, not 1e-300"),
    ({"v100": {"('LM', 1)": {"null": float("nan")}}}, "must be steps per second, a number from 0, not nan"),
    ({"v100": {"('LM', 1)": {"null": 1, "('LM', 1)": [1]}}}, r"must be two speeds, the job's and the other's, not \[1\]"),
    ({"v100": {"('LM', 1)": {"null": 1, "('LM', 1)": [1, "x"]}}}, "must be steps per second, a number from 0, not 'x'"),
    ({"v100": {"('LM', 1)": {"null": 1, "other": [1, 1]}}}, "must be jobs such as .*, not 'other'"),
])  # fmt: skip
def test_a_table_of_another_form(tmp_path: Path, table: Any, problem: str) -> None:
    path = write(tmp_path / "pairs.json", table)
    with pytest.raises(TraceError, match=problem) as caught:
        load_pairs(path)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    with pytest.raises(TraceError, match="it cannot be read: No such file"):
        load_pairs(path)
    path.write_text('{"v100": {\n  "x": }\n')
    with pytest.raises(TraceError, match="it must be JSON; at column 8: Expecting value") as caught:
        load_pairs(path)
    assert caught.value.line == 2
    path.write_bytes(b"\xff{}")
    with pytest.raises(TraceError, match="it cannot be read: 'utf-8' codec"):
        load_pairs(path)
    path.write_text("[" * 100_000)
    with pytest.raises(TraceError, match="it cannot be read: maximum recursion depth"):
        load_pairs(path)
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(TraceError, match="it is larger than 64 MiB; name the right file"):
        load_pairs(path)
    with pytest.raises(TraceError, match="it must be a file, as it is read more than once"):
        load_pairs(tmp_path)
