"""``--system``, ``--cores``, ``--eliminate`` and ``--core-curves`` of simulate and compare."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.sodactl.main import run
from tests.sampling import thorough

MONTH = ("--workload", "soda-month", "--jobs", "300", "--load", "3")


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 2
    return capsys.readouterr().err


def test_a_system_is_its_policy_with_its_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = (*MONTH, "--jobs", "300" if thorough() else "100")
    coda = document(capsys, "simulate", *jobs, "--system", "coda", "--csv", str(tmp_path / "jobs.csv"))
    same = document(
        capsys, "simulate", *jobs, "--policy", "coda", "--cores", "adaptive", "--eliminate", "memory"
    )  # fmt: skip
    assert coda["systems"] == {
        "coda": {"policy": "coda", "cores": "adaptive", "eliminates": "memory", "core_curves": None}
    }
    assert same["node_rules"] == {"cores": "adaptive", "eliminates": "memory", "core_curves": None}
    for key in ("avg_jct_s", "gpu_busy_ratio", "gpu_active_ratio", "cpu_active_ratio", "gpu_at_once_ratio"):
        assert coda[key] == same[key]
    rows = list(csv.DictReader((tmp_path / "jobs.csv").open()))
    assert any(row["core_steps"] in ("2", "3", "4") for row in rows)
    assert any(row["cpus_given"] not in ("", row["cpus"]) for row in rows)


def test_systems_are_compared_with_each_other_and_with_policies(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", *MONTH, "--system", "kelp-fifo", "--system", "coda", "--policy", "fifo-skip", "--workers", "1")
    found = document(capsys, *words, "--set", "coda.max_aborts=2")
    assert [row["policy"] for row in found["policies"]] == ["kelp-fifo", "coda", "fifo-skip", "multifactor"]
    fifo, coda, plain, _ = found["policies"]
    assert coda["gpu_busy_ratio"] > fifo["gpu_busy_ratio"] + 0.05
    assert coda["avg_gpu_jct_s"] < fifo["avg_gpu_jct_s"]
    assert plain["gpu_busy_ratio"] == pytest.approx(fifo["gpu_busy_ratio"], abs=0.05)
    assert found["parameters"]["coda"] == {"max_aborts": 2}
    assert run([*words, "--jobs", "40"]) == 0
    assert "GPU utilisation" in capsys.readouterr().out


def test_a_sites_own_curves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    curves = tmp_path / "cores.csv"
    curves.write_text("model,cores,ratio\nbat,1,0.5\nbat,4,0.9\ntransformer,2,0.9\n")
    found = document(capsys, "simulate", *MONTH, "--system", "kelp-fifo", "--core-curves", str(curves))
    assert found["systems"]["kelp-fifo"]["core_curves"] == str(curves)
    assert 0.3 < found["gpu_busy_ratio"] <= 0.9
    plain = document(capsys, "simulate", *MONTH, "--policy", "kelp-fifo")
    assert plain["gpu_busy_ratio"] is None
    assert plain["gpu_active_ratio"] == pytest.approx(found["gpu_active_ratio"], rel=0.02)


@pytest.mark.parametrize(("words", "told"), [
    (("simulate", "--system", "coda", "--policy", "fifo"), "--system coda says --policy already"),
    (("simulate", "--system", "coda", "--cores", "asked"), "--system coda says --cores already"),
    (("simulate", "--system", "coda", "--eliminate", "all"), "--system coda says --eliminate already"),
    (("simulate", "--eliminate", "all"), "--eliminate needs --cores asked or --cores adaptive"),
    (("compare", "--core-curves", "x.csv"), "--core-curves needs --cores asked or --cores adaptive"),
    (("compare", "--system", "coda", "--policy", "coda"), "coda is a system and a policy here"),
    (("compare", "--system", "borg"), "borg"),
])  # fmt: skip
def test_what_does_not_go_together_is_said(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert told in " ".join(refused(capsys, *words).split())


def test_cores_that_the_cluster_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--cores", "adaptive"]) != 0
    assert "write --cluster with cores" in capsys.readouterr().err
