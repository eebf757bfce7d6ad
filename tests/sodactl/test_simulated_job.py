"""``sodactl simulate --explain JOB``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.sodactl.main import run

TRACE = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
first,2,0,100,vgg11,5000,5
second,2,10,100,vgg16,200,5
third,1,20,100,vgg16,100,5
"""


@pytest.fixture
def simulate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)

    def go(*options: str, status: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        assert run(["simulate", "--trace", str(path), "--cluster", "1x2", *options]) == status
        out, err = capfd.readouterr()
        return out, err

    return go


def test_a_job_that_joins_another_one_has_the_pairs_arithmetic(simulate: Any) -> None:
    options = ("--policy", "sjf-bsbf", "--pair-slowdown", "1.3", "--explain", "second")
    told = json.loads(simulate(*options, "--json")[0])["explained"]
    assert (told["job"], told["first_start_s"], told["end_s"]) == ("second", 10.0, 270.0)
    first = told["said"][0]
    assert (first["at_s"], first["verdict"]) == (10.0, "start")
    assert first["sharing"]["alone_s"] == [200.0, 4990.0]
    assert first["sharing"]["trials"][0]["xi"][0]["new"]["value"] == 1.3
    text = simulate(*options)[0]
    assert "Together now" in text
    assert "One after the other: it ends after 5,190 s" in text


def test_a_job_that_others_join_is_told_who_slowed_it_and_by_how_much(simulate: Any) -> None:
    options = ("--policy", "sjf-bsbf", "--pair-slowdown", "1.3", "--explain", "first")
    shared = json.loads(simulate(*options, "--json")[0])["explained"]["shared"]
    assert shared["with"][0] == {"job": "second", "start_s": 10.0, "end_s": 270.0}
    assert [one["job"] for one in shared["with"]] == ["second", "third"]
    assert shared["xi"] == shared["worst_xi"] == pytest.approx(1.3)
    assert shared["shared_s"] == pytest.approx(sum(one["end_s"] - one["start_s"] for one in shared["with"]))
    text = simulate(*options)[0]
    assert "; meanwhile it took 1.30 times as long as alone (at worst 1.30):" in text
    assert "\n  from 10 s to 270 s with job second\n" in text
    alone = json.loads(simulate("--policy", "srsf", "--explain", "first", "--json")[0])["explained"]
    assert alone["shared"] is None


def test_a_job_that_moves_is_not_told_that_it_makes_way(simulate: Any, tmp_path: Path) -> None:
    head = TRACE.splitlines()[0]
    rows = [f"j{at},1,{at},100,m{at % 2},{1000 * (at + 1)},5" for at in range(8)]
    (tmp_path / "jobs.csv").write_text("\n".join([head, *rows, ""]))
    verdicts, texts = set(), []
    for at in range(8):
        options = ("--policy", "srsf-share", "--set", "min_run_s=0", "--pair-slowdown", "1.3", "--explain", f"j{at}")
        said = json.loads(simulate(*options, "--json")[0])["explained"]["said"]
        verdicts |= {(one["verdict"], bool(one["sharing"] and one["sharing"]["share"])) for one in said}
        texts.append(simulate(*options)[0])
    assert ("preempt", True) in verdicts
    assert any("It stops, to start again on other GPUs." in text for text in texts)


def test_a_policy_with_bounds_tells_whom_a_job_meets_by_the_names_of_the_trace(simulate: Any) -> None:
    options = ("--policy", "ojpp", "--set", "balance=0.2", "--pair-slowdown", "1.15", "--explain", "second")
    told = json.loads(simulate(*options, "--json")[0])["explained"]
    met = told["said"][0]["sharing"]
    assert (told["first_start_s"], met["share"], met["gpus"]) == (10.0, True, [0, 1])
    assert met["alone_s"] == [200.0, 4990.0]
    assert met["together"]["new_end_s"] == pytest.approx(230.0)
    assert [co_runner["job_id"] for co_runner in met["co_runners"]] == [1]
    text = simulate(*options)[0]
    assert "Slowdown with job first: it takes 1.15" in text
    assert "interference (theta) 0.150, at most 0.200" in text


@pytest.mark.parametrize("policy", ["ojpp", "ojpap", "colocation"])
def test_who_is_told_of_makes_no_difference(simulate: Any, policy: str) -> None:
    options = ("--policy", policy, "--pair-slowdown", "1.3", "--json")
    plain, heard = json.loads(simulate(*options)[0]), json.loads(simulate(*options, "--explain", "third")[0])
    assert heard["explained"]["said"][0]["sharing"] is not None
    assert (heard["avg_jct_s"], heard["makespan_s"]) == (plain["avg_jct_s"], plain["makespan_s"])


@pytest.mark.parametrize("policy", ["srsf", "fifo", "tiresias-las", "drf", "gandiva"])
def test_any_policy_can_be_listened_to_and_decides_the_same(simulate: Any, policy: str) -> None:
    plain = json.loads(simulate("--policy", policy, "--json")[0])
    heard = json.loads(simulate("--policy", policy, "--explain", "third", "--json")[0])
    assert heard["explained"]["said"]
    assert heard["avg_jct_s"] == plain["avg_jct_s"]
    assert "explained" not in plain


def test_what_a_policy_was_told_of_run_times_is_shown(simulate: Any) -> None:
    told = json.loads(simulate("--policy", "srsf", "--explain", "second", "--estimates", "predicted", "--json")[0])
    left = [said["run_time_left_s"] for said in told["explained"]["said"]]
    assert left[0] != 200.0
    assert min(left) > 0


def test_a_job_that_is_not_there(simulate: Any) -> None:
    _, err = simulate("--explain", "nobody", status=2)
    assert "the trace has no job 'nobody'; its jobs are called such as 'first'" in err
