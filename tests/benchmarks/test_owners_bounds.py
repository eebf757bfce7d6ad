"""How often owners' bounds break, on a small table."""

from __future__ import annotations

from pathlib import Path

import pytest

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks import owners_bounds
from benchmarks.owners_bounds import draw, judge
from tests.learning.tables import table, written


def test_jobs_are_drawn_by_seed_from_the_kinds_of_the_table(tmp_path: Path) -> None:
    pairs = written(table(), tmp_path / "pairs.json")
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        draw(pairs, "fast", seed, tmp_path / name)
    first, same, other = ((tmp_path / name).read_text(encoding="utf-8") for name in "abc")
    assert first == same != other
    assert len(first.splitlines()) == owners_bounds.JOBS + 1
    models = {kind.model for kind in table().kinds("fast")}
    assert {line.split(",")[3] for line in first.splitlines()[1:]} == models


@pytest.mark.thorough
def test_no_bound_breaks_by_the_truth_and_more_do_without_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(owners_bounds, "JOBS", 120)
    pairs = written(table(noise=0.3, gpu_types=("fast",)), tmp_path / "pairs.json")
    truth, bold, cautious = (
        judge(pairs, "fast", told, policy, 1)
        for told, policy in (
            ("truth", "sjf-ffs"),
            ("predicted", "sjf-ffs bound_caution=0"),
            ("predicted", "sjf-ffs"),
        )
    )
    assert truth.broken == 0 < truth.shared < truth.bounded
    assert truth.worst <= 1.001
    assert cautious.broken < bold.broken
    assert cautious.bounded == bold.bounded == truth.bounded
    assert capsys.readouterr().out == ""
