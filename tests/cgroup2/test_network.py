"""A node's link on cgroup v2: a GPU job of two nodes and a CPU job beside it are told apart by the paths of their groups."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from slurm_soda.containers.virtual_cluster import LINK
from tests.cgroup2.conftest import Site

pytestmark = pytest.mark.cgroup2

LINK_MBIT = 8
"""Little enough for cores that are emulated."""
CONFIG = f'[network]\ngpu_interface = "{LINK}"\nlink_mbit = {LINK_MBIT}\n'
SEND = "iperf3 -c n2 -p {port} --json -t 15 >/tmp/{name}"
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


def sent(site: Site, name: str) -> dict[str, float]:
    """What iperf3 says of all that it sent; empty before its end."""
    text = site.root(f"cat /tmp/{name} 2>/dev/null; true")
    return dict(json.loads(text)["end"]["sum_sent"]) if text.endswith("}") else {}


def bytes_in_class(site: Site, minor: int) -> int:
    shown = site.root(f"tc -s class show dev {LINK}")
    return int(re.findall(rf"class htb 50da:{minor} [^\n]*\n Sent (\d+) bytes", shown)[0])


def left(site: Site) -> str:
    """What there is of ours on n1."""
    return site.root(
        f"tc qdisc show dev {LINK} | grep 50da; nft list tables | grep slurm-soda;"
        " ls /var/lib/slurm-soda-agent/network.json 2>/dev/null; true"
    )


def test_both_jobs_send_in_their_own_class_of_the_link(shared_out: Site) -> None:
    site, told = shared_out, "until [ -e /tmp/told-apart ]; do sleep 0.5; done"
    site.root("rm -f /tmp/told-apart /tmp/gpu /tmp/cpu")
    both = f"{SEND.format(port=5201, name='gpu')}; sleep 600"
    gpu = site.submit(f"{told}; {both}", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    cpu = site.submit(f"{told}; {SEND.format(port=5202, name='cpu')}; sleep 600", "--nodelist=n1")

    def rules() -> str:
        return site.cluster.exec("root", ("sh", "-c", TABLE), node="n1").stdout

    site.until(lambda: f"job_{gpu}" in rules() and f"job_{cpu}" in rules(), "both jobs are told apart")
    assert "socket cgroupv2 level 3" in rules()
    assert "meta cgroup" not in rules()
    site.root("touch /tmp/told-apart")
    site.until(lambda: all(sent(site, name) for name in ("gpu", "cpu")), "both jobs have sent")
    rates = [sent(site, name)["bits_per_second"] / 1e6 for name in ("gpu", "cpu")]
    print(f"GPU job {rates[0]:.1f}, CPU job {rates[1]:.1f} Mbit/s of {LINK_MBIT}")
    for name, minor in (("gpu", 10), ("cpu", 20)):
        payload, seen = sent(site, name)["bytes"], bytes_in_class(site, minor)
        assert 0.8 * payload <= seen <= 1.2 * payload, (name, payload, seen)  # with headers, without what waits to go
    site.cluster.exec("root", ("scancel", str(gpu), str(cpu))).check()
    site.until(lambda: not left(site), "nothing of ours is on the network")
