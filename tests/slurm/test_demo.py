"""The demo in small, on a cluster of its own: every layer at once, from sbatch flags to the page."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import docker
import pytest

from slurm_soda.containers.docker_resources import list_cluster_names
from slurm_soda.demo.cluster_runs import DemoObserver, DemoPhase
from slurm_soda.demo.job_driver import DriverEvent
from slurm_soda.demo.job_mix.demo_settings import DemoSettings
from slurm_soda.demo.job_mix.mix_demo import run_demo
from slurm_soda.demo.job_mix.sacct_dump import DUMP_FILES
from slurm_soda.demo.report_files import PAGE, REPORT
from slurm_soda.simulator.traces.sacct.dump import read_sacct_dump

pytestmark = pytest.mark.slurm

JOBS = 10


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, slurm: str) -> tuple[dict[str, Any], Path, list[str], str]:
    """Report, folder, what was said, and the cluster's name, of one small demo four times as fast as the real one."""
    out, name = tmp_path_factory.mktemp("demo"), f"demo-{secrets.token_hex(3)}"
    said: list[str] = []
    events: list[tuple[DemoPhase, DriverEvent]] = []
    watch = DemoObserver(said.append, lambda phase, event: events.append((phase, event)))
    report = run_demo(DemoSettings(seed=3, jobs=JOBS, time_scale=600.0, out=out, cluster=name, slurm=slurm), watch)
    assert [event["event"] for _, event in events].count("done") == 2
    return report, out, said, name


def test_both_runs_complete_the_same_jobs(told: tuple[dict[str, Any], Path, list[str], str]) -> None:
    report, _, said, _ = told
    stock, soda = report["runs"]["stock"], report["runs"]["soda"]
    assert [job["name"] for job in stock["per_job"]] == [job["name"] for job in soda["per_job"]]
    assert [job["gpus"] for job in stock["per_job"]] == [job["gpus"] for job in report["mix"]]
    assert {job["state"] for run in (stock, soda) for job in run["per_job"]} == {"COMPLETED"}
    assert stock["preemptions"] == 0
    assert not [line for line in said if "a cycle of sodad failed" in line]


def test_store_and_accounting_agree(told: tuple[dict[str, Any], Path, list[str], str]) -> None:
    for run in told[0]["runs"].values():
        assert run["store_jct_difference_s"] is not None
        assert run["store_jct_difference_s"] <= 2
        assert all(job["store_jct_s"] is not None for job in run["per_job"])


def test_the_agents_saw_the_gpus_at_work(told: tuple[dict[str, Any], Path, list[str], str]) -> None:
    for run in told[0]["runs"].values():
        assert 0 < run["gpu_util_ratio"] <= run["gpu_allocated_ratio"] <= 1


def test_the_files_are_there_and_the_cluster_is_gone(told: tuple[dict[str, Any], Path, list[str], str]) -> None:
    report, out, _, name = told
    assert json.loads((out / REPORT).read_text()) == report
    assert "<h1>" in (out / PAGE).read_text()
    assert (out / "gantt.png").stat().st_size > 10_000
    assert name not in list_cluster_names(docker.from_env())


def test_the_dumps_are_what_whatif_reads(told: tuple[dict[str, Any], Path, list[str], str]) -> None:
    report, out, said, _ = told
    for phase, name in DUMP_FILES.items():
        run, dump = report["runs"][phase], read_sacct_dump(out / name, lenient=False)
        read, end_s = dump.trace.workload, dump.trace.observed_end_s
        jct_s = dict(zip(read.label, (end_s - read.submit_s).tolist(), strict=True))
        assert len(run["per_job"]) == JOBS
        assert jct_s == pytest.approx({str(job["job_id"]): job["jct_s"] for job in run["per_job"]})
    assert not [line for line in said if "no prediction" in line]
    assert report["predicted"]["soda"]["policy"] == "soda"
    assert all(report["predicted"][phase]["avg_jct_s"] > 0 for phase in DUMP_FILES)
