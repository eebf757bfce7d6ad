"""Requests of waiting jobs on real Slurm: each way of asking for GPUs becomes a guest's, and goes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.policies.pipeline.actions import JoinGpus
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import HeldOnNode, SlurmJob
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from slurm_soda.slurm_ext.sharing.guest_requests import read_guest_records, request_fields, why_not_guest
from slurm_soda.slurm_ext.write.job_changes import JobChange, join_change, unshare_change
from slurm_soda.slurm_ext.write.sending import apply_changes
from tests.slurm.test_client import InController

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

WAYS = (
    "--gres=gpu:1",
    "--gres=gpu",
    "--gres=gpu:a100:1",
    "--gpus-per-node=1",
    "--gpus=1",
    "--gpus=a100:1",
    "--gpus-per-task=1 --ntasks=1",
    "--tres-per-task=gres/gpu:1 --ntasks=1",
    "--tres-per-task=cpu:2,gres/gpu:1 --ntasks=1",
    "--gres=gpu:1 --gpus=1",
    "--gres=gpu:1 --nodelist=n2",
)
REFUSED = {
    "--gres=gpu:1 --no-requeue": "--no-requeue",
    "--gres=gpu:1 --exclusive": "--exclusive",
    "--gpus-per-socket=1 --sockets-per-node=1": "--gpus-per-socket",
    "--gpus=2 --ntasks-per-gpu=1": "--ntasks-per-gpu",
    "--gpus=1 --cpus-per-gpu=1": "--cpus-per-gpu",
    "--gres=gpu:1 --gres-flags=enforce-binding": "enforce-binding",
    "--gres=gpu:1 --extra=mine": "an Extra of its own",
    "--gres=gpu:1 --mem=0": "the whole memory",
    "--ntasks=1": "no GPU",
    "--gres=gpu:1 --gpus-per-node=1": "twice in one way",
}


@pytest.fixture
def client(cluster: ContainerCluster) -> Iterator[CliSlurmClient]:
    yield CliSlurmClient(InController(cluster))
    cluster.exec("root", ("scancel", "--user=alice"))
    cluster.wait_until(lambda: not cluster.exec("root", ("squeue", "--noheader")).stdout.strip(), "jobs are gone")


def submit(cluster: ContainerCluster, asks: str, *, user: str = "alice") -> int:
    """A job that waits because it is held."""
    memory = () if "--mem" in asks else ("--mem=100",)
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--hold", *memory, *asks.split())
    said = cluster.exec(user, argv, input="#!/bin/sh\nsleep 300\n").check().stdout
    return int(said)


def record_of(client: CliSlurmClient, job_id: int) -> SlurmJob:
    return next(job for job in client.jobs() if job.job_id == job_id)


def shown(cluster: ContainerCluster, job_id: int) -> list[str]:
    """Everything of a request that a share changes, in Slurm's own words, without fields that are empty."""
    text = cluster.exec("root", ("scontrol", "-o", "show", "job", str(job_id))).check().stdout
    names = ("Tres", "ReqNodeList=", "NumNodes=", "NumCPUs=", "MinCPUsNode=", "MinMemory", "ReqTRES=", "Extra=")
    # Slurm bounds the nodes of a job by task when its request changes (NumNodes=1-1): those made guests have one task.
    words = (word.removesuffix("-1") if word.startswith("NumNodes=") else word for word in text.split())
    return [word for word in words if word.startswith(names) and not word.endswith("=")]


def join(job: SlurmJob, *gpus: int, nodes: tuple[str, ...] = ("n1",), hosts: tuple[int, ...] = (1,)) -> JobChange:
    return join_change(JoinGpus(job.job_id, hosts, nodes, gpus, 0, "a test"), job, SHARED_GPU_GRES)


def run_hosts(cluster: ContainerCluster, client: CliSlurmClient, *nodes: str) -> tuple[int, ...]:
    """Jobs on all GPUs of these nodes: without them the nodes' hooks send a guest back."""
    hosts = tuple(submit(cluster, f"--gres=gpu:4 --nodelist={node}") for node in nodes)
    cluster.exec("root", ("scontrol", "release", ",".join(map(str, hosts)))).check()
    cluster.wait_until(lambda: all(record_of(client, host).state == "RUNNING" for host in hosts), "hosts run")
    return hosts


def send(client: CliSlurmClient, change: JobChange) -> str:
    (result,) = apply_changes(client, [change])
    return result.error


@pytest.mark.sample(5)
@pytest.mark.parametrize("asks", WAYS)
def test_a_way_of_asking_becomes_a_guest_on_the_gpu_and_goes_back(
    cluster: ContainerCluster, client: CliSlurmClient, asks: str
) -> None:
    job_id, hosts = submit(cluster, asks), run_hosts(cluster, client, "n1")
    job, before = record_of(client, job_id), shown(cluster, job_id)
    assert why_not_guest(job, client.request(job_id)) == ""
    assert send(client, join(job, 2, hosts=hosts)) == ""
    waiting = record_of(client, job_id)
    assert (waiting.shared_gpus, waiting.gpus) == (1, 1)
    record = read_guest_records(client, [job_id])[job_id]
    assert isinstance(record, GuestRecord)
    assert send(client, unshare_change(job_id, record, "a test")) == ""
    assert shown(cluster, job_id) == before
    assert request_fields(record_of(client, job_id)) == request_fields(job)
    assert send(client, join(job, 2, hosts=hosts)) == ""
    cluster.exec("root", ("scontrol", "release", str(job_id))).check()
    cluster.wait_until(lambda: record_of(client, job_id).state == "RUNNING", f"job {job_id} runs as a guest")
    assert client.allocations([job_id])[job_id] == [HeldOnNode("n1", 1, job.cpus, (), (2,))]


