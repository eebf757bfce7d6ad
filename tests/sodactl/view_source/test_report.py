"""``sodactl report``: what it prints, from the store and from sodad, whatever jobs are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.daemon.store.gpu_uses import stored_gpu_use
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobNodeUsage, JobRun, NodeEvent
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.wire.gpu_use import GpuUse, IdleSpan
from tests.sodactl.conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, stored_job
from tests.sodactl.test_commands_documentation import section
from tests.sodactl.view_source.conftest import leave

START_S, RUN_S = SUBMIT_S + 100.0, 800.0
BUSY = GpuUse(
    0, 400, RUN_S, 0.62, 0.98, 30_000.0, 40_960.0, 250.0, 390.0, 30.0, RUN_S, 90.0, 2, 80.0,
    (IdleSpan(0.0, 30.0), IdleSpan(400.0, 50.0)), 10.0, "00" * 3 + "c8" * 37 + "ff" + "64" * 39,
)  # fmt: skip
UNUSED = replace(
    BUSY, index=1, util_ratio=0.0, util_max_ratio=0.0, memory_peak_mib=500.0, busy_from_s=-1.0, busy_until_s=-1.0,
    idle_s=RUN_S, idle_spans=1, idle_spans_s=RUN_S, spans=(IdleSpan(0.0, RUN_S),), timeline="00" * 80,
)  # fmt: skip


def ended(soda: Bench, job_id: int = 7, *uses: GpuUse, **more: Any) -> None:
    """A job that ran for 800 s on two GPUs."""
    waits = {"spent_s": {"Priority": 40.0, "Resources": 60.0}, "reason": "", "since_s": 0.0}
    values = {
        "state": "COMPLETED",
        "end_s": START_S + RUN_S,
        "exit_code": "0:0",
        "time_limit_s": 1200.0,
        "first_start_s": START_S,
    }
    job = stored_job(job_id, **values | {"waits": waits, "memory_mib": 8192} | more)
    at = {"job_id": job_id, "restart": 0, "node": "n1"}
    soda.add(job)
    soda.add(
        JobRun(job_pk=job.id, restart=0, start_s=START_S, end_s=START_S + RUN_S, gpus=2, node_names="n1"),
        JobNodeUsage(
            **at, first_s=START_S, last_s=START_S + RUN_S, samples=400, gpu_count=2, gpu_util_ratio=0.31,
            gpu_util_last_ratio=0.5, gpu_memory_peak_mib=30_500, cpu_s=3.2 * RUN_S, memory_peak_mib=6000,
            cpu_source="cgroup/v1",
        ),
        NodeEvent(kind="open", **at, at_s=START_S, record={"cpus": 4, "gpus": [0, 1]}),
    )  # fmt: skip
    if uses:
        gpus = [stored_gpu_use(use) for use in uses]
        soda.add(JobGpuUseRow(**at, first_s=START_S, last_s=START_S + RUN_S, gpus=gpus))


EXPECTED = """\
Job 7 (train) of alice: COMPLETED
  asked for   2 GPUs, 4 CPUs, 8.0 GiB on 1 node of main, time limit 20 min 00 s
  waited      1 min 40 s: Resources 1 min 00 s, Priority 40.0 s
  ran         13 min 20 s, from 2023-11-14 21:58:20 to 2023-11-14 22:11:40
  GPU use     31 % of 0.4 GPU hours, idle 56 % of the time; 1 GPU never used
  GPU memory  29 GiB of 40 GiB on the fullest GPU
  GPU energy  0.11 kWh
  CPU cores   3.2 of 4 on average
  memory      5.9 GiB of 8.0 GiB on the fullest node

node  GPU    use  most   idle              memory  power  pauses       in all      longest  use over time, in tenths
n1      0   62 %  98 %   11 %    29 GiB of 40 GiB  250 W       2  1 min 20 s       50.0 s  099999999999975555555555555
n1      1  never   0 %  100 %   500 MiB of 40 GiB  250 W       1  13 min 20 s  13 min 20 s  000000000000000000000000000

Longest pauses:
  GPU 0 of n1: 50.0 s from 2023-11-14 22:05:00
  GPU 0 of n1: 30.0 s from 2023-11-14 21:58:20

Advice:
  GPU 1 of n1 was never used in 13 min 20 s: --gres=gpu:1 would do (0.2 GPU hours were held).
