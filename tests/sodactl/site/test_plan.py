"""``sodactl site plan``: from the store, from accounting, from a trace; as text and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from tests.sodactl.conftest import NOW_S, Bench, stored_job

pytestmark = pytest.mark.usefixtures("few_variants")
T0 = NOW_S - 86_400.0
PLAN = ("site", "plan", "--policy", "tiresias-las", "--set", "thresholds_gpu_s=[150]", "--workers", "1")


def ran(soda: Bench, job_id: int, partition: str, submit_s: float, start_s: float, run_s: float, node: str) -> None:
    job: Job = stored_job(
        job_id, partition=partition, submit_s=submit_s, first_start_s=start_s, end_s=start_s + run_s, state="COMPLETED",
        hints={"checkpoint": "TERM"}, time_limit_s=4000.0,
    )  # fmt: skip
    soda.add(job)
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=start_s, end_s=start_s + run_s, node_names=node, gpus=2))


@pytest.fixture
def past(soda: Bench) -> Bench:
    """In each of two partitions on a node of its own a long job, then short ones that waited for it."""
    soda.daemon()
    soda.cycle()
    for at, partition in enumerate(("small", "big")):
        first, node = 100 * at + 1, f"n{at + 1}"
        long_s = 2000.0 + 1000.0 * at
        ran(soda, first, partition, T0, T0, long_s, node)
        for number in range(6):
            start_s = T0 + long_s + 20.0 * number
            ran(soda, first + 1 + number, partition, T0 + 100 + number, start_s, 20.0, node)
    return soda


def test_stages_from_the_store(past: Bench) -> None:
    document = past(*PLAN, "--json").document
    assert (document["jobs"], document["source"], document["policy"]) == (14, "the store", "tiresias-las")
    assert [use["name"] for use in document["partitions"]] == ["small", "big"]
    stages = document["stages"]
    assert [(one["stage"], one["mode"], one["scope"]["partitions"]) for one in stages] == [
        ("observe", "observe", []),
        ("advise", "advise", []),
        ("part", "enforce", ["small"]),
        ("all", "enforce", []),
    ]
    assert stages[2]["lines"] == '[scope]\npartitions = ["small"]'
    assert stages[2]["gain"]["in_scope"]["ratio"] > 2
    assert stages[2]["gain"]["others"]["ratio"] == pytest.approx(1.0)
    assert all(one["watch"] and one["go_back"] for one in stages)
    assert document["standing"]["stage"] == "observe"
    assert document["present_jct_s"] == pytest.approx(document["observed_jct_s"], rel=0.05)


def test_the_plan_as_text(past: Bench) -> None:
    out = past(*PLAN).out
    for text in (
        "Stages for policy tiresias-las, from 14 jobs of the store",
        "This site stands at: observe; next, when all is met: sodactl mode advise (",
        "3. enforce on a part: sodactl mode enforce, at least 7 days",
        '      partitions = ["small"]',
        "times better; 0 take more than a tenth longer)",
        "4. enforce on all jobs: sodactl mode enforce",
        "go back: ",
    ):
        assert text in out


def test_a_policy_that_brings_nothing_is_not_enforced(past: Bench) -> None:
    out = past("site", "plan", "--policy", "fifo", "--workers", "1").out
    assert "No stage with mode enforce is proposed: fifo brings jobs less than 5 % here." in out


def test_a_store_without_a_past(soda: Bench) -> None:
    soda.daemon()
    assert "the store knows no job that ran and ended" in soda("site", "plan", status=1).err


def test_from_a_trace_without_a_store(soda: Bench, tmp_path: Path) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    trace = tmp_path / "jobs.csv"
    rows = ["1,2,0,3000", *(f"{at},2,{50 + at},20" for at in range(2, 8))]
    trace.write_text("job_id,num_gpu,submit_time,duration\n" + "\n".join(rows) + "\n")
    argv = [*PLAN, "--trace", str(trace)]
    assert "--trace needs --cluster" in soda(*argv, status=2).err
    document = soda(*argv, "--cluster", "1x2", "--json").document
    assert document["standing"] is None
    assert document["observed_jct_s"] is None
    assert [one["stage"] for one in document["stages"]] == ["observe", "advise", "all"]
    assert "give --sacct or --trace" in soda(*argv, "--sacct", str(trace), status=2).err


@pytest.mark.parametrize("source", ["trace", "store"])
def test_jobs_that_the_described_nodes_cannot_hold_are_left_out_and_counted(
    past: Bench, tmp_path: Path, source: str
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,num_gpu,submit_time,duration\n1,4,0,100\n2,2,0,3000\n3,8,10,20\n4,1,20,20\n")
    if source == "store":
        ran(past, 300, "small", T0, T0 + 3000.0, 20.0, "n1")
        assert "no job fits" in past(*PLAN, "--cluster", "1x1", "--json", status=1).err
        argv, left, of = ["--cluster", "1x2"], 0, 15
    else:
        argv, left, of = ["--trace", str(trace), "--cluster", "1x2"], 2, 4
    document = past(*PLAN, *argv, "--json").document
    said = [note for note in document["notes"] if "are left out" in note]
    assert document["jobs"] == of - left
    assert [note.partition(" jobs")[0] for note in said] == ([f"{left} of {of}"] if left else [])
    assert all("the cluster cannot hold them; the first is 1: " in note for note in said)


def test_jobs_of_a_dump_that_its_own_nodes_cannot_hold_are_left_out(soda: Bench, tmp_path: Path) -> None:
    """The nodes of the first one cannot be read, so nothing shows where its GPUs are."""
    rows = [f"{at}|COMPLETED|{at}00|{at}10|{at}{20 + at}|gres/gpu=1,node=1|n1" for at in range(2, 9)]
    dump = tmp_path / "dump.txt"
    header = "JobID|State|Submit|Start|End|AllocTRES|NodeList"
    dump.write_text("\n".join([header, "1|COMPLETED|100|110|120|gres/gpu=8,node=1|n[1-", *rows]) + "\n")
    document = soda(*PLAN, "--sacct", str(dump), "--json").document
    assert document["jobs"] == 7
    assert any(
        note.startswith("1 of 8 jobs are left out, as the cluster cannot hold them") for note in document["notes"]
    )
