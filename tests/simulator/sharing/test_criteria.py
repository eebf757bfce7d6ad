"""Sharing on Gavel's own trace and pair table, where they are there: what the policies are built to reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.sodactl.main import run

GAVEL = Path(__file__).parents[4] / "shared/data/gavel"
TRACE, PAIRS = GAVEL / "max_min_fairness_1gpu.trace", GAVEL / "throughputs.json"

pytestmark = pytest.mark.skipif(not PAIRS.exists(), reason=f"{PAIRS} is not there")


def simulated(capsys: pytest.CaptureFixture[str], policy: str, *options: str) -> dict[str, Any]:
    words = ["simulate", "--trace", str(TRACE), "--pairs", str(PAIRS), "--cluster", "8x1:v100"]
    assert run([*words, "--policy", policy, *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("rounds", [(), ("--round-s", "360")], ids=["at once", "in rounds"])
def test_one_policy_is_best_in_both(capsys: pytest.CaptureFixture[str], rounds: tuple[str, ...]) -> None:
    found = simulated(capsys, "srsf-share", *rounds)
    assert found["avg_jct_s"] <= 12_600
    assert found["makespan_s"] <= 64_000


@pytest.mark.thorough
def test_with_predicted_interference(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    found = simulated(capsys, "srsf-share", "--knowledge", "predicted", "--no-observe")
    assert found["avg_jct_s"] <= 13_400


def test_wise_sharing_is_better_than_none_and_than_the_first_fit(capsys: pytest.CaptureFixture[str]) -> None:
    best, first, none = (simulated(capsys, name)["avg_jct_s"] for name in ("sjf-bsbf", "sjf-ffs", "sjf"))
    assert best < first < none
