"""Guests on real nodes, made by hand: their GPUs, what their tasks see, and who else may be there. No sodad runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.walls.bench_cluster import CASES, prepared, run
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

SHOW = r"""
show() {
    echo "$1 $(hostname) cuda=${CUDA_VISIBLE_DEVICES-unset} held=$SLURM_JOB_GPUS" \
        "sub=$SODA_SUB_BATCH steps=$SODA_ACCUMULATION_STEPS"
}
show batch
export -f show
srun --ntasks-per-node=1 bash -c 'show step; sed -n "s/^c 195:\([0-9]\) .*/device $(hostname) \1/p" \
    /sys/fs/cgroup/devices/slurm_$(hostname)/uid_*/job_$SLURM_JOB_ID/devices.list 2>/dev/null; true'
echo shown
sleep 300
"""


@dataclass
class Site:
    cluster: ContainerCluster

    def root(self, *argv: str, node: str = "ctl") -> str:
        return self.cluster.exec("root", argv, node=node).check().stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        argv = ("sbatch", "--parsable", "--requeue", "--mem=1", "--output=/home/alice/walls.%j", *options)
        return int(self.cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def state(self, job: int) -> str:
        return self.root("squeue", "--noheader", "--states=all", "--format=%T %r", f"--jobs={job}")

    def wait(self, job: int, state: str) -> None:
        self.cluster.wait_until(lambda: self.state(job).startswith(state), f"job {job} is {state}")

    def host(self, gpus: int, *options: str) -> int:
        job = self.submit("sleep 300", f"--gres=gpu:{gpus}", *options)
        self.wait(job, "RUNNING")
        return job

    def guest(
        self,
        hosts: list[int],
        gpus: tuple[int, ...],
        *options: str,
        own: int = 0,
        node: str = "n1",
        plain: int = 0,
        script: str = SHOW,
    ) -> int:
        """``plain``: before it can start its owner asks for so many GPUs of his own."""
        asks = len(gpus) + own
        job = self.submit(script, "--hold", f"--gpus-per-node={asks}", *options)
        undo = {"TresPerNode": f"gres/gpu:{asks}", "ReqNodeList": ""}
        record = GuestRecord(tuple(sorted(hosts)), gpus, own=own, sub_batch=32, steps=2, undo=undo)
        request = ",".join(([f"gres/gpu:{own}"] if own else []) + [f"gres/sharedgpu:g{gpu}:1" for gpu in gpus])
        fields = (f"TresPerNode={request}", f"ReqNodeList={node}", f"Extra={record.encode()}")
        self.root("scontrol", "update", f"jobid={job}", *fields)
        if plain:
            request = f"TresPerNode=gres/gpu:{plain}"
            self.cluster.exec("alice", ("scontrol", "update", f"jobid={job}", request)).check()
        self.root("scontrol", "release", str(job))
        return job

    def output(self, job: int) -> str:
        return self.cluster.exec("root", ("cat", f"/home/alice/walls.{job}")).stdout

    def shown(self, job: int) -> set[str]:
        """What the guest's batch script and its steps saw."""
        self.cluster.wait_until(lambda: "shown" in self.output(job), f"guest {job} has shown its environment")
        assert "error" not in self.output(job)
        return set(self.output(job).splitlines()) - {"shown"}

    def records(self, node: str = "n1") -> set[str]:
        return set(self.cluster.exec("root", ("ls", "/run/slurm-soda-node/shares"), node=node).stdout.split())

    def tasks(self, array: int) -> list[str]:
        """Index and state of each task."""
        return self.root("squeue", "--noheader", "--array", f"--jobs={array}", "--format=%K %T").splitlines()

    def clear(self) -> None:
        self.root("scancel", "--user=alice")
        for node in ("n1", "n2"):
            self.cluster.wait_until(lambda node=node: not self.records(node), f"no record is left on {node}")  # type: ignore[misc]
        self.cluster.wait_until(lambda: set(self.cluster.node_states().values()) == {"idle"}, "both nodes are idle")


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[Site]:
    site = Site(cluster)
    yield site
    site.clear()


@pytest.fixture(params=["yes", "no"])
def constrained(request: pytest.FixtureRequest, cluster: ContainerCluster) -> Iterator[bool]:
    """With ConstrainDevices, and without."""

    def configure(answer: str) -> None:
        edit = ("sed", "-i", f"s/^ConstrainDevices=.*/ConstrainDevices={answer}/", "/etc/slurm/cgroup.conf")
        for node in ("n1", "n2"):
            cluster.exec("root", edit, node=node).check()
            cluster.stop("slurmd", node=node)
            cluster.start("slurmd", node=node)
        cluster.wait_until(lambda: set(cluster.node_states().values()) == {"idle"}, "both nodes are idle")

    if request.param == "no":
        configure("no")
    yield request.param == "yes"
    Site(cluster).clear()  # slurmd is not restarted beside jobs
    if request.param == "no":
        configure("yes")


