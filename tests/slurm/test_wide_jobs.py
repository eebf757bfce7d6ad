"""A job on both nodes against a stream of jobs on one: what Slurm reserves for it stays reserved, as without sodad."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from benchmarks.lifted_jobs import find_lifted_jobs
from tests.slurm.daemon_site import DaemonSite

pytestmark = pytest.mark.slurm

IN_ORDER_OF_ARRIVAL = """
mode = "{mode}"
[cycle]
interval_s = 1
[policy]
name = "tiresias-las"
"""
"""As long as nobody has run: nothing but Slurm's own reservation keeps the others behind the wide job."""
WHOLE_NODE = {
    "gpus, consent": ("--gres=gpu:4", "--soda-checkpoint=TERM"),
    "gpus": ("--gres=gpu:4",),
    "cpus": ("--exclusive",),
}
NEXT_AFTER_S = 3.0
SODA = """
mode = "enforce"
[cycle]
interval_s = 1
[policy]
name = "soda"
[policy.parameters]
change_s = 1.0
"""


def submit(site: DaemonSite, asks: tuple[str, ...], seconds: float, *, nodes: int = 1, nice: int = 0) -> int:
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--time=2", f"--nodes={nodes}", f"--nice={nice}", *asks)
    return int(site.cluster.exec("alice", argv, input=f"#!/bin/sh\nexec sleep {seconds}\n").check().stdout)


def wide_job_waits_s(site: DaemonSite, mode: str, asks: tuple[str, ...], run_s: float) -> float:
    """One node becomes free after half the time that the other takes, and there is always a job that would fit on it."""
    site.start(IN_ORDER_OF_ARRIVAL.format(mode=mode))
    running = [submit(site, asks, run_s / 2), submit(site, asks, run_s)]
    site.wait_running(running)
    wide = submit(site, asks, 2, nodes=2)
    # The plan gives the one free place to the first, so the nice one must not be that.
    stream = [submit(site, asks, run_s), submit(site, asks, run_s, nice=100)]
    while site.states([wide]) == ["PENDING"]:
        assert len(stream) < 2 * run_s / NEXT_AFTER_S, "the wide job starves"
        stream.append(submit(site, asks, run_s))
        time.sleep(NEXT_AFTER_S)
        lifted = find_lifted_jobs(site.cluster)
        assert not lifted.intersection(stream), "a job that the policy ranks behind the wide one is lifted"
    submitted, started = (datetime.fromisoformat(site.shown(wide, field)) for field in ("SubmitTime", "StartTime"))
    site.clear()
    return (started - submitted).total_seconds()


@pytest.mark.parametrize(
    ("kind", "run_s"),
    [
        ("gpus, consent", 20.0),
        pytest.param("gpus, consent", 60.0, marks=pytest.mark.thorough),
        pytest.param("gpus", 60.0, marks=pytest.mark.thorough),
        pytest.param("cpus", 60.0, marks=pytest.mark.thorough),
    ],
)
def test_a_wide_job_starts_as_on_stock_slurm_and_nobody_is_lifted_past_it(
    site: DaemonSite, kind: str, run_s: float
) -> None:
    stock_s, ours_s = (wide_job_waits_s(site, mode, WHOLE_NODE[kind], run_s) for mode in ("observe", "enforce"))
    print(f"{kind}, {run_s:g} s: stock {stock_s:g} s, enforcing {ours_s:g} s")
    assert ours_s <= 1.1 * stock_s


def test_who_would_make_way_runs_until_the_wide_job_fits(site: DaemonSite) -> None:
    """Stock Slurm lets the node idle: by its time limit the narrow job would delay the wide one."""
    site.start(SODA)
    agrees = ("--soda-checkpoint=TERM",)
    site.wait_completed([submit(site, ("--gres=gpu:1", *agrees), 1) for _ in range(4)])  # hers are short
    first = site.train("carol", 4, 8, consents=False)
    site.wait_running([first])
    wide = submit(site, ("--exclusive", "--gres=gpu:1", *agrees), 2, nodes=2)
    narrow = site.train("bob", 4, 35)
    site.wait_running([narrow])
    assert [site.shown(job, "JobState") for job in (first, wide)] == ["RUNNING", "PENDING"]
    site.wait_completed([first])
    site.wait_completed([wide])
    assert site.shown(narrow, "JobState") != "COMPLETED"
    site.wait_completed([narrow])
    assert site.shown(narrow, "Restarts") == "1"
    assert site.check_trail([first, wide, narrow]) == 1
