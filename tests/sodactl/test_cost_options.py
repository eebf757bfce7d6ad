"""--cost-spread and --learn-costs, from the command line to the jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.sodactl.main import run

ASKED = ("simulate", "--workload", "like-pollux", "--jobs", 60, "--load", 1.5, "--set", "change_s=60", "--no-observe")
UNEVEN = (*ASKED, "--restart-cost-s", 60, "--checkpoint-every-s", 1800, "--cost-spread", 10)


def answer(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    assert run([*map(str, options), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_kinds_of_jobs_differ_in_what_a_preemption_costs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    even = answer(capsys, *ASKED, "--restart-cost-s", 60)
    uneven = answer(capsys, *UNEVEN, "--save-trace", tmp_path / "jobs.csv")
    assert (even["cost_spread"], uneven["cost_spread"], uneven["learn_costs"]) == (None, 10.0, True)
    assert any("by the kind of job (--cost-spread)" in note for note in uneven["notes"])
    assert uneven["avg_jct_s"] != even["avg_jct_s"]
    again = answer(capsys, "simulate", "--trace", tmp_path / "jobs.csv", "--cluster", uneven["cluster"],
                   "--set", "change_s=60", "--checkpoint-every-s", 1800)  # fmt: skip
    assert again["avg_jct_s"] == pytest.approx(uneven["avg_jct_s"])


def test_soda_need_not_learn_them(capsys: pytest.CaptureFixture[str]) -> None:
    uneven = answer(capsys, *UNEVEN, "--no-learn-costs")
    assert uneven["learn_costs"] is False
    assert uneven["unfinished"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cost-spread", "0.5", "--restart-cost-s", "60"), "Invalid value for '--cost-spread'"),
        (("--cost-spread", "nan", "--restart-cost-s", "60"), "Invalid value for '--cost-spread'"),
        (("--cost-spread", "10"), "--cost-spread needs --restart-cost-s"),
    ],
)
def test_what_is_refused(options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *options]) == 2
    assert words in capsys.readouterr().err