def expected(gpus: tuple[int, ...], *nodes: str, constrained: bool) -> set[str]:
    held = ",".join(map(str, gpus))
    cuda = ",".join(map(str, range(len(gpus)))) if constrained else held
    rest = f"cuda={cuda} held={held} sub=32 steps=2"
    lines = {f"batch {nodes[0]} {rest}", *(f"step {node} {rest}" for node in nodes)}
    return lines | {f"device {node} {gpu}" for node in nodes for gpu in gpus if constrained}


def test_a_guest_on_gpu_2_while_others_are_free(site: Site, constrained: bool) -> None:
    on_n1 = "--nodelist=n1"
    first, second, host = (site.host(1, on_n1) for _ in range(3))
    site.root("scancel", str(first), str(second))
    job = site.guest([host], (2,))
    assert site.shown(job) == expected((2,), "n1", constrained=constrained)


def test_guests_on_all_half_and_two_hosts(site: Site, constrained: bool) -> None:
    host = site.host(4, "--nodelist=n1")
    half = site.guest([host], (1, 3))
    assert site.shown(half) == expected((1, 3), "n1", constrained=constrained)
    site.root("scancel", str(half))
    whole = site.guest([host], (0, 1, 2, 3))
    assert site.shown(whole) == expected((0, 1, 2, 3), "n1", constrained=constrained)
    hosts = [site.host(2, "--nodelist=n2") for _ in range(2)]
    both = site.guest(hosts, (0, 1, 2, 3), node="n2")
    assert site.shown(both) == expected((0, 1, 2, 3), "n2", constrained=constrained)


def test_a_guest_with_a_shared_gpu_and_a_free_one(site: Site, constrained: bool) -> None:
    host = site.host(1, "--nodelist=n1")
    job = site.guest([host], (0,), own=1)
    assert site.shown(job) == expected((0, 1), "n1", constrained=constrained)


def test_a_guest_that_its_owner_made_a_plain_job_is_on_gpus_of_its_own(site: Site) -> None:
    """Nobody has taken its record back when it starts."""
    host = site.host(1, "--nodelist=n1")
    jobs = [site.guest([host], (0,), plain=1), site.guest([host], (0,), own=1, plain=1)]
    for gpu, job in enumerate(jobs, start=1):
        alone = f"batch n1 cuda=0 held={gpu} sub= steps=\n"
        site.cluster.wait_until(lambda job=job: "shown" in site.output(job), f"job {job} has shown its environment")  # type: ignore[misc]
        assert site.output(job).startswith(alone)
    assert site.records() == {f"gpus.{job}" for job in (host, *jobs)}
    site.root("scancel", str(host))
    site.wait(host, "CANCELLED")
    site.cluster.wait_until(lambda: f"gpus.{host}" not in site.records(), "its host's epilog has ended")
    assert [site.state(job) for job in jobs] == ["RUNNING None"] * 2


def test_a_gang_on_equal_gpus_of_two_nodes_loses_them_with_one_host(site: Site) -> None:
    hosts = [site.host(2, f"--nodelist={node}") for node in ("n1", "n2")]
    job = site.guest(hosts, (0, 1), "--nodes=2", "--ntasks-per-node=1", node="n1,n2")
    assert site.shown(job) == expected((0, 1), "n1", "n2", constrained=True)
    site.root("scancel", *map(str, hosts))  # two epilogs requeue one guest
    site.wait(job, "PENDING")
    assert re.search(r"Restarts=1\b", site.root("scontrol", "show", "job", str(job)))


def test_a_guest_whose_host_is_gone_goes_back_by_itself(site: Site) -> None:
    host = site.host(2, "--nodelist=n1")
    for hosts, gpus in (([host], (2,)), ([host + 1000], (0,)), ([host], (0, 1, 2))):
        job = site.guest(hosts, gpus)
        site.wait(job, "PENDING BeginTime")
        site.root("scancel", str(job))
    assert site.records() == {f"gpus.{host}"}
    assert set(site.cluster.node_states().values()) <= {"mixed", "idle"}


def test_a_guest_that_slurm_was_told_not_to_requeue_goes_back_all_the_same(site: Site) -> None:
    host = site.host(1, "--nodelist=n1")
    job = site.guest([host], (0,))
    site.shown(job)
    site.root("scontrol", "update", f"jobid={job}", "Requeue=0")
    site.root("scancel", str(host))
    site.wait(job, "PENDING")


def test_a_guest_that_was_suspended_when_its_host_ended_is_not_held(site: Site) -> None:
    host = site.host(1, "--nodelist=n1")
    job = site.guest([host], (0,))
    site.shown(job)
    site.root("scontrol", "suspend", str(job))
    site.root("scancel", str(host))
    site.wait(job, "PENDING BeginTime")


def test_a_guest_that_ended_with_its_host_is_not_run_again(site: Site) -> None:
    host = site.host(1, "--nodelist=n1")
    job = site.guest([host], (0,))
    site.shown(job)
    site.root("scancel", str(job), str(host))
    site.wait(job, "CANCELLED")
    site.clear()
    assert site.state(job).startswith("CANCELLED")


