"""sodactl compare: one row a policy, the first one the measure of the others."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.policies.registry.catalog import policy_names
from slurm_soda.simulator.report.against_stock import STOCK
from slurm_soda.sodactl.main import run
from slurm_soda.sodactl.simulation.compare import DEFAULT_POLICIES

SODACTL = Path(sys.executable).parent / "sodactl"
FEW = ("--jobs", "40", "--load", "20", "--policy", "fifo", "--policy", "srsf", "--workers", "1", "--no-stock")

Compare = Callable[..., dict[str, Any]]


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Compare:
    def compare(*options: object) -> dict[str, Any]:
        assert run(["compare", "--json", *map(str, options)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return compare


def test_without_policies_the_well_known_ones_take_part(compare: Compare) -> None:
    found = compare("--jobs", 20, "--workers", 1)
    names = [name for name in DEFAULT_POLICIES if name in policy_names()]
    assert [row["policy"] for row in found["policies"]] == [*names, STOCK]
    assert set(DEFAULT_POLICIES) <= set(policy_names())
    assert found["baseline"] == "fifo"
    assert (found["source"], found["cluster"], found["seeds"]) == ("generated: small", "16x4", [1])


def test_every_policy_is_held_against_stock_slurm(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    options = (*FEW[:-1], "--workload", "lab", "--seed", "1", "--seed", "2")
    found = compare(*options)
    rows = {row["policy"]: row for row in found["policies"]}
    assert found["stock"] == STOCK
    assert rows[STOCK]["against_stock"] is None
    ratios = [
        ours["avg_jct_s"] / theirs["avg_jct_s"]
        for ours, theirs in zip(rows["srsf"]["runs"], rows[STOCK]["runs"], strict=True)
    ]
    held = rows["srsf"]["against_stock"]["avg_jct"]
    assert held["ratio"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert held["low"] < held["ratio"] < held["high"]
    assert rows["srsf"]["against_stock"]["avg_slowdown"]["ratio"] < 1
    assert 0 < rows["srsf"]["fairness_index"] <= 1
    assert run(["compare", *options]) == 0
    told = capsys.readouterr().out
    assert "Over stock Slurm (multifactor) on the same jobs" in told
    assert compare(*FEW)["stock"] is None


@pytest.mark.thorough
def test_all_well_known_policies_stand_costly_restarts(compare: Compare) -> None:
    found = compare("--jobs", 80, "--load", 2, "--workers", 1, "--restart-cost-s", 62, "--checkpoint-cost-s", 5)
    assert [row["policy"] for row in found["policies"]] == [*DEFAULT_POLICIES, STOCK]
    assert all(row["unfinished"] == 0 for row in found["policies"])


def test_rows_are_what_simulate_says(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    rows = compare(*FEW)["policies"]
    for row in rows:
        assert run(["simulate", "--jobs", "40", "--load", "20", "--policy", row["policy"], "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        for key in ("jobs", "avg_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "gpu_util_ratio", "preemptions"):
            assert row[key] == pytest.approx(alone[key]), key
    assert rows[0]["times_better"] == 1
    assert rows[1]["times_better"] == pytest.approx(rows[0]["avg_jct_s"] / rows[1]["avg_jct_s"])


def test_several_seeds_are_means_with_spreads(compare: Compare) -> None:
    found = compare(*FEW, "--seed", 1, "--seed", 2, "--seed", 1)
    assert found["seeds"] == [1, 2]
    for row in found["policies"]:
        first, second = (one["avg_jct_s"] for one in row["runs"])
        assert [one["seed"] for one in row["runs"]] == [1, 2]
        assert row["avg_jct_s"] == pytest.approx((first + second) / 2)
        assert row["spread"]["avg_jct_s"] == pytest.approx(abs(first - second) / 2**0.5)
        assert row["jobs"] == 80
        assert row["runs"][0]["jobs"] == 40


def test_the_table_has_a_row_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *FEW]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "40 jobs of small, seed 1 on cluster 16x4 (64 GPUs)"
    assert lines[2].split("  ")[0] == "policy"
    assert [line.split()[0] for line in lines[3:5]] == ["fifo", "srsf"]
    assert "1.00×" in lines[3]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("columns", "left_out"), [(200, []), (100, ["p99"]), (80, ["p99", "makespan", "median", "JCT / run time"])]
)
def test_a_narrow_terminal_sees_fewer_columns_and_no_folded_ones(columns: int, left_out: list[str]) -> None:
    reader, writer = pty.openpty()
    subprocess.run(
        [SODACTL, "compare", *FEW],
        stdout=writer,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        check=True,
    )
    os.close(writer)
    lines = os.read(reader, 65536).decode().splitlines()
    os.close(reader)
    titles = [
        "policy",
        "avg JCT",
        "times better",
        "median",
        "p95",
        "p99",
        "avg wait",
        "JCT / run time",
        "makespan",
        "GPUs used",
        "preemptions",
    ]
    printed = re.sub(r"\x1b\[[0-9;]*m", "", lines[2])
    assert re.split(r"\s{2,}", printed.strip()) == [title for title in titles if title not in left_out]
    assert len(lines) == 5
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= columns for line in lines)


def test_processes_say_what_one_process_says(tmp_path: Path, compare: Compare) -> None:
    found = {}
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        document = compare(*FEW, "--seed", 1, "--seed", 2, "--workers", workers, "--csv", folder)
        for row in document["policies"]:
            for timed in (row, row["spread"], *row["runs"]):
                for key in ("cpu_s", "jobs_per_cpu_s"):
                    timed.pop(key, None)
        found[workers] = (document, {path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[1] == found[2]
    assert list(found[1][1]) == [
        "jobs-fifo-seed-1.csv", "jobs-fifo-seed-2.csv", "jobs-srsf-seed-1.csv", "jobs-srsf-seed-2.csv"
    ]  # fmt: skip


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *FEW, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f"page: {tmp_path}/index.html   report: {tmp_path}/report.json\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gantt-fifo.png", "gantt-srsf.png", "index.html", "jct.png", "jobs-fifo.csv", "jobs-srsf.csv", "queue.png",
        "report.json", "utilisation.png",
    ]  # fmt: skip
    assert "srsf completes jobs in" in (tmp_path / "index.html").read_text()
    assert len(json.loads((tmp_path / "report.json").read_text())["policies"]) == 2


@pytest.mark.parametrize(
    ("assignments", "parameters"),
    [
        (["min_run_s=5"], {"srtf": {"min_run_s": 5}, "srsf": {"min_run_s": 5}, "fifo": {}}),
        (["srsf.min_run_s=5"], {"srtf": {}, "srsf": {"min_run_s": 5}, "fifo": {}}),
        (["min_run_s=5", "srtf.min_run_s=0"], {"srtf": {"min_run_s": 0}, "srsf": {"min_run_s": 5}, "fifo": {}}),
    ],
)
def test_parameters_reach_those_who_have_them(
    compare: Compare, assignments: list[str], parameters: dict[str, dict[str, Any]]
) -> None:
    options = [word for text in assignments for word in ("--set", text)]
    found = compare(
        "--no-stock", "--jobs", 5, "--workers", 1, *(w for name in parameters for w in ("--policy", name)), *options
    )
    assert found["parameters"] == parameters


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "nope"], "there is no policy 'nope'; choose one of: soda, fifo"),
        (["--policy", "fifo", "--set", "min_run_s=1"], "no parameter 'min_run_s' here; there are: none"),
        (["--set", "gandiva.min_run_s=1"], "no parameter 'min_run_s' here"),
        (["--workers", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_failure_in_a_process_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["compare", *FEW, "--workers", "2", "--csv", str(tmp_path / "file")]) == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "jobs-srsf.csv").mkdir()
    capsys.readouterr()
    assert run(["compare", *FEW, "--workers", "2", "--csv", str(tmp_path / "full")]) == 1
    out, err = capsys.readouterr()
    *_, last = out.splitlines()
    assert last.startswith(f"failed: srsf, seed 1: {tmp_path}/full/jobs-srsf.csv cannot be written: Is a directory")
    assert err == "sodactl: 1 of 2 runs failed; the figures are those of the others\n"


HASTY = ("--start-cost-s", "2", "--restart-cost-s", "2", "--set", "gandiva.quantum_s=1", "--policy", "gandiva")
"""Never gets on: a start takes longer than a slice."""


@pytest.mark.usefixtures("soon_in_vain")
def test_a_policy_that_fails_leaves_the_others_and_the_first_that_ran_is_the_baseline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["compare", *HASTY, *FEW, "--seed", "1", "--seed", "2"]
    assert run([*asked, "--json", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [row["policy"] for row in found["policies"]] == ["fifo", "srsf"]
    assert [(one["policy"], one["seed"]) for one in found["failed"]] == [("gandiva", 1), ("gandiva", 2)]
    assert all("before they made any progress" in one["reason"] for one in found["failed"])
    assert (found["baseline"], found["policies"][0]["times_better"]) == ("fifo", 1)
    assert err == "sodactl: 2 of 6 runs failed; the figures are those of the others\n"
    assert json.loads((tmp_path / "report.json").read_text()) == found
    assert "Runs that failed</h2><p>gandiva, seed 1: at " in (tmp_path / "index.html").read_text()

    assert run(asked) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["fifo", "srsf"]
    assert [line[:25] for line in lines[6:8]] == ["failed: gandiva, seed 1: ", "failed: gandiva, seed 2: "]
    assert lines[8] == "Times better is fifo's average JCT over this one's, as gandiva failed."
    assert len(lines) == 9


def test_times_better_is_over_the_seeds_that_both_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "jobs-srsf-seed-2.csv").mkdir()
    asked = ["compare", *FEW, *(word for seed in "123" for word in ("--seed", seed)), "--csv", str(tmp_path)]
    assert run([*asked, "--json"]) == 1
    fifo, srsf = json.loads(capsys.readouterr().out)["policies"]
    assert [one["seed"] for one in fifo["runs"]] == [1, 2, 3]
    assert [one["seed"] for one in srsf["runs"]] == [1, 3]
    both = [one["avg_jct_s"] for one in fifo["runs"] if one["seed"] != 2]
    assert srsf["times_better"] == pytest.approx(sum(both) / 2 / srsf["avg_jct_s"])
    assert run(asked) == 1
    assert capsys.readouterr().out.endswith(
        "Figures are means over the seeds that a policy ran; times better, over those that both ran.\n"
    )


@pytest.mark.usefixtures("soon_in_vain")
def test_where_every_run_fails_the_reasons_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--jobs", "40", "--load", "20", *HASTY, "--no-stock", "--workers", "1"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sodactl: gandiva, seed 1: at ")
    assert err.count("\n") == 1
    assert (
        run(
            [
                "compare",
                "--jobs",
                "40",
                "--load",
                "20",
                *HASTY,
                "--no-stock",
                "--workers",
                "1",
                "--seed",
                "1",
                "--seed",
                "2",
            ]
        )
        == 1
    )
    err = capsys.readouterr().err
    assert err.startswith("sodactl: all 2 runs failed: gandiva, seed 1: at ")
    assert err.count("\n") == 1


def test_a_terminal_sees_no_trace_of_the_progress_of_a_quick_run() -> None:
    reader, writer = pty.openpty()
    done = subprocess.run([SODACTL, "compare", *FEW], stderr=writer, stdout=subprocess.PIPE, check=True)
    os.close(writer)
    assert done.stdout.startswith(b"40 jobs of small")
    os.set_blocking(reader, False)
    with pytest.raises(OSError, match=r"Input/output error|temporarily unavailable"):
        os.read(reader, 1)
    os.close(reader)


def test_an_interrupted_comparison_leaves_no_process_behind() -> None:
    started = subprocess.Popen(
        [SODACTL, "compare", "--workload", "philly-month", "--policy", "gandiva", "--policy", "backfill", "--workers", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    for _ in range(600):
        workers = [int(child) for child in children.read_text().split()]
        if len(workers) >= 3:  # two workers, and the one that watches over shared memory
            break
        time.sleep(0.05)
    assert len(workers) >= 3
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert err.strip() == "interrupted"
    for _ in range(200):
        if not [worker for worker in workers if Path(f"/proc/{worker}").exists()]:
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {workers}")
