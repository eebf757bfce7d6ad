"""slurmctld answers nothing for longer than hooks may take: no node drains, and nobody starts beside a guest's processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.test_walls import PARTS, Site

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

KILL_WAIT_S, LIMIT_S = 1, 41
"""PrologEpilogTimeout is the least that docs/sharing.md allows: KillWait and 40 s."""
ALIVE = "trap '' TERM; while :; do date +%s.%N >/home/alice/alive; sleep 0.2; done"
GATE = "while [ -e /run/gate ]; do /bin/sleep 0.05; done"
GATED = f"cd {PARTS} && for part in share-start share-end; do sed -i '1i {GATE}' $part; done; : >/run/gate"
UNGATED = f"cd {PARTS} && rm -f /run/gate && sed -i '\\|/run/gate|d' share-start share-end"


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[Site]:
    site = Site(cluster)
    set_limits(site, KILL_WAIT_S, LIMIT_S)
    yield site
    site.root("pkill", "-CONT", "-f", "^slurmctld -D")
    for node in ("n1", "n2"):
        site.root("sh", "-c", f"{UNGATED}; rm -f /etc/slurm-soda/sharing.conf", node=node)
    site.clear()
    set_limits(site, 10, 90)


def set_limits(site: Site, kill_wait_s: int, limit_s: int) -> None:
    edit = f"s/^KillWait=.*/KillWait={kill_wait_s}/; s/^PrologEpilogTimeout=.*/PrologEpilogTimeout={limit_s}/"
    for node in ("ctl", "n1", "n2"):
        site.root("sed", "-i", edit, "/etc/slurm/slurm.conf", node=node)
        site.root(
            "sh",
            "-c",
            f"mkdir -p /etc/slurm-soda; echo kill_wait_s={kill_wait_s} >/etc/slurm-soda/sharing.conf",
            node=node,
        )
    site.root("scontrol", "reconfigure")
    site.cluster.wait_until(lambda: set(site.cluster.node_states().values()) == {"idle"}, "both nodes are idle")


def test_hooks_end_in_time_while_slurm_says_nothing(site: Site) -> None:
    host = site.host(4, "--nodelist=n1")
    orphan = site.guest([host], (0,), script=ALIVE)
    other = site.host(4, "--nodelist=n2")
    guests = [site.guest([other], (gpu,), node="n2") for gpu in range(4)]
    for job in (orphan, *guests):
        site.wait(job, "RUNNING")
    site.root("mv", f"{PARTS}/share-end", f"{PARTS}/away", node="n1")
    site.root("scancel", str(host))
    site.wait(host, "CANCELLED")
    site.root("mv", f"{PARTS}/away", f"{PARTS}/share-end", node="n1")
    for node in ("n1", "n2"):
        site.root("sh", "-c", GATED, node=node)
    newcomer = site.submit("date +%s.%N; sleep 300", "--gres=gpu:4", "--nodelist=n1")
    site.root("scancel", str(other))
    for node, hook in (("n1", "prolog"), ("n2", "epilog")):
        begun = ("pgrep", "-f", f"libexec/{hook}")
        site.cluster.wait_until(
            lambda n=node, b=begun: site.cluster.exec("root", b, node=n).status == 0, f"a {hook} runs"
        )  # type: ignore[misc]
    site.root("pkill", "-STOP", "-f", "^slurmctld -D")
    begun_s = time.monotonic()
    for node in ("n1", "n2"):
        site.root("rm", "/run/gate", node=node)
    time.sleep(LIMIT_S + 4 - (time.monotonic() - begun_s))
    site.root("pkill", "-CONT", "-f", "^slurmctld -D")
    site.cluster.wait_until(lambda: len(site.cluster.node_states()) == 2, "slurmctld answers")
    site.cluster.wait_until(
        lambda: site.state(newcomer).split()[0] in {"RUNNING", "PENDING"}, "the newcomer's prolog is over"
    )
    time.sleep(3)  # what slurmd has to say of its hooks has come
    assert not [state for state in site.cluster.node_states().values() if "drain" in state]
    assert "held" not in site.state(newcomer)
    if site.state(newcomer).startswith("RUNNING"):
        site.cluster.wait_until(lambda: site.output(newcomer) != "", "the newcomer says when it began")
        last = float(site.root("cat", "/home/alice/alive"))
        assert float(site.output(newcomer).split()[0]) > last
