"""sodactl simulate: traces and options in, figures and files out."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.simulator import whatif
from slurm_soda.sodactl.main import run

SODACTL = Path(sys.executable).parent / "sodactl"
DATA = Path(__file__).parents[2].parent / "shared" / "data"

# On two GPUs: 1 runs at once, 2 waits for it, and 3 for 2 unless it may pass.
HEADER = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
TRACE = f"{HEADER}\n1,1,0,1,a,100,10\n2,2,10,1,a,50,10\n3,1,20,1,a,10,0\n"

PROMISED = {
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "preemptions", "gpu_util_ratio", "jobs",
    "cpu_s",
}  # fmt: skip

Simulate = Callable[..., dict[str, Any]]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    def simulate(*options: object) -> dict[str, Any]:
        assert run(["simulate", "--json", *map(str, options)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return simulate


def test_csv_goes_to_standard_output(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "--trace", str(trace), "--cluster", "1x2", "--policy", "fifo"]
    assert run([*words, "--csv", "there.csv"]) == 0
    capsys.readouterr()
    assert run([*words, "--csv", "-"]) == 0
    out, err = capsys.readouterr()
    assert out == Path("there.csv").read_text()
    assert [row["label"] for row in csv.DictReader(out.splitlines())] == ["1", "2", "3"]
    assert err == ""
    assert not Path("-").exists()


def test_without_arguments_it_simulates_generated_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("soda: 400 jobs of small, seed 1 on cluster 16x4 (64 GPUs)\n")
    assert "average JCT" in out
    assert err == ""


# FIFO: ends at 100, 150, 160. With the skip the third job runs from 20 to 30.
@pytest.mark.parametrize(
    ("policy", "avg_jct_s", "avg_queue_s", "makespan_s", "util"),
    [("fifo", (100 + 140 + 140) / 3, (0 + 90 + 130) / 3, 160, 210 / 320),
     ("fifo-skip", (100 + 140 + 10) / 3, (0 + 90 + 0) / 3, 150, 210 / 300)],
)  # fmt: skip
def test_worked_example(
    simulate: Simulate, trace: Path, policy: str, avg_jct_s: float, avg_queue_s: float, makespan_s: float, util: float
) -> None:
    found = simulate("--trace", trace, "--cluster", "1x2", "--policy", policy)
    assert set(found) >= PROMISED
    assert found["avg_jct_s"] == pytest.approx(avg_jct_s)
    assert found["avg_queue_s"] == pytest.approx(avg_queue_s)
    assert found["makespan_s"] == pytest.approx(makespan_s)
    assert found["gpu_util_ratio"] == pytest.approx(util)
    assert (found["jobs"], found["preemptions"], found["policy"]) == (3, 0, policy)
    assert (found["format"], found["seed"], found["cluster"]) == ("tiresias", None, "1x2")


def test_text_says_the_same_in_words(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--trace", str(trace), "--cluster", "1x2", "--policy", "fifo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fifo: 3 jobs of jobs on cluster 1x2 (2 GPUs)\n")
    assert "average JCT" in out
    assert "126.7 s" in out
    assert "65.6 %" in out
    assert "never ended" not in out


def test_costs_and_rounds(simulate: Simulate, trace: Path) -> None:
    base = ("--trace", trace, "--cluster", "1x2", "--policy", "fifo")
    late = simulate(*base, "--start-cost-s", 5)
    assert late["makespan_s"] == pytest.approx(160 + 3 * 5)
    assert late["costs"]["start_s"] == 5
    rounds = simulate(*base, "--round-s", 60)
    # Starts at 0, 120 and 180.
    assert rounds["makespan_s"] == pytest.approx(190)
    srtf = ("--trace", trace, "--cluster", "1x1", "--policy", "srtf", "--set", "min_run_s=0", "--lenient")
    free, dear = simulate(*srtf), simulate(*srtf, "--restart-cost-s", 7)
    assert free["preemptions"] == 1
    assert dear["makespan_s"] == pytest.approx(free["makespan_s"] + 7)
    assert simulate(*srtf, "--checkpoint-cost-s", 3)["makespan_s"] == pytest.approx(free["makespan_s"] + 3)


def test_parameters_are_set(simulate: Simulate, trace: Path) -> None:
    base = ("--trace", trace, "--cluster", "1x2", "--policy", "tiresias-las", "--set", "min_run_s=0")
    found = simulate(*base, "--set", "thresholds_gpu_s=30,60", "--set", "promote_knob=inf")
    assert found["parameters"] == {"tiresias-las": {"min_run_s": 0, "thresholds_gpu_s": [30, 60], "promote_knob": None}}
    assert found["preemptions"] > simulate(*base, "--set", "thresholds_gpu_s=[]")["preemptions"]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--trace", "nowhere.csv", "--cluster", "1x2"], 1, "nowhere.csv: it cannot be read: No such file"),
        (["--trace", "{trace}"], 2, "give the --cluster that the trace shall run on"),
        (["--trace", "{trace}", "--workload", "small"], 2, "either --trace or --workload"),
        (["--trace", "{trace}", "--seed", "2"], 2, "--seed is for generated jobs"),
        (["--trace", "{trace}", "--load", "2"], 2, "--load is for generated jobs"),
        (["--format", "swf"], 2, "--format needs a --trace"),
        (["--cluster", "16"], 2, "'16' is not a group of nodes"),
        (["--cluster", "4x4:a/1" + 19 * "0" + "c"], 2, "and numbers of at most 9 digits"),
        (["--cluster", 5000 * "1" + "x4"], 2, "at most 1000000 nodes, and numbers of at most 9 digits"),
        (["--policy", "nope"], 2, "there is no policy 'nope'; choose one of: soda, fifo"),
        (["--workload", "nope"], 2, "there is no workload 'nope'; choose one of: small"),
        (["--trace", "{trace}", "--format", "nope"], 2, "there is no format 'nope'; choose one of: tiresias"),
        (["--set", "min_run_s"], 2, "write KEY=VALUE"),
        (["--set", "changes_s=1"], 2, "no parameter 'changes_s' here; there are: change_s"),
        (["--policy", "tiresias-las", "--set", "min_run_s=-1"], 2, "min_run_s = -1 is not allowed; use a number from 0"),
        (["--set", "change_s=soon"], 2, "change_s = 'soon' is not allowed"),
        (["--set", "srsf.min_run_s=1"], 2, "policy 'srsf' does not take part; these do: soda"),
        (["--start-cost-s", "-1"], 2, "-1.0 is not in the range"),
        (["--round-s", "1e300"], 1, "round_s = 1e+300 is not allowed; use a number of seconds from 0 to 1e+11"),
        (["--passing-limit-s", "nan"], 2, "'--passing-limit-s': nan is not a number"),
        (["--set", "change_s=1e308"], 2, "change_s = 1e+308 is not allowed; use a number from 0 to 1e+12"),
        (["--trace", "{trace}", "--cluster", "1x1"], 1, ":3: job '2' is larger than the cluster 1x1: it needs 2 GPUs"),
        (["--trace", "{trace}", "--cluster", "1x2", "--csv", "{trace}/x"], 1, "cannot be written: "),
        (["--trace", "{trace}", "--cluster", "1x2", "--failures", "{trace}"], 1, "the header must have the column node"),
    ],
)  # fmt: skip
def test_wrong_usage_and_failures(
    trace: Path, options: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *(option.replace("{trace}", str(trace)) for option in options)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


STEPS = {"('LM (batch size 80)', 1)": {"null": 2.0}, "('A3C', 1)": {"null": 1.0}}
SLOW_STEPS = {"('LM (batch size 80)', 1)": {"null": 0.5}, "('A3C', 1)": {"null": 0.5}}


@pytest.fixture
def gavel(tmp_path: Path) -> tuple[str, ...]:
    """Two jobs of 100 steps, and how fast three kinds of GPU are, the slowest first."""
    table = {"k80": SLOW_STEPS, "k80_unconsolidated": SLOW_STEPS, "v100": STEPS, "v100_unconsolidated": STEPS}
    (tmp_path / "pairs.json").write_text(json.dumps(table))
    lines = [f"{kind}\tpython x\tdir\t--steps\t1\t100\t1\t1\t-1.0\t0" for kind in ("LM (batch size 80)", "A3C")]
    (tmp_path / "jobs.trace").write_text("\n".join(lines) + "\n")
    return ("--trace", str(tmp_path / "jobs.trace"), "--pairs", str(tmp_path / "pairs.json"), "--policy", "fifo")


@pytest.mark.parametrize(
    ("cluster", "avg_jct_s", "note"),
    [
        ("2x1:k80", 200, None),
        ("2x1:v100", 75, None),
        ("2x1", 75, "run times are those on v100, the fastest GPU of the table; name one, such as 8x1:v100"),
        ("1x1:k80+1x1:v100", 200, "run times are those on k80, on all nodes"),
    ],
)
def test_a_pair_table_gives_run_times_of_the_clusters_gpus(
    simulate: Simulate, gavel: tuple[str, ...], cluster: str, avg_jct_s: float, note: str | None
) -> None:
    found = simulate(*gavel, "--cluster", cluster)
    assert found["avg_jct_s"] == pytest.approx(avg_jct_s)
    assert len(found["notes"]) == (note is not None)
    assert (note or "") in "".join(found["notes"])


def test_a_pair_table_of_other_gpus_is_refused(gavel: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *gavel, "--cluster", "2x1:a100"]) == 1
    assert "pairs.json has no GPU of --cluster 2x1:a100 (a100); it has: k80, v100" in capsys.readouterr().err


def test_cpu_jobs_where_no_cpus_are_counted_are_said(simulate: Simulate) -> None:
    base = ("--workload", "soda-month", "--jobs", 50, "--policy", "fifo")
    assert (
        "CPU jobs never wait: --cluster says of some nodes no CPU cores"
        in simulate(*base, "--cluster", "9x8")["notes"][0]
    )
    assert simulate(*base, "--cluster", "9x8/64c")["notes"] == []


def test_what_comes_through_a_pipe_needs_its_format(trace: Path) -> None:
    base = [SODACTL, "simulate", "--trace", "/dev/stdin", "--cluster", "1x2", "--json"]
    done = subprocess.run([*base, "--format", "tiresias"], input=trace.read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["jobs"] == 3
    refused = subprocess.run(base, input=trace.read_bytes(), capture_output=True, check=False)
    assert refused.returncode == 1
    assert b"/dev/stdin: a pipe can be read only once; say its format, --format with one of: tiresias" in refused.stderr


@pytest.mark.parametrize("options", [(), ("--format", "tiresias"), ("--format", "sacct")])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_traces_are_to_be_unpacked(
    trace: Path, options: tuple[str, ...], pack: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_bytes(pack(trace.read_bytes()))
    assert run(["simulate", "--trace", str(trace), "--cluster", "1x2", *options]) == 1
    assert capsys.readouterr().err == f"sodactl: {trace}: it is compressed; unpack it first, such as with gunzip\n"


def test_malformed_lines_end_it_or_are_left_out_and_listed(
    simulate: Simulate, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = TRACE.splitlines()
    trace.write_text("\n".join([*lines[:2], "x,1,5,1,a,-3,0", *lines[2:], "9,64,30,1,a,1,0", ""]))
    options = ["simulate", "--trace", str(trace), "--cluster", "1x2", "--policy", "fifo"]
    assert run(options) == 1
    err = capsys.readouterr().err
    assert "jobs.csv:3: duration must be a number of seconds above 0, not '-3'; correct it, or leave" in err
    assert err.count("\n") == 1
    assert run([*options, "--lenient", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [(entry["line"], entry["value"]) for entry in found["skipped"]] == [(3, "-3"), (6, "9")]
    assert found["jobs"] == 3
    assert "warning: left out, because it cannot be used: 2" in err
    assert "jobs.csv:3: '-3': duration must be a number" in err
    assert "jobs.csv:6: '9': larger than the cluster 1x2: it needs 64 GPUs" in err


def test_long_lists_of_what_was_left_out_are_cut_on_a_terminal_only(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(TRACE + "x,1,5,1,a,-3,0\n" * 1234)
    assert run(["simulate", "--trace", str(trace), "--cluster", "1x2", "--lenient", "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["skipped"]) == 1234
    assert err.count("\n") == 22
    assert err.endswith("  and 1,214 more; --json lists all\n")


def test_per_job_lines_are_the_same_bytes_in_every_process(trace: Path, tmp_path: Path) -> None:
    found = []
    for seed in ("0", "1"):
        path = tmp_path / f"{seed}.csv"
        subprocess.run(
            [SODACTL, "simulate", "--workload", "tiresias480", "--jobs", "120", "--csv", path],
            env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True,
        )  # fmt: skip
        found.append(path.read_bytes())
    assert found[0] == found[1]
    assert found[0].count(b"\n") == 121


def test_files(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = tmp_path / "all", tmp_path / "page.html"
    options = ["--trace", str(trace), "--cluster", "1x2", "--policy", "fifo"]
    assert run(["simulate", *options, "--out", str(folder), "--html", str(page)]) == 0
    assert f"page: {folder}/index.html" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == [
        "gantt.png", "index.html", "jct.png", "jobs.csv", "queue.png", "report.json", "utilisation.png"
    ]  # fmt: skip
    assert json.loads((folder / "report.json").read_text())["avg_jct_s"] == pytest.approx(380 / 3)
    rows = list(csv.DictReader((folder / "jobs.csv").open()))
    assert [row["jct_s"] for row in rows] == ["100", "140", "140"]
    assert page.read_text() == (folder / "index.html").read_text()
    assert "fifo: jobs complete in 2.11 min on average" in page.read_text()


def test_a_saved_trace_runs_to_the_same_end(simulate: Simulate, tmp_path: Path) -> None:
    saved = tmp_path / "saved.csv"
    first = simulate("--jobs", 60, "--seed", 3, "--save-trace", saved)
    again = simulate("--trace", saved, "--cluster", "16x4")
    assert {key: first[key] for key in PROMISED - {"cpu_s"}} == {key: again[key] for key in PROMISED - {"cpu_s"}}


def test_seeds_loads_and_sizes_make_other_jobs(simulate: Simulate) -> None:
    base = simulate("--jobs", 50)
    assert base["jobs"] == 50
    assert base["avg_jct_s"] == simulate("--jobs", 50, "--seed", 1)["avg_jct_s"]
    assert base["avg_jct_s"] != simulate("--jobs", 50, "--seed", 2)["avg_jct_s"]
    assert simulate("--jobs", 50, "--load", 20)["avg_queue_s"] > base["avg_queue_s"]


def test_the_first_jobs_of_a_trace(simulate: Simulate, trace: Path) -> None:
    assert simulate("--trace", trace, "--cluster", "1x2", "--jobs", 2)["jobs"] == 2
    assert simulate("--trace", trace, "--cluster", "1x2", "--jobs", 9)["jobs"] == 3


def test_estimates_are_what_policies_know(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "limits.csv"
    path.write_text(
        f"{HEADER},time_limit_s\n1,1,0,1,a,10,0,900\n2,1,1,1,a,50,0,300\n3,1,2,1,a,5,0,800\n4,1,3,1,a,20,0,100\n"
    )
    base = ("--trace", path, "--cluster", "1x1", "--policy", "sjf")
    assert simulate(*base)["avg_jct_s"] == pytest.approx((10 + 13 + 32 + 84) / 4)
    assert simulate(*base, "--estimates", "exact")["avg_jct_s"] == pytest.approx((10 + 13 + 32 + 84) / 4)
    assert simulate(*base, "--estimates", "limit")["avg_jct_s"] == pytest.approx((10 + 27 + 79 + 83) / 4)
    assert simulate(*base, "--estimates", "none")["avg_jct_s"] == pytest.approx((10 + 59 + 63 + 82) / 4)


def test_failures_of_nodes(simulate: Simulate, trace: Path, tmp_path: Path) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("node,down_s,up_s\nn1,50,70\n")
    found = simulate("--trace", trace, "--cluster", "1x2", "--policy", "fifo", "--failures", failures)
    assert found["failures"] == 1
    assert found["node_failures"] == 1
    assert found["makespan_s"] == pytest.approx(70 + 100 + 50 + 10)


def test_history_teaches_the_policies_that_learn(simulate: Simulate, trace: Path, tmp_path: Path) -> None:
    base = ("--policy", "tiresias-gittins", "--jobs", 200)
    other = simulate(*base, "--history", trace)
    assert other["history"] == str(trace)
    assert other["avg_jct_s"] != simulate(*base)["avg_jct_s"]
    learnt_nothing = tmp_path / "cpu.csv"
    learnt_nothing.write_text(TRACE.replace("\n1,1,", "\n1,0,").replace("\n2,2,", "\n2,0,").replace("\n3,1,", "\n3,0,"))
    assert run(["simulate", "--history", str(learnt_nothing)]) == 1


def test_engines_agree(simulate: Simulate, trace: Path) -> None:
    base = ("--trace", trace, "--cluster", "1x2", "--policy", "srsf", "--engine")
    counted, snapshot = simulate(*base, "gpu-count"), simulate(*base, "snapshot")
    assert {key: counted[key] for key in PROMISED - {"cpu_s"}} == {key: snapshot[key] for key in PROMISED - {"cpu_s"}}


@pytest.mark.skipif(not (DATA / "pollux").is_dir(), reason="the shared data is not here")
def test_measured_tables_give_run_times_and_speed_by_placement(simulate: Simulate) -> None:
    workload = DATA / "pollux" / "workloads" / "load-1.0" / "workload-6.csv"
    models = DATA / "pollux" / "models"
    found = simulate("--trace", workload, "--cluster", "16x4", "--profiles", models, "--policy", "srsf")
    assert found["format"] == "pollux"
    assert found["jobs"] == 160
    assert run(["simulate", "--trace", str(workload), "--cluster", "16x4"]) == 1


def test_a_dump_of_sacct_runs_on_the_cluster_that_it_shows(simulate: Simulate, tmp_path: Path) -> None:
    text = (Path(whatif.__file__).parent / "demo-stock.txt").read_text()
    dump = tmp_path / "dump.txt"
    dump.write_text(text + text.splitlines()[-1].replace("COMPLETED", "PENDING").replace("31|31|", "32|32|") + "\n")
    found = simulate("--trace", dump, "--policy", "fifo")
    assert (found["format"], found["nodes"], found["gpus"], found["jobs"]) == ("sacct", 2, 8, 30)
    assert any("cluster is taken to be what was in use" in note for note in found["notes"])
    assert found["unused"] == {"still waiting when the dump was made": 1}
    larger = simulate("--trace", dump, "--policy", "fifo", "--cluster", "4x4")
    assert (larger["nodes"], larger["gpus"]) == (4, 16)
    assert larger["avg_queue_s"] < found["avg_queue_s"]


def test_it_starts_without_what_only_some_runs_need() -> None:
    code = (
        "import sys; from slurm_soda.sodactl.main import run; status = run(['simulate', '--jobs', '20']);"
        "heavy = ('matplotlib', 'rich', 'sqlalchemy', 'pydantic', 'httpx', 'multiprocessing', 'docker');"
        "print(status, sorted(m for m in heavy if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0 []\n")


def test_forecasts_of_starts_are_counted_and_change_nothing(
    simulate: Simulate, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--jobs", 120, "--load", 2, "--policy", "srsf", "--estimates", "predicted")
    found, plain = simulate(*options, "--expected-starts"), simulate(*options)
    assert found["avg_jct_s"] == plain["avg_jct_s"]
    assert "expected_starts" not in plain
    score = found["expected_starts"]
    assert score["forecasts"] > 20
    assert score["held_ratio"] + score["earlier_ratio"] + score["later_ratio"] == pytest.approx(1.0)
    assert score["uncalibrated_held_ratio"] < score["held_ratio"]
    assert run(["simulate", "--jobs", "5", "--expected-starts"]) == 2
    assert "needs --estimates predicted" in capsys.readouterr().err
