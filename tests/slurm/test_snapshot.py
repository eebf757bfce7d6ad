"""A snapshot dumped from a loaded cluster decides what sodad recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import PAST_THRESHOLD_S, DaemonSite

pytestmark = pytest.mark.slurm

FILES = ("/root/stand-ins.json.gz", "/root/names.json")


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    site.cluster.exec("root", ("rm", "-f", *FILES)).check()
    yield site
    site.clear()


def sodactl(site: DaemonSite, *argv: str) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", *argv, "--json")).check().stdout)


def test_a_dump_of_a_loaded_cluster_decides_what_sodad_decided(site: DaemonSite) -> None:
    site.start()
    long = [site.train("alice", 4, 60), site.train("bob", 4, 60)]
    site.wait_running(long)
    time.sleep(PAST_THRESHOLD_S)  # they must give way
    waiting = [site.train("carol", gpus, 30) for gpus in (4, 2, 1, 4, 2)]
    for file, more in zip(FILES, ((), ("--names",)), strict=True):
        told = sodactl(site, "snapshot", "dump", file, *more)
        assert told["decides_the_same"] is True
        assert told["jobs"] >= len(waiting)
        assert site.cluster.exec("root", ("stat", "-c", "%a", file)).check().stdout.strip() == "600"
        decided = sodactl(site, "decide", file)
        assert decided["same_as_recorded"] is True
        assert decided["order"] or decided["starts"]
    hidden = site.cluster.exec("root", ("sh", "-c", f"zcat {FILES[0]}")).check().stdout
    assert not any(user in hidden for user in ("alice", "bob", "carol"))
    assert "carol" in site.cluster.exec("root", ("cat", FILES[1])).check().stdout
    assert not site.cluster.exec("root", ("sh", "-c", "ls /var/lib/slurm-soda/snapshot-* 2>/dev/null")).stdout
