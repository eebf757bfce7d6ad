"""--can-checkpoint and --consent, from the command line to the jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.sodactl.main import run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A long job of each of twelve users on 12 GPUs, and short ones behind them: only preemption helps those."""
    path = tmp_path / "jobs.csv"
    rows = [f"1,{at},{1000 + at if at < 12 else 10 + at},u{at % 12}" for at in range(60)]
    path.write_text("\n".join(["num_gpu,submit_time,duration,user", *rows]) + "\n")
    return path


def answer(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    assert run([*map(str, options), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_more_who_can_checkpoint_are_preempted_more(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("simulate", "--trace", trace, "--cluster", "1x12", "--policy", "srtf", "--can-checkpoint")
    none, some, all_ = (answer(capsys, *asked, ratio) for ratio in (0, 0.5, 1))
    assert none["preemptions"] == 0
    assert 0 < some["preemptions"] < all_["preemptions"]
    assert (some["can_checkpoint"], some["consent"]) == (0.5, None)
    assert "50 % of the jobs can checkpoint (--can-checkpoint 0.5, drawn by user)" in some["notes"]


def test_a_trace_has_seeds_for_what_is_drawn(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("compare", "--trace", trace, "--cluster", "1x12", "--policy", "srtf", "--seed", 1, "--seed", 2)
    found = answer(capsys, *asked, "--can-checkpoint", 0.3, "--csv", tmp_path / "per-job")
    assert found["seeds"] == [1, 2]
    first, second = (path.read_text() for path in sorted((tmp_path / "per-job").glob("jobs-srtf-*")))
    assert first != second
    assert run([*map(str, asked)]) == 2
    assert (
        "--seed is for generated jobs, and for --can-checkpoint, --consent and --cost-spread" in capsys.readouterr().err
    )


def test_who_does_not_consent_does_not_share(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("simulate", "--trace", trace, "--cluster", "1x12", "--policy", "sjf-ffs", "--pair-slowdown", 1.1)
    none, some, all_ = (answer(capsys, *asked, "--consent", ratio) for ratio in (0, 0.5, 1))
    assert none["gpu_shared_s"] == 0 < some["gpu_shared_s"] < all_["gpu_shared_s"]


@pytest.mark.parametrize("command", ["simulate", "compare", "whatif"])
@pytest.mark.parametrize(
    ("options", "words", "status"),
    [
        (("--can-checkpoint", "1.5"), "Invalid value for '--can-checkpoint'", 2),
        (("--consent", "-0.1", "--pair-slowdown", "1.5"), "Invalid value for '--consent'", 2),
        (("--can-checkpoint", "nan"), "can_checkpoint = nan is not allowed; use a ratio from 0 to 1", 1),
        (("--consent", "0.5"), "--consent needs --pairs or --pair-slowdown", 2),
    ],
)
def test_what_is_refused(
    command: str, options: tuple[str, ...], words: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *options]) == status
    assert words in capsys.readouterr().err


def test_whatif_knows_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "whatif", "--can-checkpoint", 0, "--workers", 1)
    tried = [row for row in found["policies"] if row["policy"] in ("tiresias-las", "srsf")]
    assert [row["preemptions"] for row in tried] == [0] * len(tried)
    assert any(note.startswith("0 % of the jobs can checkpoint (--can-checkpoint 0.0, ") for note in found["notes"])
