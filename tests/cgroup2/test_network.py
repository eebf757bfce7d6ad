"""A node's link on cgroup v2: a GPU job of two nodes and a CPU job beside it are told apart by the paths of their groups."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from slurm_soda.containers.virtual_cluster import LINK
from tests.cgroup2.conftest import Site

pytestmark = pytest.mark.cgroup2

LINK_MBIT = 8
"""Little enough for cores that are emulated."""
CONFIG = f'[network]\ngpu_interface = "{LINK}"\nlink_mbit = {LINK_MBIT}\n'
SEND = "iperf3 -c n2 -p {port} --format m --interval 1 --forceflush -t {seconds} -O 3 >/tmp/{name}"
TABLE = "nft list table inet slurm-soda-network"


@pytest.fixture
def shared_out(site: Site) -> Iterator[Site]:
    """An agent that shares the link out, and somebody on n2 to send to."""
    try:
        site.configure(CONFIG)
        for port in (5201, 5202):
            site.root(f"iperf3 --server --daemon --port {port}", "n2")
        yield site
    finally:
        site.clear()
        site.root("pkill -x iperf3; true")
        site.configure("")


def mbit(site: Site, name: str) -> float:
    """The median second of what iperf3 reported."""
    lines = site.root(f"cat /tmp/{name}").splitlines()
    ends = ("omitted)", "sender", "receiver")
    seconds = [line for line in lines if "Mbits/sec" in line and not line.rstrip().endswith(ends)]
    return median(float(line.partition(" Mbits/sec")[0].split()[-1]) for line in seconds)


def left(site: Site) -> str:
    """What there is of ours on n1."""
    return site.root(
        f"tc qdisc show dev {LINK} | grep 50da; nft list tables | grep slurm-soda;"
        " ls /var/lib/slurm-soda-agent/network.json 2>/dev/null; true"
    )


def test_a_gpu_job_on_two_nodes_keeps_its_part_of_the_link(shared_out: Site) -> None:
    site, told = shared_out, "until [ -e /tmp/told-apart ]; do sleep 0.5; done"
    site.root("rm -f /tmp/told-apart")
    both = f"{SEND.format(port=5201, seconds=20, name='gpu')}; sleep 600"
    gpu = site.submit(f"{told}; {both}", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    cpu = site.submit(f"{told}; {SEND.format(port=5202, seconds=30, name='cpu')}; sleep 600", "--nodelist=n1")

    def rules() -> str:
        return site.cluster.exec("root", ("sh", "-c", TABLE), node="n1").stdout

    site.until(lambda: f"job_{gpu}" in rules() and f"job_{cpu}" in rules(), "both jobs are told apart")
    assert "socket cgroupv2 level 3" in rules()
    assert "meta cgroup" not in rules()
    site.root("touch /tmp/told-apart")
    site.until(lambda: "sender" in site.root("cat /tmp/gpu 2>/dev/null; true"), "the GPU job has sent")
    shares = mbit(site, "gpu"), mbit(site, "cpu")
    figures = f"GPU job {shares[0]:.1f}, CPU job {shares[1]:.1f} Mbit/s of {LINK_MBIT}"
    print(figures)
    assert shares[0] >= 0.6 * LINK_MBIT, figures
    assert shares[0] >= 2.0 * shares[1], figures
    site.cluster.exec("root", ("scancel", str(gpu), str(cpu))).check()
    site.until(lambda: not left(site), "nothing of ours is on the network")
