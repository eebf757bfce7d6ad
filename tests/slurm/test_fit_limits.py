"""CPU fit on a real Slurm that enforces limits of accounting: no job runs above one because of us."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_fit import shown, submit, two_more_cycles, wait_cpus

pytestmark = pytest.mark.slurm

CONF = "/etc/slurm/slurm.conf"
ENFORCED = "AccountingStorageEnforce=associations,limits,qos"


@pytest.fixture
def site(cluster: ContainerCluster, slurm: str) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    before = {node: cluster.copy_out(CONF, node=node) for node in cluster.spec.hosts}

    def put(line: str) -> None:
        for node, text in before.items():
            cluster.copy_in(text + line.encode(), CONF, node=node)
        cluster.exec("root", ("scontrol", "reconfigure")).check()
        if slurm == "22.05":  # which enforces by what it was started with
            cluster.kill("slurmctld")
            cluster.wait_until(lambda: cluster.exec("root", ("scontrol", "ping")).status == 0, "slurmctld is back")

    put(f"\n{ENFORCED}\n")
    try:
        cluster.exec("root", ("sacctmgr", "-i", "add", "qos", "tight")).check()
        limit = ("sacctmgr", "-i", "modify", "qos", "tight", "set", "MaxTRESPU=cpu=2")
        cluster.exec("root", limit).check()
        cluster.exec("root", ("sacctmgr", "-i", "modify", "user", "bob", "set", "qos=normal,tight")).check()
        yield site
    finally:
        site.clear()
        cluster.exec("root", ("sacctmgr", "-i", "modify", "user", "bob", "set", "qos=normal"))
        cluster.exec("root", ("sacctmgr", "-i", "delete", "qos", "tight"))
        put("\n")


def test_a_job_that_a_limit_may_bind_keeps_its_request(site: DaemonSite) -> None:
    """Slurm would exempt it from the limit: at once, or when its owner moves it to the QOS that has one."""
    asks = ("--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=8")
    bound, movable = submit(site, *asks, "--qos=tight", user="bob"), submit(site, *asks, user="bob")
    free = submit(site, *asks, user="alice")
    site.start()
    wait_cpus(site, free, 3)
    two_more_cycles(site)
    assert [shown(site, job, "NumCPUs") for job in (bound, movable)] == [("8",), ("8",)]
    said = json.loads(site.cluster.exec("root", ("sodactl", "explain", str(movable), "--json")).check().stdout)
    assert "MaxTRESPU=cpu of a QOS" in said["cores"]["left_alone"]
    site.cluster.exec("root", ("scontrol", "release", f"{bound},{free}")).check()
    site.wait(lambda: site.states([free]) == ["COMPLETED"], "the free one is completed")
    assert site.states([bound]) == ["PENDING"]
    assert shown(site, bound, "Reason") == ("QOSMaxCpuPerUserLimit",)
    doctor = json.loads(site.cluster.exec("root", ("sodactl", "doctor", "--json")).stdout)
    (found,) = [one for one in doctor["findings"] if one["check"] == "limits"]
    assert (found["state"], found["found"]) == ("warn", "MaxTRESPU=cpu of QOS tight")
