"""Shared GPUs on cgroup v2, where a BPF program denies a job what it does not hold: host, guest, and who comes next."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from slurm_soda.containers.virtual_cluster import VirtualCluster
from tests.slurm.test_walls import Site as Shares

pytestmark = pytest.mark.cgroup2

SHOW = r"""
show() {
    opens=
    for gpu in 0 1 2 3; do # there is no driver: what may be opened has no device behind it
        said=$( (: </dev/nvidia$gpu) 2>&1 )
        case $said in *'No such device'*) opens="$opens $gpu" ;; *'not permitted'*) ;; *) opens="$opens $gpu?$said" ;; esac
    done
    echo "$1 cuda=${CUDA_VISIBLE_DEVICES-unset} held=$SLURM_JOB_GPUS opens=$opens"
}
show batch
export -f show
srun --ntasks=1 --overlap bash -c 'show step'
echo shown
exec sleep 600
"""


@pytest.fixture
def shares(cluster: VirtualCluster) -> Iterator[Shares]:
    shares = Shares(cluster)
    cluster.exec("root", ("sh", "-c", "mkdir -p /etc/slurm-soda; echo kill_wait_s=10 >/etc/slurm-soda/sharing.conf"))
    yield shares
    shares.clear()


def expect(shares: Shares, job: int, cuda: str, held: str, opens: str) -> None:
    rest = f"cuda={cuda} held={held} opens= {opens}"
    assert shares.shown(job) == {f"batch {rest}", f"step {rest}"}


def plain(shares: Shares, gpus: int) -> int:
    return shares.submit(SHOW, f"--gres=gpu:{gpus}", "--nodelist=n1")


def test_host_and_guest_see_exactly_their_gpus_and_nobody_elses(shares: Shares) -> None:
    host, other = plain(shares, 2), plain(shares, 1)
    expect(shares, host, "0,1", "0,1", "0 1")
    expect(shares, other, "0", "2", "2")
    guest = shares.guest([host], (1,), script=SHOW)
    expect(shares, guest, "0", "1", "1")
    assert shares.records() >= {f"guest.{guest}", f"gpus.{host}"}


def test_a_guest_goes_with_its_host_and_the_next_job_waits_until_it_is_gone(shares: Shares) -> None:
    host = plain(shares, 4)
    shares.wait(host, "RUNNING")
    guest = shares.guest(
        [host], (0, 3), script=f"trap '' TERM\n{SHOW}".replace("exec sleep 600", "sleep 600; sleep 600")
    )
    expect(shares, guest, "0,1", "0,3", "0 3")
    waiting = shares.submit(
        f"ls -d /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_{guest} && echo beside the guest\n{SHOW}",
        "--gres=gpu:4",
        "--nodelist=n1",
    )
    shares.root("scancel", str(host))
    shares.wait(guest, "PENDING")
    assert re.search(r"Restarts=1\b", shares.root("scontrol", "show", "job", str(guest)))
    shares.wait(waiting, "RUNNING")
    shares.cluster.wait_until(lambda: "shown" in shares.output(waiting), "the next job has shown what it sees")
    assert "beside the guest" not in shares.output(waiting)
    assert "opens= 0 1 2 3" in shares.output(waiting)
    assert f"guest.{guest}" not in shares.records()
