"""Runs of the matrix: kept, read again, and run anew where anything differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.evaluate import runs
from benchmarks.evaluate.__main__ import main, make_specs, read_seeds
from benchmarks.evaluate.cells import TRUTH, Cell, balanced_cells
from benchmarks.evaluate.runs import FinishedRun, RunSpec, finished_runs, read_run, run_missing, run_once
from slurm_soda.simulator.report.against_stock import STOCK

CELL = Cell("lab", 0.3, 0.5, 0.9, "slurm", "predicted")
SPEC = RunSpec(CELL, 1, "tiresias-las", 40, None, 1.5)


def silent(_done: int, _total: int, _left_s: float) -> None:
    """No progress."""


def test_a_run_can_be_read_again(tmp_path: Path) -> None:
    made = run_once(SPEC, tmp_path, "code")
    read = read_run(SPEC.path(tmp_path))
    assert read is not None
    assert (read.inputs, read.code, read.failed, read.preemptions) == (SPEC.inputs(), "code", "", made.preemptions)
    np.testing.assert_allclose(read.jct_s, made.jct_s, atol=0.051)
    np.testing.assert_array_equal(read.user, made.user)
    assert len(read.jct_s) == 40
    assert (read.wait_s <= read.jct_s).all()


def test_every_policy_runs_the_same_jobs_and_truth_differs_from_prediction(tmp_path: Path) -> None:
    stock, ours = (run_once(replace(SPEC, policy=name), tmp_path, "code") for name in (STOCK, "srsf-share"))
    np.testing.assert_array_equal(stock.user, ours.user)
    assert (stock.preemptions, stock.revoked) == (0, 0)
    told = replace(SPEC, cell=replace(CELL, knowledge=TRUTH), policy="srsf-share").scenario()
    assert not told.predicted
    assert told.sharing is not None
    assert (told.sharing.knowledge, SPEC.scenario().sharing.knowledge) == ("truth", "prior")


def test_a_cell_says_who_agrees() -> None:
    jobs = replace(SPEC, jobs=400).scenario().workload
    assert jobs.preemptible.mean() == pytest.approx(0.3, abs=0.25)
    assert 0 < jobs.preemptible.sum() < len(jobs)
    everybody = replace(SPEC, cell=replace(CELL, can_checkpoint=1.0, consent=0.0)).scenario().workload
    assert everybody.preemptible.all()
    assert not everybody.shares.any()


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, seed=2), replace(SPEC, jobs=41), replace(SPEC, slowdown=1.6), replace(SPEC, policy="srsf"),
        replace(SPEC, cell=replace(CELL, load=1.1)),
    ],
)  # fmt: skip
def test_other_inputs_are_other_runs(other: RunSpec) -> None:
    assert other.inputs() != SPEC.inputs()


def test_a_table_counts_by_what_is_in_it(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "same", "other")]
    for path, text in zip(paths, ("a", "a", "b"), strict=True):
        path.write_text(text)
    one, same, other = (replace(SPEC, pairs=path).inputs() for path in paths)
    assert one == same != other


def test_what_is_there_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [SPEC, replace(SPEC, seed=2), replace(SPEC, seed=3)]
    code = runs.code_version()
    kept = run_once(SPEC, tmp_path, code)
    run_once(replace(specs[1]), tmp_path, "older source")
    specs[2].path(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    specs[2].path(tmp_path).write_text('{"inputs": "cut o')
    assert list(finished_runs(specs, tmp_path, code)) == specs[:1]
    assert list(finished_runs(specs, tmp_path, None)) == specs[:2]
    began: list[RunSpec] = []

    def in_this_process(missing, folder, version, _workers):  # type: ignore[no-untyped-def]
        began.extend(missing)
        return ((spec, run_once(spec, folder, version)) for spec in missing)

    monkeypatch.setattr(runs, "_in_processes", in_this_process)
    found = run_missing(specs, tmp_path, workers=1, progress=silent)
    assert began == specs[1:]
    assert set(found) == set(specs)
    assert found[SPEC].inputs == kept.inputs
    began.clear()
    run_missing(specs, tmp_path, workers=1, progress=silent)
    assert began == []


def test_a_run_that_failed_is_tried_again(tmp_path: Path) -> None:
    run = FinishedRun(SPEC.inputs(), "code", failed="a reason")
    SPEC.path(tmp_path).parent.mkdir(parents=True)
    SPEC.path(tmp_path).write_text(json.dumps(run.document()))
    assert finished_runs([SPEC], tmp_path, "code") == {}


def test_the_time_left_goes_by_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 10.0, 11.0))
    monkeypatch.setattr(runs.time, "monotonic", lambda: next(clock))
    slow, fast = SPEC, replace(SPEC, policy="srsf")
    left = runs._TimeLeft([slow, fast, replace(slow, seed=2), replace(fast, seed=2)], 1)
    assert left.left_s(slow) == 30.0, "nothing else is known yet"
    assert left.left_s(fast) == 11.0


def test_early_results_have_every_cell() -> None:
    specs = make_specs(balanced_cells(), (1, 2), (STOCK, "srsf"), None, 1.5, quick=False)
    first = specs[: len(specs) // 2]
    assert {spec.seed for spec in first} == {1}
    assert {spec.cell for spec in first} == set(balanced_cells())
    assert len(specs) == len(set(specs)) == 18 * 2 * 2


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("21-23", (21, 22, 23)), (None, None)])
def test_seeds(text: str | None, seeds: tuple[int, ...] | None) -> None:
    assert read_seeds(None, None, text) == seeds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seeds", "5-1"), "'5-1' is not allowed; give one seed, such as 3, or some, such as 1-5"),
        (("--data", "/nowhere"), "Gavel's table of measured pairs"),
        (("--pair-slowdown", "1.5", "--report-only", "--out", "{tmp}"), "no results yet"),
    ],
)
def test_what_is_refused_at_the_start(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    asked = [text.format(tmp=tmp_path) for text in options]
    found = CliRunner().invoke(main, [*asked, "--quick", "--without", "soda"])
    assert found.exit_code != 0
    assert words in found.output
