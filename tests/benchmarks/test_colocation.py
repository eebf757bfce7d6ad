"""Trainings in pairs on one device: measured for real where there is a PyTorch, tables and journal everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.simulator.speed.pair_table import PairTableKey, load_pairs

ROOT = Path(__file__).parents[2]

from benchmarks.colocation.journal import Journal, JournalError  # noqa: E402
from benchmarks.colocation.kinds import ON_GPU, TrainingKind, name_of, runs  # noqa: E402
from benchmarks.colocation.tables import pair_table, slowdown, write  # noqa: E402

A, B, C = TrainingKind("resnet50", 32), TrainingKind("lstm", 20), TrainingKind("vgg11", 128)
SPEEDS = {
    "resnet50/32": [10.0],
    "lstm/20": [40.0],
    "resnet50/32+resnet50/32": [4.0, 6.0],
    "resnet50/32+lstm/20": [8.0, 20.0],
}
MACHINE = {"gpu": "NVIDIA H100", "torch": "2.9", "date": "2026-01-01"}


def _with_torch() -> str | None:
    for python in (os.environ.get("TORCH_PYTHON", ""), sys.executable, "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def _run(*argv: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.colocation", "--python", python, *argv],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    kept = Journal(tmp_path / "journal.jsonl")
    kept.of(MACHINE)
    for run in runs((A, B, C)):
        name = name_of(run)
        if name in SPEEDS:
            kept.add(False, run, {"fits": True, "steps_per_s": SPEEDS[name], "memory_mib": 100.0})
    kept.add(False, (C,), {"fits": True, "steps_per_s": [2.0]})
    kept.add(False, (A, C), {"fits": False})
    return kept


def test_all_pairs_once_and_everything_alone_first() -> None:
    everything = runs(ON_GPU)
    assert len(ON_GPU) == 12
    assert len(everything) == 12 + 12 * 13 // 2 == len({frozenset(run) if len(run) > 1 else run for run in everything})
    assert all(len(run) == 1 for run in everything[:12])


def test_the_pair_table_is_one_that_the_simulator_reads(journal: Journal, tmp_path: Path) -> None:
    written = write(journal, runs((A, B, C)), "h100", tmp_path)
    assert {path.name for path in written} == {"throughputs.json", "profiles.csv", "README.md"}
    pairs = load_pairs(tmp_path / "throughputs.json")
    a, b, c = (PairTableKey(kind.model, kind.batch, 1) for kind in (A, B, C))
    assert pairs.alone_steps_per_s("h100", *a) == 10
    assert pairs.shared("h100", a, b) == (0.8, 0.5)
    assert pairs.shared("h100", b, a) == (0.5, 0.8)
    assert pairs.shared("h100", a, a) == (0.5, 0.5), "beside itself the mean of both counts"
    assert pairs.shared("h100", a, c) is None, "it does not fit"
    assert pairs.shared("h100", b, c) is None, "it was not measured"


def test_slowdowns(journal: Journal) -> None:
    order = {A: 0, B: 1, C: 2}
    assert slowdown(journal, False, A, B, order) == pytest.approx(1.25)
    assert slowdown(journal, False, B, A, order) == pytest.approx(2.0)
    assert slowdown(journal, False, A, C, order) is None
    assert slowdown(journal, True, A, B, order) is None


def test_a_journal_goes_on_where_it_stopped(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"mps": false, "run": "vgg11/128+vgg')
    again = Journal(path)
    assert path.read_text() == whole, "what was cut off is dropped"
    assert again.get(False, (A, B)) == journal.get(False, (A, B))
    assert again.get(False, (C, C)) is None
    again.of({**MACHINE, "date": "2026-01-02"})
    with pytest.raises(JournalError, match=r"torch '2\.9', not '3\.0': use another --out"):
        again.of({**MACHINE, "torch": "3.0"})


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("hello\n")
    with pytest.raises(JournalError, match=r"journal.jsonl, line 1: this is no result: 'hello'; delete the file"):
        Journal(path)


def test_a_kind_that_does_not_fit_alone_is_in_no_table(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "journal.jsonl")
    kept.add(False, (A,), {"fits": False})
    kept.add(False, (B,), {"fits": True, "steps_per_s": [1.0]})
    kept.add(False, (A, B), {"fits": False})
    assert pair_table(kept, runs((A, B)), mps=False) == {B.key: {"null": 1.0}}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--kinds", "resnet50"), "a kind is MODEL/BATCH such as resnet50/64, not 'resnet50'"),
        (("--kinds", "gpt/8"), "there is no model 'gpt'; there are: lstm,"),
        (("--seconds", "0"), "it must be a number above 0, not '0'"),
    ],
)
def test_wrong_options(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = _run("--out", str(tmp_path), "--device", "cpu", *argv)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_python_without_pytorch_is_named(tmp_path: Path) -> None:
    done = _run("--out", str(tmp_path), "--device", "cpu", python="/bin/false")
    assert done.returncode == 1
    assert "PyTorch must be importable: --python" in done.stderr


def test_two_tiny_models_on_the_processor(tmp_path: Path) -> None:
    python = _with_torch()
    if python is None:
        pytest.skip("no Python with PyTorch here (set TORCH_PYTHON)")
    argv = ("--device", "cpu", "--out", str(tmp_path), "--seconds", "0.5", "--times", "1")
    cut = _run(*argv, "--minutes", "0.0001", python=python)
    assert cut.returncode == 3, cut.stderr
    assert "run it again to go on" in cut.stderr
    done = _run(*argv, python=python)
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads((tmp_path / "throughputs.json").read_text())
    alone = {key: speeds["null"] for key, speeds in table["cpu"].items()}
    assert len(alone) == 2
    assert all(speed > 0 for speed in alone.values())
    assert all(len(speeds) == 3 for speeds in table["cpu"].values())
    assert "5/5" not in _run(*argv, python=python).stdout, "everything is in the journal"
