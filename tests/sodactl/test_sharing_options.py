"""simulate and compare with jobs that share GPUs."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.learning.interference import fit_interference
from slurm_soda.policies.sharing.prediction.model_json import encode_model
from slurm_soda.policies.sharing.prediction.speed_tables import parse_speed_table
from slurm_soda.sodactl.main import run

KINDS = ("('A3C', 1)", "('CycleGAN', 1)", "('LM (batch size 40)', 1)", "('LM (batch size 80)', 1)")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Two jobs of 100 s that slow each other down by a quarter, and one of a model that was not measured."""
    table = {"v100": {one: {"null": 1.0, **{other: [0.8, 0.8] for other in KINDS}} for one in KINDS}}
    (tmp_path / "pairs.json").write_text(json.dumps(table))
    (tmp_path / "jobs.csv").write_text(
        "num_gpu,submit_time,duration,model_name\n1,0,100,A3C\n1,0,100,CycleGAN\n1,1000,10,odd\n1,1000,10,odd\n"
    )
    cluster = ("--trace", str(tmp_path / "jobs.csv"), "--cluster", "1x1")
    return (*cluster, "--pairs", str(tmp_path / "pairs.json"), "--policy", "sjf-ffs")


def simulated(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run(["simulate", "--json", *options]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_jobs_share_a_gpu(files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, *files, "--csv", str(tmp_path / "out.csv"))
    assert found["makespan_s"] == pytest.approx(1020.0)
    assert found["gpu_shared_s"] == pytest.approx(125.0)
    assert found["gpu_shared_ratio"] == pytest.approx(125.0 / 145.0)
    assert found["shared_slowdown"] == pytest.approx(1.25)
    assert found["gpu_util_ratio"] == pytest.approx(145.0 / 1020.0)
    assert found["sharing"] == {
        "gpu": "v100", "pair_slowdown": None, "model_map": None, "knowledge": "truth", "predictor": None,
        "pair_guess": None, "observes": True, "max_slowdown": None, "parts": True, "mechanism": "ideal",
    }  # fmt: skip
    assert found["notes"][-1].startswith("jobs of models that were not measured never share (odd)")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [(row["end_s"], row["shared_s"], row["xi"]) for row in rows[:2]] == [("125", "125", "1.25")] * 2


def test_the_table_tells_of_sharing_where_somebody_did(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *files, "--policy", "sjf"]) == 0
    head, *lines = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert "GPUs shared" in head
    assert [line.split()[0] for line in lines] == ["sjf-ffs", "sjf", "multifactor"]
    assert "86 %" in lines[0]
    assert run(["compare", *files[:-1], "fifo", "--policy", "sjf"]) == 0
    assert "GPUs shared" not in capsys.readouterr().out


def test_stand_ins_and_one_slowdown_for_all(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "map.csv").write_text("model,table_model,batch_size\nodd,LM,40\n")
    found = simulated(capsys, *files, "--model-map", str(tmp_path / "map.csv"))
    assert found["makespan_s"] == pytest.approx(1012.5)
    assert found["notes"] == []
    found = simulated(capsys, *files[:4], "--pair-slowdown", "1.5", "--policy", "sjf-ffs")
    assert found["makespan_s"] == pytest.approx(1015.0)
    assert found["sharing"]["pair_slowdown"] == 1.5


def test_policies_may_know_less_than_the_truth(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    prior = simulated(capsys, *files[:-1], "sjf-bsbf", "--knowledge", "prior", "--no-observe")
    assert prior["gpu_shared_ratio"] == 0.0  # by turns nobody gains
    assert (prior["sharing"]["knowledge"], prior["sharing"]["observes"]) == ("prior", False)
    assert simulated(capsys, *files[:-1], "sjf-bsbf")["gpu_shared_ratio"] > 0.8


def test_a_wrong_guess_parts_a_pair_beyond_its_bound(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = (
        *files[:4],
        "--pair-slowdown",
        "2",
        "--knowledge",
        "predicted",
        "--pair-guess",
        "1.2",
        "--policy",
        "sjf-ffs",
    )
    assert simulated(capsys, *wrong)["parted"] == 0
    found = simulated(capsys, *wrong, "--max-slowdown", "1.3")
    assert (found["parted"], found["preemptions"], found["sharing"]["max_slowdown"]) == (1, 1, 1.3)
    assert simulated(capsys, *wrong, "--max-slowdown", "1.3", "--no-parting")["parted"] == 0
    assert run(["simulate", *wrong, "--max-slowdown", "1.3"]) == 0
    assert re.search(r"pairs parted +1\n", capsys.readouterr().out)


@pytest.mark.parametrize(("options", "problem"), [
    (("--pair-slowdown", "2", "--pair-guess", "1.2"), "--pair-guess needs --knowledge predicted"),
    (("--max-slowdown", "1.3"), "--max-slowdown needs --pairs or --pair-slowdown"),
    (("--pair-slowdown", "2", "--max-slowdown", "0.9"), "0.9 is not in the range x>=1.0"),
    (("--pair-slowdown", "2", "--knowledge", "predicted"), "--knowledge predicted needs --pairs or --pair-guess"),
])  # fmt: skip
def test_bounds_and_guesses_need_something_to_slow_jobs(
    options: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *options]) == 2
    assert problem in capsys.readouterr().err


def test_pairs_may_be_predicted_from_others(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy", reason="the extra learn is not installed")
    found = simulated(capsys, *files, "--knowledge", "predicted")
    assert found["makespan_s"] == pytest.approx(1020.0)
    assert found["sharing"]["knowledge"] == "predicted"


def test_a_table_of_too_few_pairs_to_predict_from_names_the_way_out(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy", reason="the extra learn is not installed")
    (tmp_path / "pairs.json").write_text(json.dumps({"v100": {KINDS[0]: {"null": 1.0, KINDS[0]: [0.5, 0.5]}}}))
    assert run(["simulate", *files, "--knowledge", "predicted"]) == 1
    err = capsys.readouterr().err
    assert "pairs.json: interference needs 3 or more different pairs to learn from, not 1: measure more" in err
    assert err.endswith("for knowledge that is not learned from it: --predictor FILE or --knowledge prior\n")
    both = {one: {"null": 1.0, one: [0.5, 0.5], KINDS[1 - at]: [0.5, 0.4]} for at, one in enumerate(KINDS[:2])}
    del both[KINDS[1]][KINDS[1]]  # two different pairs, one of them measured from both sides
    (tmp_path / "pairs.json").write_text(json.dumps({"v100": both}))
    assert run(["simulate", *files, "--knowledge", "predicted"]) == 1
    assert "3 or more different pairs to learn from, not 2" in capsys.readouterr().err


def test_gpus_that_the_table_does_not_have_are_noted(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = "on all GPUs (h100) jobs do to each other what they do on v100 by --pairs"
    assert said in simulated(capsys, *files, "--cluster", "1x1:h100")["notes"]
    assert said not in simulated(capsys, *files, "--cluster", "1x1:v100")["notes"]


def test_a_table_that_contradicts_itself_about_memory_keeps_jobs_apart(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured as fitting in one order and as not fitting in the other, whoever comes first."""
    one, other = KINDS[:2]
    for first, second in ((one, other), (other, one)):
        table = {first: {"null": 1.0, second: [0.8, 0.8]}, second: {"null": 1.0, first: [0.0, 0.8]}}
        (tmp_path / "pairs.json").write_text(json.dumps({"v100": table}))
        for knowledge in ("truth", "prior"):
            found = simulated(capsys, *files, "--knowledge", knowledge)
            assert (found["makespan_s"], found["unfinished"]) == (pytest.approx(1020.0), 0)
            assert not found["gpu_shared_ratio"] > 0


def test_a_pipe_is_no_model(files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for option in (("--knowledge", "predicted", "--predictor"), ("--model-map",), ("--pairs",)):
        assert run(["simulate", *files, *option, str(tmp_path / "pipe")]) == 1
        assert "pipe: it must be a file, as it is read more than once" in capsys.readouterr().err


def test_a_stored_model_may_predict(files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="the extra learn is not installed")
    path = tmp_path / "model.json"
    table = parse_speed_table(json.loads((tmp_path / "pairs.json").read_text()))
    path.write_text(json.dumps(encode_model(fit_interference(table))))
    chosen = (*files, "--knowledge", "predicted", "--predictor", str(path))
    found = simulated(capsys, *chosen)
    assert found["sharing"]["predictor"] == str(path)
    for broken in ("{}", "[" * 100_000, '{"format": "slurm-soda interference 2", "gpu_types": 3}'):
        path.write_text(broken)
        assert run(["simulate", *chosen]) == 1
        assert "model.json: it cannot be used as a model of interference: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--policy", "sjf-bsbf"], 1, "policy sjf-bsbf: nobody says what jobs do to each other: give --pairs FILE"),
        (["--knowledge", "prior"], 2, "--knowledge and --model-map need --pairs"),
        (["--pair-slowdown", "1.5", "--pairs", "x"], 2, "give either --pairs or --pair-slowdown"),
        (["--pair-slowdown", "1.5", "--knowledge", "predicted"], 2, "--knowledge predicted needs --pairs"),
        (["--pair-slowdown", "1.5", "--predictor", "x"], 2, "--predictor needs --knowledge predicted"),
        (["--predictor", "x"], 2, "--predictor needs --knowledge predicted"),
        (["--pair-slowdown", "0.5"], 2, "0.5 is not in the range x>=1.0"),
        (["--pairs", "nowhere.json"], 1, "nowhere.json: it cannot be read"),
        (["--pairs", "/dev/null"], 1, "/dev/null: it must be a file"),
        (["--pair-slowdown", "inf"], 1, "a slowdown must be a number from 1 to 1e+09, not inf"),
        (["--pair-slowdown", "1e308"], 1, "a slowdown must be a number from 1 to 1e+09, not 1e+308"),
        (["--policy", "ojpap", "--set", "interval_s=inf"], 2, "interval_s = inf is not allowed"),
        (["--policy", "ojpp", "--set", "caution=inf"], 2, "caution = inf is not allowed"),
        (["--engine", "sharing"], 1, "nobody says what jobs do to each other"),
        (["--pair-slowdown", "2", "--policy", "sjf-bsbf", "--placement", "spread"], 1, "leave --placement out"),
        (["--pair-slowdown", "2", "--policy", "sjf-bsbf", "--cores", "asked"], 1, "leave --cores and --system out"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(options: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--jobs", "5", *options]) == status
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True)
    assert "Traceback" not in err


def test_a_mechanism_needs_slowdowns_and_costs_time(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--workload", "small", "--mechanism", "slurm"]) == 2
    assert "--mechanism slurm needs --pairs or --pair-slowdown" in capsys.readouterr().err
    found = simulated(capsys, *files, "--mechanism", "slurm", "--checkpoint-every-s", "5")
    assert found["sharing"]["mechanism"] == "slurm"
    assert found["costs"]["checkpoint_every_s"] == 5.0
    assert found["avg_jct_s"] > simulated(capsys, *files)["avg_jct_s"]