@pytest.mark.parametrize("asks", ["--gpus=2 --nodes=2 --ntasks=2", "--gpus-per-task=1 --nodes=2 --ntasks=2"])
def test_a_gang_becomes_a_guest_on_the_same_index_of_each_node(
    cluster: ContainerCluster, client: CliSlurmClient, asks: str
) -> None:
    job_id, nodes = submit(cluster, asks), ("n1", "n2")
    hosts = run_hosts(cluster, client, *nodes)
    job, before = record_of(client, job_id), shown(cluster, job_id)
    assert why_not_guest(job, client.request(job_id)) == ""
    change = join(job, 3, nodes=nodes, hosts=hosts)
    assert send(client, change) == ""
    record = read_guest_records(client, [job_id])[job_id]
    assert isinstance(record, GuestRecord)
    assert send(client, unshare_change(job_id, record, "a test")) == ""
    assert shown(cluster, job_id) == before
    assert send(client, change) == ""
    cluster.exec("root", ("scontrol", "release", str(job_id))).check()
    cluster.wait_until(lambda: record_of(client, job_id).state == "RUNNING", f"job {job_id} runs as a guest")
    held = client.allocations([job_id])[job_id]
    assert held == [HeldOnNode(node, 1, 1, (), (3,)) for node in ("n1", "n2")]


@pytest.mark.sample(4)
@pytest.mark.parametrize("asks", REFUSED)
def test_a_way_of_asking_that_is_refused(
    cluster: ContainerCluster, client: CliSlurmClient, slurm: str, asks: str
) -> None:
    if slurm == "26.05" and "--gres=gpu:1 --gpus-per-node=1" in asks:
        with pytest.raises(ClusterError, match="mutually exclusive"):
            submit(cluster, asks)
        return
    job_id = submit(cluster, asks)
    assert REFUSED[asks] in why_not_guest(record_of(client, job_id), client.request(job_id))


def waiting_guests(cluster: ContainerCluster, client: CliSlurmClient) -> dict[int, list[str]]:
    """Two guests that wait, and how their requests were."""
    before = {}
    for asks in ("--gpus=1", "--gpus-per-task=1 --ntasks=1"):
        job_id = submit(cluster, asks)
        before[job_id] = shown(cluster, job_id)
        assert send(client, join(record_of(client, job_id), 2)) == ""
        assert shown(cluster, job_id) != before[job_id]
    return before


@pytest.mark.parametrize("command", ["release-all", "release-lifts"])
def test_with_sodad_and_its_store_gone_requests_come_from_what_jobs_carry(
    cluster: ContainerCluster, client: CliSlurmClient, command: str
) -> None:
    cluster.exec("root", ("sh", "-c", "rm -rf /var/lib/slurm-soda/*")).check()
    before = waiting_guests(cluster, client)
    cluster.exec("root", ("sodactl", command))
    assert {job_id: shown(cluster, job_id) for job_id in before} == before


def test_a_guest_that_runs_is_named_until_it_waits_again(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    """Whoever uninstalls must not take the hooks away before: nothing else guards the GPU of such a guest."""
    job_id, hosts = submit(cluster, "--gres=gpu:1"), run_hosts(cluster, client, "n1")
    before = shown(cluster, job_id)
    assert send(client, join(record_of(client, job_id), 2, hosts=hosts)) == ""
    cluster.exec("root", ("scontrol", "release", str(job_id))).check()
    cluster.wait_until(lambda: record_of(client, job_id).state == "RUNNING", f"job {job_id} runs as a guest")
    for argv in (("release-all", "--dry-run"), ("release-all",)):
        said = cluster.exec("root", ("sodactl", *argv))
        assert (said.status, f"running on GPUs of other jobs: {job_id}" in said.stderr) == (1, True), said
    cluster.exec("root", ("scontrol", "requeuehold", str(job_id))).check()
    cluster.wait_until(lambda: record_of(client, job_id).state == "PENDING", f"job {job_id} waits")
    cluster.exec("root", ("sodactl", "release-all"))
    assert shown(cluster, job_id) == before
    assert cluster.exec("root", ("sodactl", "release-all", "--dry-run")).status == 0


def test_without_python_requests_come_from_what_jobs_carry(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    before = waiting_guests(cluster, client)
    forged = submit(cluster, "--gres=gpu:1")
    own = shown(cluster, forged)
    record = "Extra=soda-guest:1,hosts=5,gpus=2,undo=TresPerNode=gres/gpu:4;ReqNodeList=$(id)"
    # In one update job_submit.lua would refuse it.
    for fields in (("TresPerNode=gres/sharedgpu:g2:1", "ReqNodeList=n1"), (record,)):
        cluster.exec("root", ("scontrol", "update", f"JobId={forged}", *fields)).check()
    lines = (
        "rm -rf /tmp/alone", "mkdir -p /tmp/alone/libexec /tmp/alone/state",
        "cp /opt/slurm-soda/libexec/soda-release-lifts /tmp/alone/libexec/", "chown -R slurm /tmp/alone",
        "echo 4194305 >/tmp/alone/state/sodad.lock", "touch -d '1 hour ago' /tmp/alone/state/sodad.lock",
        "su slurm -s /bin/sh -c '/tmp/alone/libexec/soda-release-lifts /tmp/alone/state'",
    )  # fmt: skip
    said = cluster.exec("root", ("sh", "-c", " && ".join(lines))).check()
    assert {job_id: shown(cluster, job_id) for job_id in before} == before, said.stderr
    assert shown(cluster, forged) == own
