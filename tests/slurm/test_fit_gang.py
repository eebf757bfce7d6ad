"""A training on two nodes of a real Slurm: its agents measure, sodad searches, also when it is restarted on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import ENFORCE, DaemonSite
from tests.slurm.test_cores import CURVES, MODELS, SETTINGS, STAND_IN, Site

pytestmark = pytest.mark.slurm

MODEL = "inception3"
ASKED = 20


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    usable = "test -d /sys/fs/cgroup/cpuset && exec 3<>/dev/fuse"
    if cluster.exec("root", ("sh", "-c", usable), node="n1").status != 0:
        pytest.skip("the stand-in for cpusets needs a host with cgroup v1 and /dev/fuse")
    site = DaemonSite(cluster)
    settings = f'cgroup_root = "{STAND_IN}"\n{SETTINGS}'
    nodes = cluster.spec.node_names
    with ExitStack() as undo:  # each step in any case, the last one first
        for node in nodes:
            undo.callback(as_before, cluster, node)
            cluster.exec("root", ("mkdir", "-p", "/etc/slurm-soda"), node=node).check()
            cluster.start("soda-cpusets", node=node)
            cluster.stop("soda-agent", node=node)
            cluster.copy_in(settings.encode(), "/etc/slurm-soda/agent.toml", node=node)
        site.wait(lambda: all(map(Site(cluster).emulates, nodes)), "all nodes have emulated cpusets", 120)
        undo.callback(site.clear)
        site.start()
        for node in nodes:
            cluster.start("soda-agent", node=node)
        yield site


def as_before(cluster: ContainerCluster, node: str) -> None:
    """Real cpusets, and an agent that knows no others."""
    with ExitStack() as undo:
        undo.callback(cluster.start, "soda-agent", node=node)
        undo.callback(cluster.exec, "root", ("rm", "-f", "/etc/slurm-soda/agent.toml"), node=node)
        undo.callback(cluster.exec, "root", ("umount", "-l", f"{STAND_IN}/cpuset"), node=node)
        undo.callback(cluster.stop, "soda-cpusets", node=node)
        undo.callback(cluster.stop, "soda-agent", node=node)


def restart(site: DaemonSite, config: str) -> None:
    site.cluster.stop_daemon()
    site.cluster.start_daemon(config)


def fit(site: DaemonSite, job: int) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", "fit", "--job", str(job), "--json")).check().stdout)


def cpus(site: DaemonSite, job: int, node: str) -> int:
    path = f"{STAND_IN}/cpuset/slurm_{node}/uid_2001/job_{job}/cpuset.cpus"
    text = site.cluster.exec("root", ("cat", path), node=node).stdout.strip()
    bounds = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in bounds)


def test_two_nodes_end_with_one_best_fit_and_the_next_job_starts_with_it(site: DaemonSite) -> None:
    # The request stays as it is: here the search shall have something to find.
    restart(site, ENFORCE + '[cpu_fit]\nrewrite = "off"\n')
    train = f"soda-train --profiles {CURVES} --model {MODEL} --duration-s 1e6"
    script = f"#!/bin/bash\nexec srun --cpus-per-task={ASKED} {train}\n"
    argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodes=2", "--ntasks-per-node=1",
            f"--cpus-per-task={ASKED}", "--gres=gpu:1", "--mem=1G", "--soda-category=cv")  # fmt: skip
    job = int(site.cluster.exec("alice", argv, input=script).check().stdout)
    site.wait_running([job])
    site.wait(lambda: len(fit(site, job)["measurements"]) >= 2, "both nodes have measured once", within_s=90)
    restart(site, ENFORCE)

    site.wait(lambda: len(fit(site, job)["fits"]) == 2, "the search ends on both nodes", within_s=120)
    told = fit(site, job)
    ends = {(one["cores"], one["reason"], one["steps"]) for one in told["fits"]}
    ((cores, reason, steps),) = ends
    assert reason == "best_fit", told
    assert abs(cores - MODELS[MODEL].best_fit()) <= 1
    assert steps <= 4
    assert {one["node"] for one in told["measurements"]} == {"n1", "n2"}
    assert [cpus(site, job, node) for node in ("n1", "n2")] == [cores, cores]

    later = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--soda-category=cv", "--gres=gpu:1", "-c", "1")
    upcoming = int(site.cluster.exec("alice", later, input="#!/bin/sh\n").check().stdout)
    site.wait(lambda: site.shown(upcoming, "NumCPUs") == str(cores), "the next job starts with what this one needed")
