"""Findings over cells, and the report of a small matrix."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evaluate.cells import TRUTH, Cell
from benchmarks.evaluate.findings import BEST, find
from benchmarks.evaluate.report import markdown, write_report
from benchmarks.evaluate.runs import FinishedRun, RunSpec
from slurm_soda.simulator.report.against_stock import STOCK

REAL = Cell("lab", 1.0, 0.5, 0.9, "slurm", "predicted")
NEW = Cell("lab", 0.0, 0.5, 0.9, "slurm", "predicted")
TOLD = Cell("lab", 1.0, 0.5, 0.9, "slurm", TRUTH)


def finished(jct_s: list[float], user: list[int], wait_s: list[float] | None = None) -> FinishedRun:
    waits = jct_s if wait_s is None else wait_s
    return FinishedRun("", "", np.array(jct_s, dtype=float), np.array(waits, dtype=float), np.array(user), 8, 4, 1.0)


def results() -> dict[RunSpec, FinishedRun]:
    found = {}
    for cell, factors in (
        (REAL, {STOCK: 1.0, "srsf": 0.5, "soda": 0.52}), (NEW, {STOCK: 1.0, "srsf": 0.9, "soda": 1.2}),
        (TOLD, {STOCK: 1.0, "srsf": 0.4, "soda": 0.5}),
    ):  # fmt: skip
        for policy, factor in factors.items():
            for seed in (1, 2):
                jct_s = (np.array([1000.0, 2000, 3000, 4000]) * factor).tolist()
                found[RunSpec(cell, seed, policy, 4, None, 1.5)] = finished(jct_s, [0, 0, 1, 1])
    return found


def test_findings_over_cells() -> None:
    soda, srsf = (find(results()).overall[name] for name in ("soda", "srsf"))
    assert soda.cells == srsf.cells == 2, "the truth is a bound and does not count"
    assert soda.by_checkpoint[1.0] is not None
    assert soda.by_checkpoint[1.0].value == pytest.approx(0.52)
    assert soda.new_site is not None
    assert soda.new_site.value == pytest.approx(1.2)
    assert (soda.near_best, srsf.near_best) == (0, 2)
    assert soda.far_from_best == (NEW.name,)
    assert soda.longer_waits == (NEW.name,)
    assert soda.slower_users == ()
    assert soda.regret == pytest.approx(0.52 / 0.5)
    assert srsf.regret == pytest.approx(0.5 / 0.4)
    assert math.isnan(soda.mechanism)
    cell = find(results()).cells[REAL]
    assert (cell["soda"].best_other, cell["srsf"].best_other) == ("srsf", "soda")
    assert cell["soda"].against_best == pytest.approx(1.04)
    assert cell["soda"].preemptions_a_job == 2.0


def test_what_the_truth_would_give_is_a_bound() -> None:
    told = find(results()).told
    assert {name: ratio.value for name, each in told.items() for ratio in each.values()} == {
        "srsf": pytest.approx(0.4), "soda": pytest.approx(0.5), BEST: pytest.approx(0.4),
    }  # fmt: skip
    assert {level for each in told.values() for level in each} == {1.0}


def test_the_report(tmp_path: Path) -> None:
    runs = results()
    broken = RunSpec(REAL, 3, "srsf", 4, None, 1.5)
    runs[broken] = FinishedRun("", "", failed="it broke")
    found = find(runs)
    paths = write_report(found, {"seeds": "1, 2"}, tmp_path)
    assert [path.name for path in paths] == ["evaluation.md", "evaluation.json", "evaluation.png"]
    assert all(path.stat().st_size for path in paths)
    text = "\n".join(markdown(found, {"seeds": "1, 2"}))
    assert "✗ average JCT where 100 % can checkpoint: 0.520 (0.52 to 0.52), at most 0.5 wanted" in text
    assert "| the best of each cell | 0.400 (0.40 to 0.40) |" in text
    assert "✓ regret 1.040, at most 1.08 wanted" in text
    assert "`srsf`, seed 3: it broke" in text
    document = json.loads(paths[1].read_text())
    assert document["overall"]["soda"]["mechanism"] is None
    assert len(document["cells"]) == 3
    assert document["failed"] == [{"run": f"{REAL.name}/srsf-3", "reason": "it broke"}]
