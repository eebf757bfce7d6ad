"""Statistics of the matrix against values worked out by hand, and the report of a small one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evaluate import statistics
from benchmarks.evaluate.cells import STOCK, TRUTH, Cell
from benchmarks.evaluate.findings import find
from benchmarks.evaluate.report import markdown, write_report
from benchmarks.evaluate.runs import FinishedRun, RunSpec
from benchmarks.evaluate.statistics import AVG_JCT, P99_WAIT, WORST_JOB, WORST_USER

REAL = Cell("lab", 1.0, 0.5, 0.9, "slurm", "predicted")
NEW = Cell("lab", 0.0, 0.5, 0.9, "slurm", "predicted")
TOLD = Cell("lab", 1.0, 0.5, 0.9, "slurm", TRUTH)


def finished(jct_s: list[float], user: list[int], wait_s: list[float] | None = None) -> FinishedRun:
    waits = jct_s if wait_s is None else wait_s
    return FinishedRun("", "", np.array(jct_s, dtype=float), np.array(waits, dtype=float), np.array(user), 8, 4, 1.0)


STOCK_RUN = finished([100, 200, 300, 400], [0, 0, 1, 1])


def test_figures_by_hand() -> None:
    found = statistics.figures(finished([100, 200, 900, 400], [0, 0, 1, 2]))
    assert {key: float(values[0]) for key, values in found.items()} == {
        AVG_JCT: 400, P99_WAIT: 900, WORST_USER: 900, WORST_JOB: 900,
    }  # fmt: skip


def test_a_user_who_counts_twice_counts_twice() -> None:
    weights = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = statistics.figures(finished([100, 200, 900, 400], [0, 0, 1, 2]), weights)
    assert found[AVG_JCT].tolist() == [(2 * 300 + 400) / 5, 900]
    assert found[WORST_USER].tolist() == [400, 900]
    assert found[WORST_JOB].tolist() == [400, 900]
    assert found[P99_WAIT].tolist() == [400, 900]


def test_waits_below_a_minute_are_one() -> None:
    runs = {1: finished([1000, 1000], [0, 1], [5, 20])}
    stock = {1: finished([1000, 1000], [0, 1], [1, 2])}
    assert statistics.compare_runs(runs, stock)[P99_WAIT].value == 1.0


def test_ratios_are_geometric_means_over_seeds_that_both_ran() -> None:
    half, twice = finished([50, 100, 150, 200], [0, 0, 1, 1]), finished([800, 1600, 2400, 3200], [0, 0, 1, 1])
    found = statistics.compare_runs({1: half, 2: twice, 3: half}, {1: STOCK_RUN, 2: STOCK_RUN, 4: STOCK_RUN})
    assert found[AVG_JCT].value == pytest.approx(math.sqrt(0.5 * 8))
    assert found[WORST_JOB].value == pytest.approx(2.0)
    assert found[AVG_JCT].low == pytest.approx(0.5)
    assert found[AVG_JCT].high == pytest.approx(8.0)


def test_the_same_runs_differ_nowhere_and_an_interval_covers_its_value() -> None:
    rng = np.random.default_rng(3)
    user = np.arange(300) % 12
    stock = {seed: finished((100 + rng.exponential(1000, 300)).tolist(), user.tolist()) for seed in range(5)}
    same = statistics.compare_runs(stock, stock)
    assert all(ratio.value == ratio.low == ratio.high == 1.0 for ratio in same.values())
    ours = {
        seed: finished((run.jct_s * rng.uniform(0.2, 1.2, 300)).tolist(), user.tolist()) for seed, run in stock.items()
    }
    found = statistics.compare_runs(ours, stock)
    again = statistics.compare_runs(ours, stock)
    for key in (AVG_JCT, P99_WAIT, WORST_USER):
        assert found[key].low < found[key].value < found[key].high
        assert (found[key].draws == again[key].draws).all(), "the draws are seeded"
    assert 0.01 < found[AVG_JCT].high - found[AVG_JCT].low < 0.2


def test_intervals_cover_as_often_as_they_say() -> None:
    """Log-normal JCTs, a policy that divides each by a random factor of mean log -0.5: 40 worlds."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(40):
        runs, stock = {}, {}
        for seed in range(8):
            base = np.exp(rng.normal(7, 0.5, 60))
            user = rng.integers(0, 20, 60).tolist()
            shift = rng.normal(-0.5, 0.1)
            stock[seed], runs[seed] = finished(base.tolist(), user), finished((base * math.exp(shift)).tolist(), user)
        ratio = statistics.compare_runs(runs, stock)[AVG_JCT]
        covered += ratio.low <= math.exp(-0.5) <= ratio.high
    assert covered >= 32


def test_the_most_hurt_user() -> None:
    stock = {1: finished([100] * 20 + [10], [0] * 10 + [1] * 10 + [2])}
    ours = {1: finished([50] * 10 + [180] * 10 + [900], [0] * 10 + [1] * 10 + [2])}
    assert statistics.most_hurt_user(ours, stock) == pytest.approx(1.8), "one job is nobody's average"


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
    assert "✓ regret 1.040, at most 1.08 wanted" in text
    assert "`srsf`, seed 3: it broke" in text
    document = json.loads(paths[1].read_text())
    assert document["overall"]["soda"]["mechanism"] is None
    assert len(document["cells"]) == 3
    assert document["failed"] == [{"run": f"{REAL.name}/srsf-3", "reason": "it broke"}]
