"""Two partitions on real Slurm, one of them in scope, and everything that sodad can do turned on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import ENFORCE, PAST_THRESHOLD_S, DaemonSite

pytestmark = pytest.mark.slurm

EVERYTHING = f"""{ENFORCE}
[cpu_fit]
rewrite = "all"
[sharing]
partitions = ["inside", "outside"]
consent_by_default = true
[services]
first_in = ["*"]
[scope]
partitions = ["inside"]
"""
NODES = {"inside": "n1", "outside": "n2"}
FIELDS = ("Partition", "NumCPUs", "TresPerNode", "Restarts")
"""What sodad changes of jobs; SiteFactors are looked at apart."""


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    """A partition for each node."""
    site = DaemonSite(cluster)
    for name, node in NODES.items():
        cluster.exec("root", ("scontrol", "create", f"PartitionName={name}", f"Nodes={node}", "State=UP")).check()
    yield site
    site.clear()
    for name in NODES:
        cluster.exec("root", ("scontrol", "delete", f"PartitionName={name}")).check()


def in_partition(site: DaemonSite, name: str, user: str, gpus: int, seconds: float, *asks: str) -> int:
    return site.train(user, gpus, seconds, asks=(f"--partition={name}", *asks))


def factors(site: DaemonSite) -> dict[int, int]:
    told = site.cluster.exec("root", ("sprio", "--noheader", "--format=%i %S")).check().stdout
    return {int(job): int(float(factor)) for job, factor in (line.split() for line in told.splitlines())}


def facts(site: DaemonSite) -> dict[str, Any]:
    (row,) = site.store("select facts from cycle where length(error) = 0 order by id desc limit 1")
    found: dict[str, Any] = json.loads(row["facts"])
    return found


def test_jobs_of_the_other_partition_are_not_touched(site: DaemonSite) -> None:
    site.start(EVERYTHING)
    long = {name: in_partition(site, name, "alice", 4, 60) for name in NODES}
    site.wait_running(list(long.values()))
    time.sleep(PAST_THRESHOLD_S)
    waiting = {
        name: [
            in_partition(site, name, "bob", 4, 300),
            in_partition(site, name, "carol", 2, 3),
            in_partition(site, name, "carol", 4, 3),
        ]
        for name in NODES
    }  # fmt: skip
    outside = [long["outside"], *waiting["outside"]]
    site.wait(lambda: len(site.states(outside)) == len(outside), "Slurm lists all")
    before = {job: {name: site.shown(job, name) for name in FIELDS} for job in outside}
    site.wait_completed(waiting["inside"][1:], within_s=60)
    assert site.shown(long["inside"], "Restarts") != "0", "in scope it made way"
    last = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(last)) >= 5, "some cycles more")
    ids = ",".join(map(str, outside))
    assert site.store(f"select * from action where job_id in ({ids})") == []
    assert site.store(f"select * from preemption where job_id in ({ids})") == []
    assert {job: {name: site.shown(job, name) for name in before[job]} for job in outside} == before
    assert not any(factor for job, factor in factors(site).items() if job in outside)
    assert site.states([long["outside"]]) == ["RUNNING"]
    counts = facts(site)["scope"]
    assert counts["not_in_scope"] == {"waiting": 3, "running": 1}
    assert counts["left_out_by"] == {"partition": 4}
    assert counts["would_have"]["preempt"] == 1
    said = site.cluster.exec("root", ("sodactl", "explain", str(waiting["outside"][1]))).check().stdout
    assert "It is not in scope: partition outside" in said


def test_a_lift_ends_when_its_job_is_moved_out_of_scope(site: DaemonSite) -> None:
    by_size = EVERYTHING.replace("tiresias-las", "smallest")
    for line in ("[policy.parameters]\n", "thresholds_gpu_s = [24.0]\n", "min_run_s = 3.0\n"):
        by_size = by_size.replace(line, "")
    site.start(by_size)
    site.wait_running([in_partition(site, name, "alice", 4, 300, "--no-requeue") for name in NODES])
    large = in_partition(site, "inside", "bob", 4, 300)
    small = in_partition(site, "inside", "carol", 1, 300)
    site.wait(lambda: factors(site).get(small, 0) > 0, "the smaller job is lifted past the larger one")
    site.cluster.exec("root", ("scontrol", "update", f"JobId={small}", "Partition=outside")).check()
    site.wait(lambda: factors(site).get(small, 1) == 0, "its lift has ended")
    taken = site.store(f"select reason, state from action where job_id = {small} and kind = 'release'")
    reason = "not in scope: partition outside: what was changed before is taken back"
    site.wait(lambda: bool(taken), "the end of the lift is recorded")
    assert [row["reason"] for row in taken] == [reason]
    undone = f"select state from action where job_id = {small} and kind = 'order' order by id desc limit 1"
    site.wait(lambda: site.store(undone)[0]["state"] == "undone", "the lift counts as taken back")
    assert site.states([large, small]) == ["PENDING"] * 2