def test_the_last_task_of_an_array_goes_back_alone(site: Site) -> None:
    """Its id is the array's: a requeue by that would stop the other tasks too."""
    host = site.host(1, "--nodelist=n1")
    array = site.submit("sleep 300", "--array=1-2", "--gres=gpu:1", "--nodelist=n1", "--hold")
    site.root("scontrol", "release", f"{array}_1")
    site.cluster.wait_until(lambda: "1 RUNNING" in site.tasks(array), "the first task runs")
    record = GuestRecord((host,), (0,), undo={"TresPerNode": "gres/gpu:1", "ReqNodeList": "n1"}).encode()
    site.root(
        "scontrol", "update", f"jobid={array}_2", "TresPerNode=gres/sharedgpu:g0:1", "ReqNodeList=n1", f"Extra={record}"
    )
    site.root("scontrol", "release", f"{array}_2")
    site.cluster.wait_until(lambda: "2 RUNNING" in site.tasks(array), "the guest runs")
    assert f"guest.{array}" in site.records()
    site.root("scancel", str(host))
    site.cluster.wait_until(lambda: "2 PENDING" in site.tasks(array), "the guest waits again")
    assert "1 RUNNING" in site.tasks(array)


PARTS = "/opt/slurm-soda/libexec"
RECORDS = "/run/slurm-soda-node/shares"
BROKEN = {
    "a part is missing": (f"mv {PARTS}/share-records {PARTS}/away", f"mv {PARTS}/away {PARTS}/share-records"),
    "a part is cut off": (f"mv {PARTS}/share-records {PARTS}/away; sed '/^}}/q' {PARTS}/away >{PARTS}/share-records",
                          f"mv {PARTS}/away {PARTS}/share-records"),
    "the directory is a user's": (f"chown alice {RECORDS}", f"chown root {RECORDS}"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", BROKEN)
def test_broken_walls_keep_newcomers_off_and_drain_no_node(site: Site, case: str) -> None:
    damage, mended = BROKEN[case]
    host = site.host(1, "--nodelist=n1")
    guest = site.guest([host], (0,))
    site.shown(guest)
    site.root("sh", "-c", damage, node="n1")
    try:
        site.root("scancel", str(host))
        newcomer = site.submit("echo began; sleep 300", "--gres=gpu:4", "--nodelist=n1")
        site.wait(newcomer, "PENDING BeginTime")
        assert not site.output(newcomer)
        late = site.guest([host], (1,))
        site.wait(late, "PENDING BeginTime")
        assert site.state(guest).startswith("RUNNING")
        assert not [state for state in site.cluster.node_states().values() if "drain" in state]
    finally:
        site.root("sh", "-c", mended, node="n1")
    site.root("scontrol", "update", f"jobid={newcomer}", "StartTime=now")
    # Slurm may call it running as soon as its prolog does, which sends the guest away first.
    site.cluster.wait_until(lambda: "began" in site.output(newcomer), f"job {newcomer} has begun")
    assert not site.state(guest).startswith("RUNNING")


@pytest.mark.parametrize("first", ["its host's end", "a newcomer"])
def test_a_guest_whose_record_was_lost_leaves_with_its_host(site: Site, first: str) -> None:
    """The next prolog or epilog takes it from what Slurm shows."""
    host = site.host(1, "--nodelist=n1")
    guest = site.guest([host], (0,))
    site.shown(guest)
    site.root("rm", "-rf", "/run/slurm-soda-node", node="n1")
    if first == "a newcomer":
        site.host(1, "--nodelist=n1")
        again = {f"guest.{guest}", f"env.{guest}"}
        site.cluster.wait_until(lambda: again <= site.records(), "the guest's record is there again")
        assert site.state(guest).startswith("RUNNING")
    site.root("scancel", str(host))
    newcomer = site.submit("sleep 300", "--gres=gpu:3", "--nodelist=n1")
    site.wait(newcomer, "RUNNING")
    assert site.state(guest).startswith("PENDING")
    assert f"guest.{guest}" not in site.records()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sample(3)
def test_nobody_starts_beside_a_guest(cluster: ContainerCluster, case: str) -> None:
    with prepared(cluster):
        found = list(run(cluster, [case], 2, 1, 20))
    assert [one.error for one in found] == ["", ""]
    assert [one.overlaps for one in found] == [0, 0]
    Site(cluster).clear()


def test_without_the_walls_that_happens(cluster: ContainerCluster) -> None:
    """So that the counts above can be believed."""
    # As before there were walls: without these parts alone the hooks would put jobs back.
    hooks = f"cd {PARTS} && for hook in share-start share-end share-back; do mv $hook $hook.away; done"
    for node in ("n1", "n2"):
        cluster.exec("root", ("sh", "-c", hooks), node=node).check()
    try:
        with prepared(cluster):
            found = list(run(cluster, ["exits"], 2, 1, 20))
    finally:
        for node in ("n1", "n2"):
            back = hooks.replace("mv $hook $hook.away", "mv $hook.away $hook")
            cluster.exec("root", ("sh", "-c", back), node=node).check()
    assert sum(one.overlaps for one in found) >= 1
    Site(cluster).clear()
