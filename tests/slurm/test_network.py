"""The link shared out between real jobs: a GPU job on two nodes keeps its part while a CPU job sends at full speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import pytest

from slurm_soda.containers.cluster import ContainerCluster

pytestmark = pytest.mark.slurm

LINK_MBIT = 200
"""Little enough for two nodes that share two loaded cores."""
CONFIG = f'[network]\ngpu_interface = "eth0"\nlink_mbit = {LINK_MBIT}\n'
LINES = "--format m --interval 1 --forceflush"
FILE = "/etc/slurm-soda/agent.toml"
WAIT_FOR_TREE = "for _ in $(seq 600); do tc class show dev eth0 | grep -q 50da:20 && break; sleep 0.1; done"
NFT = ("nft", "list", "table", "inet", "slurm-soda-network")
LEFT_BY_US = (
    "tc qdisc show dev eth0 | grep 50da; nft list tables | grep slurm-soda; ls -d /run/slurm-soda-agent/net_cls"
    " /var/lib/slurm-soda-agent/network.json; grep -h slurm-soda /proc/[0-9]*/cgroup; true"
)


@dataclass
class Site:
    """Two nodes whose agents share their links out; alice's jobs on them."""

    cluster: ContainerCluster
    by_net_cls: bool
    """Jobs are told apart by groups of net_cls, which the jobs can see."""

    def submit(self, script: str, *options: str) -> int:
        argv = ("sbatch", "--parsable", "--output=/dev/null", "--time=5", *options)
        return int(self.cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def cancel(self, *jobs: int) -> None:
        self.cluster.exec("root", ("scancel", *map(str, jobs))).check()

    def wait_ended(self, *jobs: int) -> None:
        states = "--states=PENDING,RUNNING,COMPLETING"
        argv = ("squeue", "--noheader", f"--jobs={','.join(map(str, jobs))}", states)
        self.cluster.wait_until(lambda: not self.cluster.exec("root", argv).stdout, "the jobs have ended", within_s=180)

    def left(self, node: str) -> str:
        """What there is of ours on a node: qdisc, table, groups, mark."""
        return self.cluster.exec("root", ("sh", "-c", LEFT_BY_US), node=node).check().stdout

    def wait_clean(self, *nodes: str) -> None:
        self.cluster.wait_until(lambda: not any(map(self.left, nodes)), "nothing of ours is on the network")

    def wait_shared_out(self, node: str) -> None:
        """Until there is all that :meth:`wait_clean` later wants gone."""
        parts = ["qdisc htb 50da:", "table inet slurm-soda-network", "network.json"]
        parts += [f"/slurm-soda-{node}/{kind}" for kind in ("gpu", "cpu") if self.by_net_cls]
        self.cluster.wait_until(
            lambda: _all_in(parts, self.left(node)),
            f"the link of {node} is shared out and both jobs are told apart",
        )

    def wait_told_apart(self, kind: str) -> str:
        """Shell words that wait until the agent has put a job on n1 where its kind belongs."""
        if not self.by_net_cls:
            return f"{WAIT_FOR_TREE}; sleep 5"
        return f"for _ in $(seq 600); do grep -q slurm-soda-n1/{kind} /proc/self/cgroup && break; sleep 0.1; done"

    def mbit(self, file: str) -> float:
        """What iperf3 reported of its median second; it may have been killed."""
        lines = self.cluster.exec("alice", ("cat", file)).check().stdout.splitlines()
        seconds = [
            line
            for line in lines
            if "Mbits/sec" in line and not line.rstrip().endswith(("omitted)", "sender", "receiver"))
        ]
        together = [line for line in seconds if line.startswith("[SUM]")] or seconds
        return median(float(line.partition(" Mbits/sec")[0].split()[-1]) for line in together)


def _all_in(parts: Sequence[str], text: str) -> bool:
    return all(part in text for part in parts)


@pytest.fixture(scope="module")
def site(cluster: ContainerCluster) -> Iterator[Site]:
    """Skipped where nothing tells jobs apart."""
    by_net_cls = "cgroup/v1" in cluster.copy_out("/etc/slurm/cgroup.conf").decode()
    if by_net_cls and not cluster.create_net_cls():
        pytest.skip("this engine's kernel has no net_cls, and jobs have no groups of cgroup v2")
    with ExitStack() as undo:  # each step in any case, the last one first
        for node in ("n1", "n2"):
            undo.callback(cluster.start, "soda-agent", node=node)
            undo.callback(cluster.stop, "soda-agent", node=node)
            undo.callback(cluster.exec, "root", ("rm", "-f", FILE), node=node)
            cluster.exec("root", ("mkdir", "-p", "/etc/slurm-soda"), node=node).check()
            cluster.copy_in(CONFIG.encode(), FILE, node=node)
            cluster.stop("soda-agent", node=node)
            cluster.start("soda-agent", node=node)
        undo.callback(cluster.exec, "root", ("sh", "-c", "kill $(pgrep -x iperf3)"), node="n2")
        for port in ("5201", "5202"):
            cluster.exec("root", ("iperf3", "--server", "--daemon", "--port", port), node="n2").check()
        undo.callback(cluster.exec, "root", ("scancel", "--user=alice"))
        yield Site(cluster, by_net_cls)


def test_a_gpu_job_on_two_nodes_keeps_its_part_of_the_link(site: Site) -> None:
    site.cluster.exec("alice", ("rm", "-f", "go", "alone", "beside", "cpu")).check()
    cpu = (
        f"{site.wait_told_apart('cpu')}; until [ -e go ]; do sleep 0.1; done; iperf3 -c n2 -p 5202 -t 120 {LINES} >cpu"
    )
    gpu = (
        f"{site.wait_told_apart('gpu')}; iperf3 -c n2 -p 5201 -t 4 -O 2 {LINES} >alone; touch go;"
        " until grep -q Mbits/sec cpu; do sleep 0.1; done;"
        f" iperf3 -c n2 -p 5201 -t 10 -O 4 {LINES} >beside; pkill -KILL -x iperf3"
    )
    cpu_job = site.submit(cpu, "--nodelist=n1")
    gpu_job = site.submit(gpu, "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    site.wait_shared_out("n1")
    site.wait_ended(cpu_job, gpu_job)
    alone, beside, cpus = (site.mbit(file) for file in ("alone", "beside", "cpu"))
    figures = f"GPU job alone {alone:.0f}, beside {beside:.0f}, CPU job {cpus:.0f} Mbit/s of {LINK_MBIT}"
    print(figures)
    assert 0.5 * LINK_MBIT <= alone <= 1.1 * LINK_MBIT, figures
    assert beside >= 0.70 * alone, figures
    assert cpus >= 0.15 * LINK_MBIT, figures
    site.wait_clean("n1", "n2")


@pytest.mark.thorough
def test_a_gpu_job_keeps_its_part_of_what_comes_in(site: Site) -> None:
    """A narrow qdisc on n2 stands for the switch's port to n1: a CPU job of n1 receives through it by four connections."""
    site.cluster.exec("alice", ("rm", "-f", "limited", "beside", "cpu")).check()
    site.cluster.exec("root", ("tc", "qdisc", "add", *NARROW), node="n2").check()
    try:
        receive = f"iperf3 -c n2 -p 5201 --reverse {LINES}"
        cpu_job = site.submit(f"iperf3 -c n2 -p 5202 -t 120 -P 4 --reverse {LINES} >cpu", "--nodelist=n1")
        gpu = (
            f"until [ -e limited ]; do {receive} -t 4 >/dev/null || sleep 0.2; done;"
            f" for _ in 1 2 3 4 5; do {receive} -t 10 -O 4 >beside && break; sleep 1; done; pkill -KILL -x iperf3"
        )
        gpu_job = site.submit(gpu, "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
        site.wait_shared_out("n1")
        site.cluster.wait_until(
            lambda: "chain cpu_jobs" in site.cluster.exec("root", NFT, node="n1").stdout,
            "what CPU jobs receive is limited",
        )
        site.cluster.exec("alice", ("touch", "limited")).check()
        site.wait_ended(cpu_job, gpu_job)
    finally:
        site.cluster.exec("root", ("tc", "qdisc", "del", "dev", "eth0", "root"), node="n2")
    beside, cpus = site.mbit("beside"), site.mbit("cpu")
    figures = f"GPU job {beside:.0f}, CPU job {cpus:.0f} Mbit/s of {LINK_MBIT} received"
    print(figures)
    assert beside >= 0.4 * LINK_MBIT, f"{figures}; by fair shares it would be 0.2"
    site.wait_clean("n1", "n2")


NARROW = ("dev", "eth0", "root", "handle", "7:", "tbf", "rate", f"{LINK_MBIT}mbit", "burst", "64k", "limit", "400k")


def test_an_agent_that_is_killed_leaves_no_limit_when_it_is_back(site: Site) -> None:
    jobs = (
        site.submit("sleep 120", "--nodelist=n1"),
        site.submit("sleep 120", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1"),
    )
    site.wait_shared_out("n1")
    site.cluster.kill("soda-agent", node="n1", restart=False)
    site.cancel(*jobs)
    assert "qdisc htb 50da:" in site.left("n1")
    site.cluster.start("soda-agent", node="n1")
    site.wait_clean("n1", "n2")


def test_a_sites_own_qdisc_is_left_alone_and_said(site: Site) -> None:
    site.cluster.exec("root", ("tc", "qdisc", "add", *QDISC), node="n1").check()
    try:
        jobs = (
            site.submit("sleep 120", "--nodelist=n1"),
            site.submit("sleep 120", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1"),
        )
        log = ("grep", "-c", "queueing discipline of somebody else (tbf 7:)", "/var/log/cluster/soda-agent.log")
        site.cluster.wait_until(lambda: site.cluster.exec("root", log, node="n1").status == 0, "the agent says so")
        shown = site.cluster.exec("root", ("tc", "qdisc", "show", "dev", "eth0"), node="n1").check().stdout
        assert shown.startswith("qdisc tbf 7: root")
        assert not site.left("n1")
        site.cancel(*jobs)
    finally:
        site.cluster.exec("root", ("tc", "qdisc", "del", "dev", "eth0", "root"), node="n1")
    site.wait_clean("n1", "n2")


QDISC = ("dev", "eth0", "root", "handle", "7:", "tbf", "rate", "100mbit", "burst", "100k", "latency", "50ms")
