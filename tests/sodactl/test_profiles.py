"""sodactl profiles: what is known, changed and undone, over a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileValueRow, RunTimePrediction

from .conftest import HOSTILE, NOW_S, Bench, stored_job

TABLE = {"v100": {
    "('ResNet-50 (batch size 64)', 1)": {"null": 5.0, "('LM (batch size 20)', 1)": [4.0, 10.0]},
    "('LM (batch size 20)', 1)": {"null": 20.0},
}}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    return path


def measured(quantity: str = "iteration_s", **more: Any) -> ProfileValueRow:
    values: dict[str, Any] = {
        "model": "resnet50", "batch": 64, "gpu_type": "v100", "gpus": 1, "partner": "", "partner_batch": 0,
        "quantity": quantity, "source": 0, "value": 0.25, "error": 0.02, "observations": 7, "origin": "", "at_s": NOW_S,
    }  # fmt: skip
    return ProfileValueRow(**{**values, **more})


def test_nothing_is_known_at_first(soda: Bench) -> None:
    assert soda("profiles", "list", "--json").document == {"values": [], "run_times": []}
    assert "jobs that name a --soda-model teach it" in soda("profiles", "list").out


def test_a_list_says_source_error_and_number_of_observations(soda: Bench) -> None:
    soda.add(measured(), measured("memory_mib", value=9000.0, error=None))
    first, second = soda("profiles", "list", "--json").document["values"]
    assert (first["source"], first["error"], first["observations"]) == ("measured", 0.02, 7)
    assert second["error"] is None
    line = next(line for line in soda("profiles", "list").out.splitlines() if "iteration_s" in line)
    for cell in ("resnet50", "64", "v100", "0.25 s", "± 0.02", "measured", "7"):
        assert cell in line


def test_an_import_a_value_by_hand_and_the_way_back(soda: Bench, table: Path) -> None:
    assert soda("profiles", "import", str(table), "--json").document["edit"] == 1
    said = (
        "profiles",
        "set",
        "ResNet-50",
        "xi",
        "1.1",
        "--batch",
        "64",
        "--gpu-type",
        "V100",
        "--with",
        "lm",
        "--with-batch",
        "20",
    )
    assert "edit 2: xi = 1.1 of resnet50, batch 64 of type v100 beside lm, batch 20" in soda(*said).out
    found = soda("profiles", "pairs", "resnet_50", "--json").document["values"]
    mine = [row for row in found if row["quantity"] == "xi" and row["model"] == "resnet50"]
    assert sorted((row["source"], row["value"]) for row in mine) == [("imported", 1.25), ("set", 1.1)]
    assert next(row for row in mine if row["source"] == "set")["origin"] == "set by root"
    assert "taken back: xi = 1.1" in soda("profiles", "undo").out
    soda("profiles", "undo", "1")
    assert soda("profiles", "list", "--json").document["values"] == []
    edits = soda("profiles", "edits", "--json").document["edits"]
    assert [(edit["action"], edit["undone_s"]) for edit in edits] == [("set", NOW_S), ("import", NOW_S)]
    assert "no edit stands" in soda("profiles", "undo", status=1).err


def test_a_table_of_one_gpu_by_another_name(soda: Bench, table: Path) -> None:
    soda("profiles", "import", str(table), "--gpu", "v100", "--as", "Tesla")
    assert {row["gpu_type"] for row in soda("profiles", "pairs", "--json").document["values"]} == {"tesla"}
    assert "say which with --gpu" in soda("profiles", "import", str(table), "--as", "x", status=2).err


def test_a_table_of_spread_gangs_alone_has_nothing_to_import(soda: Bench, tmp_path: Path) -> None:
    path = tmp_path / "spread.json"
    path.write_text(json.dumps({"v100_unconsolidated": TABLE["v100"]}))
    said = soda("profiles", "import", str(path), status=1).err
    assert "nothing that can be used: no speed above 0 of a GPU but unconsolidated ones" in said


@pytest.mark.parametrize("text", ["{", '{"v100": {"x": {}}}', "[1]"])
def test_a_faulty_table_changes_nothing(soda: Bench, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    said = soda("profiles", "import", str(path), status=1).err
    assert str(path) in said
    assert len(said.strip().splitlines()) == 1
    assert soda("profiles", "edits", "--json").document["edits"] == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("set", "a", "xi", "0.5", "--with", "b"), 1, "xi must be a number from 1"),
        (("set", "a", "xi", "nan", "--with", "b"), 2, "finite number"),
        (("set", "a", "fits", "0.5", "--with", "b"), 1, "fits must be 1 or 0"),
        (("set", "a", "memory_mib", "1e300"), 1, "memory_mib must be a number from 0 to 1.07374e+09"),
        (("set", "a", "xi", "1.5"), 1, "--with MODEL"),
        (("set", "a", "speed", "1.5"), 2, "speed"),
        (("set", "a", "restart_s", "5", "--batch", "99999999999999999999"), 2, "not in the range 0<=x<=1000000000"),
        (("set", "a", "restart_s", "5", "--gpus", "99999999999999999999"), 2, "not in the range 1<=x<=1000000000"),
        (("set", "a", "xi", "2", "--with", "b", "--with-batch", "1000000001"), 2, "not in the range 0<=x<=1000000000"),
        (("set", "!!!", "restart_s", "1.5"), 2, "no name of a model"),
        (("forget", "a"), 1, "nothing is known of a"),
        (("show", "a"), 1, "nothing is known of a"),
        (("undo",), 1, "no edit stands"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(soda: Bench, words: tuple[str, ...], status: int, said: str) -> None:
    assert said in soda("profiles", *words, status=status).err


def test_forgetting_what_was_measured_and_taking_that_back(soda: Bench) -> None:
    job = stored_job(state="COMPLETED", end_s=NOW_S)
    soda.add(job)
    soda.add(
        ObservedJob(job_pk=job.id, model="resnet50", batch=64, gpu_type="v100", gpus=1, at_s=NOW_S, run_s=100.0),
        measured(), measured("xi", partner="lm", value=1.2), measured(model="lm"),
    )  # fmt: skip
    soda("profiles", "forget", "ResNet-50")
    assert [row["model"] for row in soda("profiles", "list", "--json").document["values"]] == ["lm"]
    assert soda("profiles", "pairs", "--json").document["values"] == []
    soda("profiles", "undo")
    assert len(soda("profiles", "show", "resnet50", "--json").document["values"]) == 2
    with soda.store.read() as session:
        assert session.get(ObservedJob, job.id) is not None


def test_only_one_source_or_quantity(soda: Bench) -> None:
    soda.add(measured(), measured(source=1), measured("memory_mib"))
    counts = [
        len(soda("profiles", "list", *words, "--json").document["values"])
        for words in ((), ("--source", "imported"), ("--quantity", "memory_mib"))
    ]
    assert counts == [3, 1, 1]


def test_any_stands_for_models_without_a_value(soda: Bench) -> None:
    soda("profiles", "set", "any", "device_mib", "16384", "--gpu-type", "v100")
    soda("profiles", "set", "any", "restart_s", "45")
    assert {row["model"] for row in soda("profiles", "list", "--json").document["values"]} == {""}
    assert "any" in soda("profiles", "list").out


def test_how_good_predicted_run_times_were(soda: Bench) -> None:
    for job_id, (told_s, actual_s) in enumerate([(100.0, 200.0), (400.0, 200.0), (100.0, None)], 1):
        job = stored_job(job_id, state="COMPLETED")
        soda.add(job)
        soda.add(
            RunTimePrediction(
                job_pk=job.id, at_s=1.0, predicted_by="history", run_s=told_s, error_s=None, actual_s=actual_s
            )
        )
    (row,) = soda("profiles", "list", "--json").document["run_times"]
    assert (row["predicted_by"], row["jobs"], row["error_s"]) == ("history", 2, 150.0)
    assert row["factor"] == pytest.approx(2.0)
    assert "by like jobs" in soda("profiles", "list").out


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_others_do_nothing_to_a_terminal(soda: Bench, name: str) -> None:
    soda.add(measured(origin=name))
    out = soda("profiles", "list").out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_models_complete(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from slurm_soda.sodactl.profiles import model_names  # noqa: PLC0415

    soda.add(measured(), measured(model="vgg16"))
    monkeypatch.setattr(model_names, "load_settings", lambda path: _settings(soda))
    found = model_names.ModelName().shell_complete(None, None, "Res")  # type: ignore[arg-type]
    assert [item.value for item in found] == ["resnet50"]


def _settings(soda: Bench) -> Any:
    from slurm_soda.daemon.settings.config_file import load_settings  # noqa: PLC0415

    return load_settings(soda.config)
