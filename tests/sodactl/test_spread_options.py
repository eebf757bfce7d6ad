"""Options of simulate and compare: how much slower gangs are on more nodes, and who knows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_soda.sodactl.main import run

KIND = "('ResNet-18 (batch size 32)', {size})"
TABLE = {
    gpu: {KIND.format(size=size): {"null": speed} for size in (1, 4)}
    for gpu, speed in (("v100", 10.0), ("v100_unconsolidated", 2.5))
}
HEADER = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval,batch_size"
TRACE = f"""{HEADER}
1,2,0,1,other,1000,10,32
2,2,1,1,other,3000,10,32
3,2,2,1,other,999,10,32
4,2,3,1,other,2998,10,32
5,4,5,1,ResNet-18,2000,10,32
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "speeds.json").write_text(json.dumps(TABLE))
    return [
        "simulate", "--json", "--trace", str(tmp_path / "jobs.csv"), "--cluster", "2x4:v100", "--policy", "soda",
        "--profiles", str(tmp_path / "speeds.json"), "--restart-cost-s", "100000",
    ]  # fmt: skip


@pytest.mark.parametrize(("knowledge", "makespan_s"), [("none", 9001), ("learned", 9001), ("truth", 5001)])
def test_soda_goes_by_what_it_is_told(
    options: list[str], knowledge: str, makespan_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*options, "--spread-knowledge", knowledge]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spread_knowledge"] == knowledge
    assert found["makespan_s"] == makespan_s


def test_knowledge_of_nothing_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    at = options.index("--profiles")
    assert run([*options[:at], *options[at + 2 :], "--spread-knowledge", "learned"]) == 2
    assert "--spread-knowledge needs --profiles" in capsys.readouterr().err
