"""A small pair table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

STEPS_PER_S = {"('A (batch size 16)', 1)": 10.0, "('A (batch size 32)', 1)": 8.0, "('B', 1)": 5.0, "('Big', 1)": 2.0}
PAIRS = {
    ("('A (batch size 16)', 1)", "('A (batch size 16)', 1)"): [8.0, 8.0],
    ("('A (batch size 16)', 1)", "('A (batch size 32)', 1)"): [5.0, 6.4],
    ("('A (batch size 16)', 1)", "('B', 1)"): [10.5, 4.0],
    ("('A (batch size 16)', 1)", "('Big', 1)"): [4.0, 1.0],
    ("('A (batch size 32)', 1)", "('A (batch size 32)', 1)"): [4.0, 4.0],
    ("('A (batch size 32)', 1)", "('B', 1)"): [5.0, 2.5],
    ("('A (batch size 32)', 1)", "('Big', 1)"): [0.0, 0.0],
    ("('B', 1)", "('B', 1)"): [2.0, 2.0],
    ("('B', 1)", "('Big', 1)"): [2.5, 0.5],
    ("('Big', 1)", "('Big', 1)"): [0.0, 0.0],
}


def table() -> dict[str, dict[str, dict[str, object]]]:
    """As Gavel writes it; pairs at scale 2 were not run, but for one."""
    jobs: dict[str, dict[str, object]] = {kind: {"null": speed} for kind, speed in STEPS_PER_S.items()}
    for (one, other), speeds in PAIRS.items():
        jobs[one][other] = speeds
    jobs["('B', 2)"] = {"null": 9.0, "('B', 2)": [6.0, 6.0], "('A (batch size 32)', 2)": [0.0, 0.0]}
    jobs["('A (batch size 32)', 2)"] = {"null": 15.0}
    return {"v100": jobs}


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of models A (batches 16 and 32), B and Big; neither two Big ones nor Big and A's 32 fit together."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.json"
    path.write_text(json.dumps(table()))
    return path
