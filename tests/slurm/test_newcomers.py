"""Jobs that prologs put back: as a whole, as they were, and whatever slurm.conf says of prologs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.test_walls import PARTS, Site

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

HETEROGENEOUS = """#SBATCH --exclude={first}
#SBATCH hetjob
#SBATCH --mem=1 --gres=gpu:1 --exclude={second}
echo began; sleep 300"""


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[Site]:
    site = Site(cluster)
    yield site
    site.clear()


@pytest.fixture
def broken(site: Site) -> Iterator[Site]:
    """Node n1 has a guest, and a part of its hooks is missing: every newcomer with GPUs goes back."""
    host = site.host(1, "--nodelist=n1")
    site.shown(site.guest([host], (0,)))
    site.root("mv", f"{PARTS}/share-records", f"{PARTS}/away", node="n1")
    yield site
    site.root("mv", f"{PARTS}/away", f"{PARTS}/share-records", node="n1")


def test_a_job_that_is_not_to_be_requeued_is_put_back_as_it_was(broken: Site) -> None:
    job = broken.submit("echo began; sleep 300", "--gres=gpu:1", "--nodelist=n1", "--no-requeue")
    broken.wait(job, "PENDING BeginTime")
    broken.cluster.wait_until(
        lambda: " Requeue=0 " in broken.root("scontrol", "--oneliner", "show", "job", str(job)), "it is as it was"
    )
    assert not broken.output(job)


@pytest.mark.parametrize("nodes", [("n2", "n1"), ("n1", "n2")])
def test_a_heterogeneous_job_goes_back_as_a_whole(broken: Site, nodes: tuple[str, str]) -> None:
    """Whichever of its parts is on the node."""
    first, second = nodes
    job = broken.submit(HETEROGENEOUS.format(first=first, second=second), "--gres=gpu:1")
    parts = ("squeue", "--noheader", f"--jobs={job}", "--format=%i %T %r")
    wanted = {f"{job}+{part} PENDING BeginTime" for part in (0, 1)}
    broken.cluster.wait_until(lambda: set(broken.root(*parts).splitlines()) == wanted, "both parts wait")


def test_where_hooks_run_in_their_job_guests_go_back_and_no_node_drains(site: Site) -> None:
    def flags(value: str) -> None:
        for node in ("ctl", "n1", "n2"):
            site.root("sed", "-i", f"s/^PrologFlags=.*/PrologFlags={value}/", "/etc/slurm/slurm.conf", node=node)
        for node in ("n1", "n2"):
            site.cluster.stop("slurmd", node=node)
            site.cluster.start("slurmd", node=node)
        site.cluster.restart_slurmctld()
        site.cluster.wait_until(lambda: set(site.cluster.node_states().values()) == {"idle"}, "both nodes are idle")

    flags("Alloc,Contain,RunInJob")
    try:
        host = site.host(1, "--nodelist=n1")
        job = site.guest([host], (0,))
        site.wait(job, "PENDING BeginTime")
        site.cluster.wait_until(lambda: site.records() == {f"gpus.{host}"}, "its epilog has ended")
        assert set(site.cluster.node_states().values()) <= {"mixed", "idle"}
    finally:
        site.clear()
        flags("Alloc")