"""


def test_what_is_said_of_one_job(soda: Bench) -> None:
    ended(soda, 7, BUSY, UNUSED)
    shown, expected = soda("report", "7").out.splitlines(), EXPECTED.splitlines()
    assert [line.split() for line in shown] == [line.split() for line in expected]


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", HOSTILE)
def test_sodad_tells_of_jobs_what_the_store_holds_and_names_do_nothing(soda: Bench, sodad: str, text: str) -> None:
    ended(soda, 7, BUSY, UNUSED, name=text, partition=text, reason=text)
    ended(soda, 8, name=text, user="bob")
    at_home = [soda("report", "7"), soda("report", "7", "--json"), soda("report", "--json"), soda("report")]
    soda.munged.uid = 0
    leave(soda, sodad)
    away = [soda("report", "7"), soda("report", "7", "--json"), soda("report", "-a", "--json"), soda("report", "-a")]
    assert [result.out for result in away] == [result.out for result in at_home]
    for result in at_home:
        assert all(line.isprintable() for line in result.out.splitlines())
        assert "\x1b" not in result.out
    assert at_home[1].document["job"]["name"] == text


def test_without_a_job_there_is_a_line_for_each(soda: Bench) -> None:
    ended(soda, 7, BUSY, UNUSED)
    ended(soda, 8, submit_s=SUBMIT_S + 1)
    soda.add(stored_job(9, state="PENDING", submit_s=SUBMIT_S + 2))
    out = soda("report").out
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows] == ["job", "7", "8*", "9", "*"]
    assert "2 (1 unused)" in out
    assert out.splitlines()[1].endswith("unused-gpus")
    assert "13 min 20 s" in out
    document = soda("report", "--json", "--limit", "2").document
    assert [line["job"]["job_id"] for line in document["jobs"]] == [8, 9]
    assert document["more"] is True
    assert soda("report", "--user", "carol").out == "no such job is known, or none that you may see\n"


def test_an_agent_of_an_older_version_and_one_that_is_dead(soda: Bench) -> None:
    ended(soda)
    out = soda("report", "7").out
    assert "n1: figures of single GPUs are not measured: its agent does not tell them" in out
    assert "31 %" in out, "its sums are known"
    job = stored_job(8, state="RUNNING", first_start_s=START_S)
    soda.add(job, AgentHeartbeat(node="n2", agent_id="a", seq=1, seen_s=NOW_S - 300))
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=START_S, gpus=2, node_names="n[2-3]"))
    out = soda("report", "8").out
    assert "n2: not measured: its agent told nothing of this run." in out
    assert "n3: not measured: no agent ever reported from there." in out
    assert "No advice: too little is known." in out


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["404"], 1, "sodad knows no job 404; `sodactl report` lists yours"),
        (["7", "--all"], 2, "leave them out with JOB"),
        (["--user", "bob", "--all"], 2, "give one of the two"),
        (["--limit", "0"], 2, "--limit"),
        (["seven"], 2, "is not a valid job id"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(soda: Bench, argv: list[str], status: int, said: str) -> None:
    assert said in soda("report", *argv, status=status).err


def test_a_user_is_shown_no_job_of_others_where_slurm_keeps_them_private(soda: Bench, sodad: str, rights: Any) -> None:
    ended(soda, 7, BUSY, UNUSED, user="bob")
    leave(soda, sodad)
    soda.munged.uid, rights.private = 4_000_000, "jobs"
    assert "PrivateData" in soda("report", "7", status=1).err
    assert soda("report", "--all").out == "no such job is known, or none that you may see\n"


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in keys_of(inner)}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


def test_every_key_is_documented(soda: Bench) -> None:
    ended(soda, 7, BUSY, UNUSED)
    soda.add(ShareRow(guest=8, submit_s=1.0, restart=0, hosts=[7], host_restarts={}, nodes=[], gpus=[], record="", wrote={},
                      phase="over", end="ended", why="", created_s=SUBMIT_S + 1, deadline_s=1.0, started_s=START_S,
                      ended_s=START_S + 9, updated_s=1.0))  # fmt: skip
    found = soda("report", "7", "--json").document
    assert found["sharing"]["other_jobs"] == 1
    documented = section("report")
    assert not {
        key for key in keys_of(found) | keys_of(soda("report", "--json").document) if f"`{key}`" not in documented
    }
