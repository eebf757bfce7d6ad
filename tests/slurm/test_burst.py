"""sodad and pools on a real Slurm: borrowers give back, are first in line again, and are not aborted for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.demo.cpu_burst.burst_runs import add_scheduler_parameters
from tests.slurm.daemon_site import LOCK, STORE, DaemonSite

pytestmark = pytest.mark.slurm

ENFORCE = """
mode = "enforce"
[policy]
name = "drf"
[pools]
max_aborts = 1
[cycle]
interval_s = 1
"""
GIVEN_BACK_S = 10
SLURM_WAIT_S = 121


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    """Pools with 8 cores of each node for CPU jobs, and an enforcing sodad; all of it gone afterwards."""
    conf = cluster.copy_out("/etc/slurm/slurm.conf")
    found = DaemonSite(cluster)
    with ExitStack() as undo:  # each step in any case, the last one first
        undo.callback(lambda: cluster.exec("root", ("scontrol", "reconfigure")).check())
        undo.callback(lambda: cluster.copy_in(conf, "/etc/slurm/slurm.conf"))
        cluster.copy_in(add_scheduler_parameters(conf.decode()).encode(), "/etc/slurm/slurm.conf")
        cluster.exec("root", ("scontrol", "reconfigure")).check()
        cluster.exec("root", ("sh", "-c", f"rm -f {STORE}* {LOCK}")).check()
        undo.callback(lambda: cluster.exec("root", ("sodactl", "pools", "revert", "--wait"), timeout_s=120).check())
        undo.callback(found.clear)
        cluster.exec("root", ("sodactl", "pools", "apply", "--cpu-cores", "8")).check()
        cluster.start_daemon(ENFORCE)
        found.wait(lambda: bool(found.store("select 1 from cycle where length(error) = 0")), "sodad has run a cycle")
        yield found


def submit(site: DaemonSite, cores: int, gpus: int = 0) -> int:
    gres = [f"--gres=gpu:{gpus}"] if gpus else []
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--time=30", "--mem-per-cpu=16", f"--cpus-per-task={cores}")
    return int(site.cluster.exec("alice", (*argv, *gres), input="#!/bin/sh\nexec sleep 300\n").check().stdout)


def said(site: DaemonSite, *words: str) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", *words, "--json")).check().stdout)


def waited_s(site: DaemonSite, job: int) -> float:
    """From submission to start, by Slurm's own clock."""
    submitted, started = (datetime.fromisoformat(site.shown(job, name)) for name in ("SubmitTime", "StartTime"))
    return (started - submitted).total_seconds()


def test_borrowed_cores_go_back_and_the_borrower_is_next(site: DaemonSite) -> None:
    cpu = [submit(site, 8) for _ in range(6)] + [submit(site, 4) for _ in range(2)]
    site.wait_running(cpu)
    assert {site.shown(job, "Partition") for job in cpu} == {"gpu_cpu_lend"}

    mine = cpu.pop()
    site.cluster.exec("alice", ("scontrol", "requeue", str(mine))).check()
    gpu = submit(site, 20, gpus=1)
    site.wait_running([gpu])
    assert waited_s(site, gpu) <= GIVEN_BACK_S
    counted = f"select job_id from pool_run where aborted and job_id in ({','.join(map(str, cpu))}) order by job_id"

    def aborted() -> list[int]:
        return [job for job in cpu if site.shown(job, "Restarts") == "1"]

    def known() -> list[int]:
        return [row["job_id"] for row in site.store(counted)]

    site.wait(lambda: "COMPLETING" not in site.states(cpu), "no job is on its way out")
    site.wait(lambda: len(aborted()) >= 2 and known() == aborted(), "every abort is counted once")
    gave = aborted()
    assert (site.shown(mine, "Restarts"), site.shown(mine, "Reason")) == ("1", "BeginTime")
    assert not site.store(f"select 1 from pool_run where aborted and job_id = {mine}"), "its owner requeued it himself"

    # Back in line long before Slurm would have it, where nothing aborts them any more.
    site.wait(lambda: {site.shown(job, "Partition") for job in gave} == {"gpu_cpu"}, "they borrow no more")
    others = [job for job in cpu if job not in gave]
    site.cluster.exec("root", ("scancel", *map(str, others))).check()
    site.wait(lambda: "RUNNING" in site.states(gave), "they run in their own pool", SLURM_WAIT_S / 2)

    def changes(state: str) -> list[Any]:
        told = said(site, "explain", str(gave[0]))["changes"]
        return [entry for entry in told if "Partition" in entry["new"] and entry["state"] == state]

    site.wait(lambda: bool(changes("done")), "the way back in line is on record")
    change = changes("done")[0]
    assert (change["kind"], change["new"]["StartTime"]) == ("rewrite", "now")
    assert "gave back what it had borrowed" in change["reason"]
    # One that gave back may itself have taken cores of its pool from others since.
    assert set(known()) >= set(gave)

    def logged() -> tuple[int, int]:
        cpu_pool = next(entry for entry in said(site, "pools", "log")["pools"] if entry["kind"] == "cpu")
        return cpu_pool["aborts"], cpu_pool["most_aborts"]

    site.wait(lambda: logged() == (len(known()), 1), "the pool's log has each abort, none of a job twice")
